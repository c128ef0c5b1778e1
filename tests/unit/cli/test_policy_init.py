"""`railwright policy init`: the first policy of a profile, and of what a cluster shows."""

import json
import re

import msgspec
import pytest
import simulated_clouds
from broken_installations import assess_trees
from installations import healthy

from railwright.cli import __main__ as command_line
from railwright.cli import output
from railwright.cli.checking import check_rows
from railwright.cli.clouds import first_policies, matching, profiles
from railwright.cli.clouds.matching import Kind
from railwright.cluster import policies
from railwright.fabric import names

SHAPES = simulated_clouds.SHAPES
SOURCES = {
    Kind.NODE: "nodes",
    Kind.NETWORK: "networks",
    Kind.DEVICE_CLASS: "device-classes",
    Kind.SLICE: "device-slices",
}
GPUS = {"nvidia.com/gpu": "8"}


def title(shape):
    return f"{shape.profile.name} {shape.title}"


def find(profile, fabric):
    return next(shape for shape in SHAPES if (shape.profile.name, shape.fabric_name) == (profile, fabric))


def build(*rows):
    """Return a cluster with nodes of each profile and fabric."""
    return simulated_clouds.join(*[simulated_clouds.build(find(*row)) for row in rows])


def write(trees, *candidates, **more):
    cluster = msgspec.structs.replace(simulated_clouds.read(trees), **more)
    return first_policies.write_cluster(cluster, candidates or profiles.list_profiles())


def read(text):
    result = policies.read(text)
    assert not isinstance(result, policies.Rejected), result.errors
    return result.document


def flatten(text):
    """Return the comments as one line."""
    return " ".join(line.strip(" #") for line in text.splitlines() if "#" in line)


def assess(text, trees):
    """Return the failed and warned rows of `check` on a cluster with this policy and no scheduler configuration."""
    installed = healthy() | {"pods": [], "volcano": [], "kube-system": []}
    installed["policy"][0]["data"][names.POLICY_KEY] = text
    installed |= {source: trees[kind] for kind, source in SOURCES.items()}
    bad = (check_rows.State.FAIL, check_rows.State.WARN)
    return {(result.check, result.state.value) for result in assess_trees(installed) if result.state in bad}


def nodes(count=2, labels=None, name="node", **resources):
    amounts = {name.replace("__", "/"): str(amount) for name, amount in resources.items()} | GPUS
    return [
        {
            "metadata": {
                "name": f"{name}-{index}",
                "labels": {key: value.format(index=index, half=index // 2) for key, value in (labels or {}).items()},
            },
            "status": {"capacity": amounts, "allocatable": amounts},
        }
        for index in range(count)
    ]


def objects(members, **more):
    return {kind: [] for kind in Kind} | {Kind.NODE: members} | {Kind[name]: trees for name, trees in more.items()}


def network(name, resource, plugin="macvlan"):
    metadata = {"namespace": "prod", "name": name, "annotations": {names.NAD_RESOURCE_NAME: resource}}
    return {"metadata": metadata, "spec": {"config": f'{{"type": "{plugin}"}}'}}


# --- profiles -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", profiles.list_profiles(), ids=lambda profile: profile.name)
def test_a_profile_is_printed_with_its_source_and_with_what_is_not_verified(profile, capsys):
    assert command_line.main(["policy", "init", "--cloud", profile.name]) == output.OK
    text = capsys.readouterr().out
    assert read(text) == profile.policy.document
    assert profile.source in flatten(text)
    assert profile.unverified in flatten(text)


@pytest.mark.parametrize(
    ("options", "listed"), [((), "EKS: eks-efa, eks-efa-claims, eks-gb200"), (("--cloud", "eks"), "'eks-efa', ")]
)
def test_without_a_cloud_or_cluster_the_profiles_are_listed(options, listed, capsys):
    assert command_line.main(["policy", "init", *options]) == output.UNUSABLE
    assert listed in capsys.readouterr().err


# --- clusters with profiles ---------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES, ids=title)
def test_the_nodes_of_a_shape_get_its_fabric(shape):
    trees = simulated_clouds.build(shape)
    text = write(trees)
    ((name, fabric),) = read(text).fabrics.items()
    if shape.fabric_name == "ib-sharp":  # reductions in the switches are a choice of the job
        assert (name, fabric) == ("ib", find("coreweave-h100", "ib").fabric)
        assert "NOT KNOWN" in text
    else:
        assert (name, fabric) == (shape.fabric_name, shape.fabric)
    assert "MISSING" not in text
    failed = {row for row, state in assess(text, trees) if state == "fail"}
    assert failed == set()


def test_check_warns_only_of_what_a_profile_leaves_open():
    warned: dict[str, set[str]] = {}
    for shape in SHAPES:
        trees = simulated_clouds.build(shape)
        for row, _ in assess(write(trees), trees):
            warned.setdefault(row, set()).add(shape.profile.name)
    assert warned == {
        "admission-policy": {"ack-erdma"},  # aliyun.com/gpu, which the chart's values must list
        "rail-devices": {"aks-h100", "crusoe-gb200", "digitalocean", "network-operator", "spectrum-x"},  # NCCL chooses
        "rail-pools": {"aks-h100"},  # IP over InfiniBand has no devices
    }


@pytest.mark.parametrize("shape", SHAPES, ids=title)
def test_the_shape_does_not_fit_nodes_with_another_number_of_gpus(shape):
    trees = simulated_clouds.build(shape)
    amounts = trees[Kind.NODE][0]["status"]["capacity"]
    accelerator = next((name for name in matching.ACCELERATORS if name in amounts), "nvidia.com/gpu")
    for node in trees[Kind.NODE]:
        node["status"] = {"capacity": amounts | {accelerator: "2"}, "allocatable": {}}
    assert all(match is None for _, match in match_all(trees, shape.profile)) == bool(shape.fabric.gpus_per_node)


@pytest.mark.parametrize("shape", SHAPES, ids=title)
def test_what_is_not_installed_is_named(shape):
    whole = simulated_clouds.build(shape)
    bare = whole | {kind: [] for kind in Kind if kind is not Kind.NODE}
    for node in bare[Kind.NODE]:
        amounts = {name: amount for name, amount in node["status"]["capacity"].items() if name in matching.ACCELERATORS}
        node["status"] = {"capacity": amounts, "allocatable": amounts}
        node["metadata"]["labels"] = {key: node["metadata"]["labels"][key] for key in shape.labels}
    if not shape.labels:
        with pytest.raises(output.UnreadableError, match="the cluster shows no fabric"):
            write(bare, shape.profile)
        return
    text = flatten(write(bare, shape.profile))
    ((_, match), *_) = match_all(bare, shape.profile)
    for need in match.missing:
        assert f"MISSING: {need}." in text


def test_the_needs_of_a_fabric_are_its_devices_networks_classes_and_labels():
    needs = {str(need) for shape in SHAPES for need in matching.list_needs(shape.fabric)}
    assert needs >= {
        "vpc.amazonaws.com/efa: 32",
        "NetworkAttachmentDefinition default/rdma-vf",
        "Network rdma-7",
        "DeviceClass mrdma.google.com",
        "ResourceSlice of driver dra.net",
        "node label nvidia.com/gpu.clique",
    }


def match_all(trees, profile):
    return matching.match_nodes(simulated_clouds.read(trees), profiles.list_shapes(profile))


@pytest.mark.parametrize(
    "pair",
    [
        [("eks-efa", "p5"), ("eks-efa", "p4d")],
        [("oke-host-network", "h100"), ("oke-gb300", "gb300")],
        [("oke-h100-vf", "roce"), ("digitalocean", "roce")],
        [("gke-a3-mega", "tcpxo"), ("gke-a3-ultra-dranet", "rdma")],
    ],
)
def test_a_cluster_of_two_shapes_gets_both_fabrics(pair):
    shapes = [find(*row) for row in pair]
    trees = simulated_clouds.join(simulated_clouds.build(shapes[0], 3), simulated_clouds.build(shapes[1]))
    text = write(trees)
    document = read(text)
    assert list(document.fabrics.values()) == [shape.fabric for shape in shapes]
    assert document.default_fabric == next(iter(document.fabrics))  # of most nodes
    assert {row for row, state in assess(text, trees) if state == "fail"} == set()
    assert "rail-missing" not in {row for row, _ in assess(text, trees)}


def test_fabrics_of_equal_names_get_that_of_their_profiles():
    trees = build(("oke-h100-vf", "roce"), ("digitalocean", "roce"))
    assert list(read(write(trees)).fabrics) == ["oke-h100-vf-roce", "digitalocean-roce"]


def test_slices_beside_a_profile_with_device_plugins_are_named():
    trees = simulated_clouds.build(find("eks-efa", "p5"))
    slices = simulated_clouds.build(find("gke-a3-ultra-dranet", "rdma"))[Kind.SLICE]
    for offered in slices:
        offered["spec"]["nodeName"] = trees[Kind.NODE][0]["metadata"]["name"]
    assert "NOT USED: the ResourceSlices of driver dra.net" in flatten(write(trees | {Kind.SLICE: slices[:1]}))
    assert "NOT USED" not in write(trees)


def test_of_profiles_for_one_instance_type_the_devices_decide_between_plugin_and_claims():
    plugin, claims = (simulated_clouds.build(find(profile, "p5")) for profile in ("eks-efa", "eks-efa-claims"))
    assert read(write(plugin)).fabrics["p5"].claims is None
    assert read(write(claims)).fabrics["p5"].claims is not None


def test_the_node_shapes_of_a_profile_are_in_the_policy_of_the_cluster():
    profile = profiles.find("aks-gb300")
    trees = build(("aks-gb300", "infiniband"), ("eks-efa", "p5"))
    assert read(write(trees)).node_shapes == profile.policy.document.node_shapes


def test_accelerators_of_all_shapes_are_listed():
    trees = build(("ack-erdma", "erdma"), ("eks-efa", "p5"))
    assert read(write(trees)).accelerators == ("aliyun.com/gpu", "nvidia.com/gpu")


def test_kinds_that_may_not_be_listed_are_named_and_count_as_neither_there_nor_missing():
    trees = simulated_clouds.build(find("oke-h100-vf", "roce")) | {Kind.NETWORK: []}
    text = write(trees, unread=frozenset({Kind.NETWORK}))
    assert "NOT READ, because you may not list them: NetworkAttachmentDefinition." in flatten(text)
    assert list(read(text).fabrics) == ["roce"]
    assert "MISSING" not in text


# --- clusters without a profile -----------------------------------------------------------------------------


def test_networks_with_a_resource_become_rails_in_the_order_of_their_numbers():
    networks = [network(f"lan{index}", f"example.com/mlx5_{index}") for index in (10, 2)]
    members = nodes(**{"example.com__mlx5_2": 1, "example.com__mlx5_10": 1})
    document = read(text := write(objects(members, NETWORK=networks)))
    (fabric,) = document.fabrics.values()
    assert [(rail.network, rail.resource) for rail in fabric.rails] == [
        ("prod/lan2", "example.com/mlx5_2"),
        ("prod/lan10", "example.com/mlx5_10"),
    ]
    assert (fabric.transport, fabric.gpus_per_node) == ("roce", 8)
    assert "not known: infiniband if the NICs are not Ethernet" in text
    assert {row for row, state in assess(text, objects(members, NETWORK=networks)) if state == "fail"} == set()


@pytest.mark.parametrize(
    ("resource", "amount", "transport", "devices"),
    [
        ("vpc.amazonaws.com/efa", 4, "efa", 4),
        ("aliyun/erdma", 1, "erdma", 1),
        ("rdma/hca_shared_devices_a", 63, "roce", 1),
        ("rdma/ib", 8, "infiniband", 8),
        ("nvidia.com/hostdev", 8, "roce", 8),
        ("openshift.io/mellanoxnics", 8, "roce", 8),
        ("example.com/infiniband", 8, "infiniband", 8),
        ("example.com/rail0", 8, "roce", 8),
    ],
)
def test_resources_without_a_network_become_rails_with_all_devices_that_are_not_shared(
    resource, amount, transport, devices
):
    (fabric,) = read(write(objects(nodes(**{resource.replace("/", "__"): amount})))).fabrics.values()
    assert [rail.resource for rail in fabric.rails] == [resource]
    assert (fabric.transport, fabric.devices_per_rail) == (transport, devices)


def test_the_type_of_a_network_shows_infiniband():
    members = nodes(**{"example.com__nics": 8})
    trees = objects(members, NETWORK=[network("ib", "example.com/nics", "ib-sriov")])
    assert next(iter(read(write(trees)).fabrics.values())).transport == "infiniband"


def build_unlabelled(count=2):
    """Return nodes with slices and without labels, so that they match no profile."""
    trees = simulated_clouds.build(find("gke-a3-ultra-dranet", "rdma"), count)
    for node in trees[Kind.NODE]:
        node["metadata"]["labels"] = {}
    return trees


def test_devices_of_slices_become_rails_of_claims():
    trees = build_unlabelled()
    document = read(text := write(trees))
    (fabric,) = document.fabrics.values()
    assert fabric.claims.device_class == "mrdma.google.com"
    assert [rail.device for rail in fabric.rails] == [f"mlx5_{index}" for index in range(8)]
    assert {row for row, state in assess(text, trees) if state == "fail"} == set()


@pytest.mark.parametrize(("link", "transport"), [("ether", "roce"), ("infiniband", "infiniband")])
def test_slices_show_the_kind_of_link(link, transport):
    trees = build_unlabelled()
    for offered in trees[Kind.SLICE]:
        offered["spec"]["devices"][0]["attributes"]["dra.net/encapsulation"] = {"string": link}
    text = write(trees)
    assert next(iter(read(text).fabrics.values())).transport == transport
    assert "infiniband if the NICs are not" not in text


@pytest.mark.parametrize("name", ["a}\n    security: {privileged: true}", "\x1b[2J", "m" * 64])
def test_a_device_whose_name_no_policy_can_have_is_left_out_and_named(name):
    text = write(claim_nodes(["mlx5_0", name]))
    (fabric,) = read(text).fabrics.values()
    assert [rail.device for rail in fabric.rails] == ["mlx5_0"]
    reason = "no policy can have such values of dra.net/rdmaDevice, so correct the slices of driver dra.net"
    assert f"not used, because {reason}: {' '.join(json.dumps(name).split())}" in flatten(text)


def test_the_networks_of_gke_become_rails_of_its_annotation():
    networks = [{"metadata": {"name": name}} for name in ("default", "rdma-1", "rdma-0", "rdma.2")]
    (fabric,) = read(text := write(objects(nodes(), GKE_NETWORK=networks))).fabrics.values()
    assert 'not used, because rails cannot have such names of Networks: "rdma.2"' in flatten(text)
    assert [(rail.name, rail.interface) for rail in fabric.rails] == [("rdma-0", "eth1"), ("rdma-1", "eth2")]
    assert fabric.network_annotation.key == matching.GKE_INTERFACES


@pytest.mark.parametrize(
    ("labels", "preset", "domains"),
    [
        ({"topology.k8s.aws/network-node-layer-3": "a"}, "aws", ()),
        (
            {"nvidia.com/gpu.clique": "a", "example.com/rack": "b"},
            None,
            ("nvidia.com/gpu.clique", "example.com/rack"),
        ),
        (
            {"example.com/spine": "s", "example.com/leaf": "l{half}", "host": "{index}"},
            None,
            ("example.com/leaf", "example.com/spine"),
        ),
        ({"example.com/rack": "{index}"}, None, ()),  # one for each node
    ],
)
def test_labels_that_mean_switches_become_domains_closest_first(labels, preset, domains):
    (fabric,) = read(write(objects(nodes(4, labels, rdma__ib=8)))).fabrics.values()
    assert (fabric.placement.preset, fabric.placement.domains) == (preset, domains)
    assert (fabric.nvlink is not None) == ("nvidia.com/gpu.clique" in labels)


def test_nodes_with_other_devices_get_a_fabric_of_their_own():
    members = [*nodes(3, rdma__ib=8), *nodes(1, name="other", rdma__roce=2)]
    assert list(read(write(objects(members))).fabrics) == ["rdma", "rdma1"]


def test_resources_that_mean_no_nic_do_not_tell_nodes_apart():
    others = nodes(1, name="other", rdma__ib=8, **{"devices.kubevirt.io__kvm": 1000})
    assert list(read(write(objects([*nodes(3, rdma__ib=8), *others]))).fabrics) == ["rdma"]


def test_of_copies_of_networks_those_of_one_namespace_become_rails():
    networks = [network(f"lan{index}", f"example.com/mlx5_{index}") for index in range(2)]
    copies = [msgspec.json.decode(msgspec.json.encode(tree)) for tree in networks]
    for copy in copies:
        copy["metadata"]["namespace"] = "research"
    trees = objects(nodes(**{"example.com__mlx5_0": 1, "example.com__mlx5_1": 1}), NETWORK=[*copies, *networks])
    (fabric,) = read(text := write(trees)).fabrics.values()
    assert [rail.network for rail in fabric.rails] == ["prod/lan0", "prod/lan1"]
    assert "not used, because networks above have the same resources: those of research" in flatten(text)


def claim_nodes(names, gpus=()):
    """Return a node with RDMA devices of these names in its slices, and GPUs of these types."""
    trees = build_unlabelled(1)
    (node,), (offered,) = trees[Kind.NODE], trees[Kind.SLICE]
    attributes = [{"dra.net/rdma": {"bool": True}, "dra.net/rdmaDevice": {"string": name}} for name in names]
    offered["spec"]["devices"] = [{"name": f"nic-{at}", "attributes": row} for at, row in enumerate(attributes)]
    if gpus:
        node["status"] = {"capacity": {}, "allocatable": {}}
        rows = [{"name": f"gpu-{at}", "attributes": {"type": {"string": kind}}} for at, kind in enumerate(gpus)]
        spec = {**offered["spec"], "driver": "gpu.nvidia.com", "devices": rows}
        trees[Kind.SLICE].append({"metadata": {"name": "gpus"}, "spec": spec})
    return trees


@pytest.mark.parametrize("name", ["no", "true", "Null"])
def test_names_that_yaml_reads_as_something_else_are_quoted(name):
    (of_slices,) = read(write(claim_nodes([name]))).fabrics.values()
    assert [rail.device for rail in of_slices.rails] == [name]
    (of_gke,) = read(write(objects(nodes(), GKE_NETWORK=[{"metadata": {"name": name.lower()}}]))).fabrics.values()
    assert [rail.name for rail in of_gke.rails] == [name.lower()]


def test_a_claim_asks_for_no_more_devices_than_a_claim_may_have():
    (fabric,) = read(text := write(claim_nodes([f"mlx5_{index}" for index in range(40)]))).fabrics.values()
    assert [rail.device for rail in fabric.rails] == [f"mlx5_{index}" for index in range(32)]
    assert "not used, because a fabric gets 32 rails: mlx5_32, mlx5_33, mlx5_34 and 5 more" in flatten(text)


def test_parts_of_gpus_and_gpus_of_virtual_machines_are_not_counted():
    (fabric,) = read(write(claim_nodes(["mlx5_0"], ["gpu", "gpu", "mig", "mig", "mig", "vfio"]))).fabrics.values()
    assert fabric.gpus_per_node == 2


def test_a_policy_has_at_most_sixteen_derived_fabrics():
    members = [node for index in range(1, 19) for node in nodes(1, rdma__ib=index)]
    for index, node in enumerate(members):
        node["metadata"]["name"] = f"node-{index}"
    text = write(objects(members))
    assert len(read(text).fabrics) == 16
    assert "NO FABRIC for 2 nodes (node-16, node-17): the nodes have more than 16 sets of devices" in flatten(text)


NAMED = {
    "a resource of two profiles": (
        lambda: build(("eks-efa", "p5"), ("eks-efa", "p4d")),
        "vpc.amazonaws.com/efa is a resource of p5, p4d: jobs must select their nodes",
    ),
    "resources of two derived fabrics": (
        lambda: objects([*nodes(3, rdma__a=1, rdma__b=1), *nodes(1, name="other", rdma__a=1, rdma__b=1, rdma__c=1)]),
        "rdma/a, rdma/b are resources of rdma, rdma1: jobs must select their nodes",
    ),
    "a resource that means no NIC": (
        lambda: objects(nodes(**{"rdma__ib": 8, "example.com__licence": 1})),
        "not used, because the name means no NIC: example.com/licence",
    ),
    "a resource beside networks": (
        lambda: objects(nodes(rdma__ib=8, **{"example.com__rail0": 1}), NETWORK=[network("lan", "example.com/rail0")]),
        "not used, because slices or networks show the rails: rdma/ib",
    ),
    "a node without NICs": (
        lambda: objects([*nodes(rdma__ib=8), *nodes(1, name="bare")]),
        "NO FABRIC for 1 node (bare-0): no resource, slice or network means a NIC",
    ),
    "a node whose only device has an impossible name": (
        lambda: simulated_clouds.join(claim_nodes(["^"]), objects(nodes(rdma__ib=8))),
        "NO FABRIC for 1 node (gke-a3-ultra-dranet-rdma-0): no resource, slice or network means a NIC",
    ),
}


@pytest.mark.parametrize("case", NAMED)
def test_what_the_policy_leaves_out_or_cannot_tell_apart_is_named(case):
    make, sentence = NAMED[case]
    assert sentence in flatten(write(make()))


@pytest.mark.parametrize(
    ("members", "problem"),
    [
        ([], "none of 0 nodes has an accelerator"),
        (nodes(), "2 nodes (node-0, node-1): no resource, slice or network means a NIC"),
    ],
)
def test_a_cluster_that_shows_no_fabric_is_refused_with_the_fix(members, problem):
    with pytest.raises(output.UnreadableError, match=re.escape(problem)) as caught:
        write(objects(members))
    assert "Install the device plugin or DRA driver of the NICs, or begin with a profile" in str(caught.value)
