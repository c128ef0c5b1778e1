"""Rails that are attached without Multus, and devices that include all rails of a pod."""

from admitting import (
    admit_pod,
    build_facts,
    decode_pod,
    fabric,
    gpus,
    list_messages,
    plan_pod,
    pod,
    read_limits,
    read_policy,
    read_record,
)

from railwright.fabric import admission, intent, resources

FLAG = "[{name: rail0, resource: rdma/ib, device: ibp0}, {name: rail1, resource: rdma/ib, device: ibp1}]"


TKE = "tke.cloud.tencent.com/networks"


def test_an_annotation_that_the_author_has_with_another_value_is_recorded_as_kept():
    by = fabric(f"    annotations: {{{TKE}: 'tke-bridge,tke-rdma-ipvlan', x.y/z: a}}\n", rails=FLAG)
    tree = admit_pod(pod(annotations={TKE: "tke-bridge", "x.y/z": "a"}), by)
    assert tree["metadata"]["annotations"][TKE] == "tke-bridge"
    assert read_record(tree)["kept"] == {"metadata.annotations": [TKE]}
    assert read_record(admit_pod(pod(), by))["kept"] == {}


def test_an_annotation_that_lacks_items_of_the_policy_gets_a_warning_with_the_fix():
    by = fabric(f"    annotations: {{{TKE}: 'tke-bridge,tke-rdma-ipvlan'}}\n", rails=FLAG)
    (warning,) = plan_pod(pod(annotations={TKE: "tke-bridge"}), by).warnings
    assert warning.line == (
        f"NetworkMissing: annotation {TKE} 'tke-bridge' of the pod is kept, but lacks items of "
        "'tke-bridge,tke-rdma-ipvlan' of fabric f: the pod does not get the rails of these items; "
        "add the policy's items to the list, or remove the annotation"
    )
    for own in ("tke-bridge,tke-rdma-ipvlan", "tke-rdma-ipvlan, storage,tke-bridge"):
        assert list_messages(plan_pod(pod(annotations={TKE: own}), by)) == (), own
    assert list_messages(plan_pod(pod(), by)) == ()
    on_host = plan_pod(pod(hostNetwork=True, annotations={TKE: "tke-bridge"}), by)
    assert [warning.code for warning in on_host.warnings] == ["HostNetwork"]


def test_an_annotation_in_json_with_the_items_of_the_policy_causes_no_warning():
    key, items = "networking.gke.io/interfaces", ['{"interfaceName": "eth0"}', '{"interfaceName": "eth2"}']
    by = fabric(f"    annotations: {{{key}: '[{', '.join(items)}]'}}\n", rails=FLAG)
    for own, count in ((items[:1], 1), ([*items, '{"interfaceName": "eth9"}'], 0)):
        assert len(plan_pod(pod(annotations={key: f"[{', '.join(own)}]"}), by).warnings) == count, own


def test_with_device_scope_pod_one_device_is_requested_for_all_rails():
    by = fabric("    deviceScope: pod\n", rails=FLAG, transport="infiniband")
    tree = admit_pod(pod(), by)
    assert read_limits(tree)["rdma/ib"] == "1"
    assert list_messages(plan_pod(pod(), by)) == ()
    assert read_record(tree)["rails"] == ["rail0", "rail1"]
    assert read_limits(admit_pod(pod(), fabric(rails=FLAG, transport="infiniband")))["rdma/ib"] == "2"


def test_placement_counts_one_device_with_device_scope_pod_as_all_rails():
    for scope, amount in (("rail", 2), ("pod", 1)):
        document = fabric(f"    deviceScope: {scope}\n", rails=FLAG).document.fabrics["f"]
        (need,) = intent.find_needs(plan_pod(pod(), fabric(rails=FLAG)).pod, {}, document)
        assert (need.rails, need.amount) == (("rail0", "rail1"), amount * resources.UNIT)
        assert document.count_rails(1, 2) == (1 if scope == "rail" else 2)


TCPXO = read_policy(
    "apiVersion: railwright.io/v1alpha1\nfabrics:\n  f:\n    transport: plugin\n"
    "    rails: [{name: vpc1, interface: eth1}, {name: vpc2, interface: eth2}]\n"
    "    nccl:\n      forbidTcpFallback: true\n      plugin: FasTrak\n"
    "      vendorVariables: [NCCL_SOCKET_IFNAME, NCCL_FASTRAK_*]\n"
    "    env: {NCCL_NET_PLUGIN: fastrak}\n    resolve: always\n"
)


def test_a_fabric_of_a_plugin_sets_no_variable_of_the_vendor():
    tree = admit_pod(pod(), TCPXO)
    env = {entry["name"]: entry["value"] for entry in tree["spec"]["containers"][0]["env"]}
    assert env == {
        "GLOO_SOCKET_IFNAME": "eth0",
        "TP_SOCKET_IFNAME": "eth0",
        "NCCL_NET": "FasTrak",
        "NCCL_NET_PLUGIN": "fastrak",
    }
    assert "initContainers" not in tree["spec"]
    assert "transport plugin has no RDMA devices" in read_record(tree)["skipped"]["preflight"]["message"]


def test_a_pod_that_sets_a_variable_of_the_vendor_gets_a_warning():
    env = [{"name": "NCCL_FASTRAK_USE_SNAP", "value": "0"}]
    outcome = admission.plan_pod(decode_pod(pod(gpus(8, env=env))), TCPXO, build_facts())
    assert [warning.code for warning in outcome.warnings] == ["N66"]
