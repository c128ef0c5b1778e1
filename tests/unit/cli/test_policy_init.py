"""`railwright policy init`: a first policy from a profile, and from the objects of a cluster."""

import re

import comparison
import msgspec
import pytest
import simulated_clouds
from broken_installations import assess_trees
from installations import healthy

from railwright.cli import __main__ as command_line
from railwright.cli import output
from railwright.cli.checking import rows
from railwright.cli.clouds import first_policies, profiles
from railwright.cli.clouds.first_policies import Kind
from railwright.cluster import policies
from railwright.fabric import names

SHAPES = comparison.list_shapes()
SOURCES = {Kind.NODE: "nodes", Kind.NETWORK: "networks", Kind.DEVICE_CLASS: "device-classes"}
GPUS = {"nvidia.com/gpu": "8"}


def find(profile, fabric):
    return next(shape for shape in SHAPES if (shape.profile.name, shape.shape.fabric) == (profile, fabric))


def build(*rows):
    """Return a cluster with nodes of each profile and fabric."""
    return simulated_clouds.join(*[simulated_clouds.build(find(*row)) for row in rows])


def write(trees, *candidates, **more):
    cluster = msgspec.structs.replace(simulated_clouds.read(trees), **more)
    return first_policies.derive_policy(cluster, candidates or profiles.list_profiles())


def read(text):
    result = policies.read(text)
    assert not isinstance(result, policies.RejectedPolicy), result.errors
    return result.document


def flatten(text):
    """Return the comments as one line."""
    return " ".join(line.strip(" #") for line in text.splitlines() if "#" in line)


def assess(text, trees, slices=()):
    """Return the failed and warned rows of `check` on a cluster with this policy and no scheduler configuration."""
    installed = healthy() | {"pods": [], "volcano": [], "kube-system": []}
    installed["policy"][0]["data"][names.POLICY_KEY] = text
    installed |= {source: trees[kind] for kind, source in SOURCES.items()} | {"device-slices": slices}
    bad = (rows.State.FAIL, rows.State.WARN)
    return {(result.check, result.state.value) for result in assess_trees(installed) if result.state in bad}


def nodes(count=2, labels=None, name="node", **resources):
    amounts = {name.replace("__", "/"): str(amount) for name, amount in resources.items()} | GPUS
    return [
        {
            "metadata": {"name": f"{name}-{index}", "labels": labels or {}},
            "status": {"capacity": amounts, "allocatable": amounts},
        }
        for index in range(count)
    ]


def objects(members, **more):
    return {kind: [] for kind in Kind} | {Kind.NODE: members} | {Kind[name]: trees for name, trees in more.items()}


def network(name, resource, plugin="macvlan", namespace="prod"):
    metadata = {"namespace": namespace, "name": name, "annotations": {names.NAD_RESOURCE_NAME: resource}}
    return {"metadata": metadata, "spec": {"config": f'{{"type": "{plugin}"}}'}}


# --- profiles -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", profiles.list_profiles(), ids=lambda profile: profile.name)
def test_a_printed_profile_names_its_source_and_what_is_unverified(profile, capsys):
    assert command_line.main(["policy", "init", "--cloud", profile.name]) == output.OK
    text = capsys.readouterr().out
    assert read(text) == profile.policy.document
    assert profile.source in flatten(text)
    assert profile.unverified in flatten(text)


def test_a_profile_has_a_fabric_for_each_shape():
    for profile in profiles.list_profiles():
        assert [shape.fabric for shape in profile.shapes] == list(profile.policy.document.fabrics)


def test_without_a_profile_name_all_profiles_are_listed_one_a_line(capsys):
    assert command_line.main(["policy", "init"]) == output.UNUSABLE
    listed = [line.split("  ")[1] for line in capsys.readouterr().err.splitlines() if re.match("  [a-z]", line)]
    assert listed == [profile.name for profile in profiles.list_profiles()]


# --- clusters with profiles ---------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_nodes_that_fit_a_shape_of_a_profile_get_the_fabric_of_that_shape(shape):
    trees = simulated_clouds.build(shape)
    text = write(trees)
    assert list(read(text).fabrics.items()) == [(shape.shape.fabric, shape.fabric)]
    assert "MISSING" not in text
    assert shape.profile.unverified in flatten(text)
    slices = simulated_clouds.build_slices(shape, trees[Kind.NODE])
    assert {row for row, state in assess(text, trees, slices) if state == "fail"} == set()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_networks_and_resources_of_a_profile_that_the_cluster_lacks_are_named(shape):
    whole = simulated_clouds.build(shape)
    bare = whole | {kind: [] for kind in Kind if kind is not Kind.NODE}
    for node in bare[Kind.NODE]:
        node["status"] = {"capacity": GPUS, "allocatable": GPUS}
    if not shape.shape.instances:
        with pytest.raises(output.UnreadableError, match="no fabric can be derived from the cluster"):
            write(bare, shape.profile)
        return
    text = flatten(write(bare, shape.profile))
    for need in match_all(bare, shape.profile)[0].missing:
        assert f"MISSING: {need}." in text


def match_all(trees, profile):
    cluster = simulated_clouds.read(trees)
    return [first_policies.find_shape_match(node, cluster, [profile]) for node in cluster.objects[Kind.NODE]]


@pytest.mark.parametrize(
    "pair",
    [
        [("eks-efa", "p5"), ("eks-efa", "p4d")],
        [("oke-host-network", "h100"), ("oke-h100-vf", "roce-8")],
        [("aks-h100", "ib"), ("gke-a3-ultra-networks", "rdma")],
    ],
)
def test_a_cluster_with_nodes_of_two_shapes_gets_both_fabrics(pair):
    shapes = [find(*row) for row in pair]
    trees = simulated_clouds.join(simulated_clouds.build(shapes[0], 3), simulated_clouds.build(shapes[1]))
    text = write(trees)
    document = read(text)
    assert list(document.fabrics.values()) == [shape.fabric for shape in shapes]
    assert document.default_fabric == next(iter(document.fabrics))  # of most nodes
    assert {row for row, state in assess(text, trees) if state == "fail"} == set()


@pytest.mark.parametrize(
    ("profile", "fabric"), [("eks-efa", "p5"), ("eks-efa-claims", "p5"), ("aks-h100", "shared"), ("aks-h100", "ipoib")]
)
def test_shapes_of_one_instance_type_are_told_apart_by_devices_and_networks_and_classes(profile, fabric):
    assert read(write(build((profile, fabric)))).fabrics == {fabric: find(profile, fabric).fabric}


def test_a_kind_that_may_not_be_listed_is_named_and_its_objects_are_not_reported_as_missing():
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
    assert fabric.transport == "roce"
    assert "Not known: whether the transport is roce or infiniband" in flatten(text)
    assert {row for row, state in assess(text, objects(members, NETWORK=networks)) if state == "fail"} == set()


def test_rails_of_an_ib_sriov_network_get_the_transport_infiniband():
    members = nodes(**{"example.com__nics": 8})
    trees = objects(members, NETWORK=[network("ib", "example.com/nics", "ib-sriov")])
    assert next(iter(read(write(trees)).fabrics.values())).transport == "infiniband"


@pytest.mark.parametrize(("labels", "preset"), [({"topology.k8s.aws/network-node-layer-3": "a"}, "aws"), ({}, None)])
def test_node_labels_become_domains_only_if_a_preset_has_them(labels, preset):
    trees = objects(
        nodes(labels=labels | {"example.com/rack": "a"}, example__nics=1), NETWORK=[network("a", "example/nics")]
    )
    (fabric,) = read(text := write(trees)).fabrics.values()
    assert (fabric.placement.preset, fabric.placement.domains) == (preset, ())
    assert ("Not known: placement.domains" in flatten(text)) == (preset is None)


def test_nodes_with_different_networks_get_a_fabric_each_and_all_accelerators_are_listed():
    members = [*nodes(3, a__nics=1), *nodes(1, name="other", b__nics=1)]
    members[-1]["status"]["capacity"] = {"amd.com/gpu": "8", "b/nics": "1"}
    members[-1]["status"]["allocatable"] = {}
    document = read(write(objects(members, NETWORK=[network("a", "a/nics"), network("b", "b/nics")])))
    assert [fabric.rails[0].network for fabric in document.fabrics.values()] == ["prod/a", "prod/b"]
    assert set(document.accelerators) == {"amd.com/gpu", "nvidia.com/gpu"}


def test_nodes_without_a_network_for_their_resources_are_left_out_and_named():
    members = [*nodes(a__nics=1), *nodes(1, name="bare", rdma__ib=8)]
    text = flatten(write(objects(members, NETWORK=[network("a", "a/nics")])))
    assert (
        "NO FABRIC for 1 node (bare-0): no profile fits, and no NetworkAttachmentDefinition names a resource of them; "
        "they have rdma/ib. Write their fabric by hand: docs/policies.md has policies"
    ) in text


def test_networks_without_a_resource_are_named_as_possible_rails():
    shared = [network(f"lan{index}", "") for index in range(10)]
    named = "prod/lan0, prod/lan1, prod/lan2, prod/lan3, prod/lan4, prod/lan5, prod/lan6, prod/lan7 and 2 more, without"
    with pytest.raises(output.UnreadableError, match=f"Perhaps their rails are {named} annotation"):
        write(objects(nodes(rdma__hca=63), NETWORK=shared))
    text = flatten(write(objects(nodes(a__nics=1), NETWORK=[network("a", "a/nics"), *shared])))
    assert f"NOT USED: {named} annotation {names.NAD_RESOURCE_NAME}." in text


@pytest.mark.parametrize(
    ("members", "problem"),
    [
        ([], "None of 0 nodes has nvidia.com/gpu"),
        (nodes(), "NO FABRIC for 2 nodes (node-0, node-1): no profile fits"),
    ],
)
def test_a_cluster_without_a_recognizable_fabric_is_refused_with_the_fix(members, problem):
    with pytest.raises(output.UnreadableError, match=re.escape(problem)) as caught:
        write(objects(members))
    assert "Install the device plugin or DRA driver of the NICs, or begin with the policy of a site" in str(
        caught.value
    )


def test_up_to_32_resources_of_a_node_without_a_fabric_are_listed():
    functions, nics = [[f"{stem}{index}" for index in range(8)] for stem in ("a__ib_vf", "nvidia.com__mlx5_")]
    with pytest.raises(output.UnreadableError, match=r"they have a/ib_vf0, .*, nvidia.com/mlx5_7\. ") as caught:
        write(objects(nodes(**dict.fromkeys((*functions, *nics), 1))))
    assert (
        "every key. Install the device plugin or DRA driver of the NICs, unless one of these resources is theirs, or "
        in str(caught.value)
    )


def pool(resource, plugin, amount=8, **more):
    """Return nodes whose device plugin offers this many devices behind one network."""
    return objects(nodes(**{resource.replace("/", "__"): amount}, **more), NETWORK=[network("net", resource, plugin)])


@pytest.mark.parametrize(
    ("resource", "plugin", "amount", "rails"),
    [
        ("openshift.io/ibvf", "ib-sriov", 8, 8),
        ("nvidia.com/hostdev", "host-device", 8, 8),
        ("amd.com/nic", "amd-host-device", 8, 8),
        ("example.com/ports", "sriov", 16, 16),
        ("example.com/functions", "sriov", 64, 8),
        ("rdma/shared", "macvlan", 63, 1),
        ("rdma/shared", "ipoib", 1000, 1),
    ],
)
def test_a_network_that_moves_devices_into_pods_gets_a_rail_for_each_device_of_a_node(resource, plugin, amount, rails):
    trees = pool(resource, plugin, amount)
    (fabric,) = read(text := write(trees)).fabrics.values()
    assert [(rail.network, rail.resource) for rail in fabric.rails] == [("prod/net", resource)] * rails
    assert fabric.rails_per_pod == ("proportional" if rails > 1 else None)
    assert {row for row, state in assess(text, trees) if state == "fail"} == set()


def test_virtual_functions_fill_the_remaining_rails_and_no_network_gets_more_rails_than_devices():
    networks = [network("functions", "example.com/vf", "sriov"), network("storage", "example.com/storage", "sriov")]
    members = nodes(**{"example.com__vf": 64, "example.com__storage": 1})
    (fabric,) = read(write(objects(members, NETWORK=networks))).fabrics.values()
    assert [rail.resource for rail in fabric.rails] == ["example.com/vf"] * 4 + ["example.com/storage"]


@pytest.mark.parametrize(("resource", "amount"), [("rdma/hca", 1000), ("nvidia.com/hostdev", 8)])
def test_a_resource_name_alone_identifies_no_cloud(resource, amount):
    with pytest.raises(output.UnreadableError, match=f"no profile fits.*they have {resource}"):
        write(objects(nodes(**{resource.replace("/", "__"): amount})))
