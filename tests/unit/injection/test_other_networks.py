"""Rails that another system than Multus attaches, and devices that give a pod all its rails."""

import json

import pytest
from admitting import admitted, fabric, gpus, known, limits, messages, planned, pod, policy, record, refusal, view
from hypothesis import given
from hypothesis import strategies as st

from railwright.fabric import admission, intent, resources

GKE, VKE = "networking.gke.io/interfaces", "k8s.volcengine.com/pod-networks"
NAMED = "[{name: rdma-0, interface: eth2}, {name: rdma-1, interface: eth3}]"
BY_NAME = fabric(
    "    networkAnnotation:\n      key: networking.gke.io/interfaces\n"
    '      item: {interfaceName: "{interface}", network: "{rail}"}\n'
    "      first: [{interfaceName: eth0, network: default}, {interfaceName: eth1, network: gvnic-1}]\n",
    rails=NAMED,
)
REPEATED = fabric(
    "    networkAnnotation: {key: k8s.volcengine.com/pod-networks, item: {cniConf: {name: rdma}}}\n",
    rails="[{name: rail0, resource: a.b/rdma}, {name: rail1, resource: a.b/rdma}]",
)
FLAG = "[{name: rail0, resource: rdma/ib, device: ibp0}, {name: rail1, resource: rdma/ib, device: ibp1}]"


def read_list(tree, key):
    return json.loads(tree["metadata"]["annotations"][key])


def test_each_rail_has_an_item_after_those_of_the_policy():
    tree = admitted(pod(), BY_NAME)
    names = [(item["interfaceName"], item["network"]) for item in read_list(tree, GKE)]
    assert names == [("eth0", "default"), ("eth1", "gvnic-1"), ("eth2", "rdma-0"), ("eth3", "rdma-1")]
    assert "k8s.v1.cni.cncf.io/networks" not in tree["metadata"]["annotations"]
    assert f"annotations.{GKE}" in record(tree)["added"]


def test_one_network_may_be_attached_many_times_and_the_authors_occurrences_count():
    assert read_list(admitted(pod(), REPEATED), VKE) == [{"cniConf": {"name": "rdma"}}] * 2
    own = '[{"cniConf": {"name": "rdma"}}, {"cniConf": {"name": "storage"}}]'
    tree = admitted(pod(annotations={VKE: own}), REPEATED)
    assert [item["cniConf"]["name"] for item in read_list(tree, VKE)] == ["rdma", "storage", "rdma"]


def test_the_authors_item_of_an_interface_takes_precedence():
    own = '[{"interfaceName": "eth2", "network": "mine"}]'
    items = read_list(admitted(pod(annotations={GKE: own}), BY_NAME), GKE)
    assert items[0] == {"interfaceName": "eth2", "network": "mine"}
    assert [item["interfaceName"] for item in items] == ["eth2", "eth0", "eth1", "eth3"]


def test_an_item_of_the_policy_may_have_any_value_in_the_place_of_an_interface():
    key = "{key: a.b/n, item: {name: '{interface}'}, first: [{name: [eth0]}]}"
    policy = fabric(f"    networkAnnotation: {key}\n", rails=NAMED)
    assert read_list(admitted(pod(), policy), "a.b/n") == [{"name": ["eth0"]}, {"name": "eth2"}, {"name": "eth3"}]


@pytest.mark.parametrize("value", ["", "x", "{}", "[1]", '[{"a": 1}', "[" * 100_000])
def test_a_value_that_is_no_list_of_objects_rejects_the_pod(value):
    assert "is not a list of JSON objects" in refusal(pod(annotations={GKE: value}), BY_NAME)


objects = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda part: st.lists(part) | st.dictionaries(st.text(max_size=3), part),
    max_leaves=6,
)
items = st.lists(
    st.dictionaries(
        st.sampled_from(["interfaceName", "network", "cniConf"]),
        objects | st.sampled_from(["eth2", "rdma-0"]),
        max_size=3,
    ),
    max_size=4,
)


@given(items, st.sampled_from([(BY_NAME, GKE), (REPEATED, VKE)]))
def test_any_list_keeps_its_items_and_a_second_plan_changes_nothing(own, case):
    by, key = case
    once = admitted(pod(annotations={key: json.dumps(own)}), by)
    assert read_list(once, key)[: len(own)] == own
    assert planned(once, by).changes == ()


TKE = "tke.cloud.tencent.com/networks"
COMMAS = fabric(
    f"    networkAnnotation: {{key: {TKE}, first: [tke-bridge], item: tke-rdma-ipvlan}}\n",
    rails="[{name: rail0, resource: tke.cloud.tencent.com/eni-rdma, device: mlx5_bond_1, interface: eth1}]",
)


@pytest.mark.parametrize(
    ("own", "merged"),
    [
        (None, "tke-bridge,tke-rdma-ipvlan"),
        ("", "tke-bridge,tke-rdma-ipvlan"),
        ("tke-bridge", "tke-bridge,tke-rdma-ipvlan"),
        ("tke-bridge, tke-rdma-ipvlan", "tke-bridge, tke-rdma-ipvlan"),
        ("mine", "mine,tke-bridge,tke-rdma-ipvlan"),
    ],
)
def test_a_list_with_commas_keeps_the_items_of_the_author_and_gets_those_that_it_lacks(own, merged):
    tree = admitted(pod(annotations={} if own is None else {TKE: own}), COMMAS)
    assert tree["metadata"]["annotations"][TKE] == merged
    assert planned(tree, COMMAS).changes == ()


def test_a_list_with_commas_has_an_item_for_each_rail():
    by = fabric("    networkAnnotation: {key: a.b/networks, item: 'net-{rail}'}\n", rails=NAMED)
    assert admitted(pod(), by)["metadata"]["annotations"]["a.b/networks"] == "net-rdma-0,net-rdma-1"


def test_an_annotation_that_the_author_has_with_another_value_is_recorded_as_kept():
    by = fabric(f"    annotations: {{{TKE}: 'tke-bridge,tke-rdma-ipvlan', x.y/z: a}}\n", rails=NAMED)
    tree = admitted(pod(annotations={TKE: "tke-bridge", "x.y/z": "a"}), by)
    assert tree["metadata"]["annotations"][TKE] == "tke-bridge"
    assert record(tree)["kept"] == {"metadata.annotations": [TKE]}
    assert record(admitted(pod(), by))["kept"] == {}


def test_the_rails_of_a_pod_with_fewer_are_attached_only():
    tree = admitted(pod(annotations={"railwright.io/rails": "rdma-1"}), BY_NAME)
    assert [item["network"] for item in read_list(tree, GKE)] == ["default", "gvnic-1", "rdma-1"]


def test_a_device_for_the_whole_pod_is_requested_once():
    by = fabric("    deviceScope: pod\n", rails=FLAG, transport="infiniband")
    tree = admitted(pod(), by)
    assert limits(tree)["rdma/ib"] == "1"
    assert messages(planned(pod(), by)) == ()
    assert record(tree)["rails"] == ["rail0", "rail1"]
    assert limits(admitted(pod(), fabric(rails=FLAG, transport="infiniband")))["rdma/ib"] == "2"


def test_placement_counts_a_device_for_the_whole_pod_as_all_its_rails():
    for scope, amount in (("rail", 2), ("pod", 1)):
        document = fabric(f"    deviceScope: {scope}\n", rails=FLAG).document.fabrics["f"]
        (need,) = intent.find_needs(planned(pod(), fabric(rails=FLAG)).pod, {}, document)
        assert (need.rails, need.amount) == (("rail0", "rail1"), amount * resources.UNIT)
        assert document.count_rails(1, 2) == (1 if scope == "rail" else 2)


TCPXO = policy(
    "apiVersion: railwright.io/v1alpha1\nfabrics:\n  f:\n    transport: plugin\n"
    "    rails: [{name: vpc1, interface: eth1}, {name: vpc2, interface: eth2}]\n"
    "    nccl:\n      forbidTcpFallback: true\n      plugin: FasTrak\n"
    "      vendorVariables: [NCCL_SOCKET_IFNAME, NCCL_FASTRAK_*]\n"
    "    env: {NCCL_NET_PLUGIN: fastrak}\n    resolve: always\n"
)


def test_a_fabric_by_plugin_sets_what_is_not_the_vendors():
    tree = admitted(pod(), TCPXO)
    env = {entry["name"]: entry["value"] for entry in tree["spec"]["containers"][0]["env"]}
    assert env == {
        "GLOO_SOCKET_IFNAME": "eth0",
        "TP_SOCKET_IFNAME": "eth0",
        "NCCL_NET": "FasTrak",
        "NCCL_NET_PLUGIN": "fastrak",
    }
    assert "initContainers" not in tree["spec"]


def test_a_pod_that_sets_a_variable_of_the_vendor_has_a_warning():
    env = [{"name": "NCCL_FASTRAK_USE_SNAP", "value": "0"}]
    outcome = admission.plan(view(pod(gpus(8, env=env))), TCPXO, known())
    assert [warning.code for warning in outcome.warnings] == ["N66"]
