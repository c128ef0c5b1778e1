"""Broken rails: which rails of a node count as broken, and their effect on a plan."""

import claimed
import devices
import msgspec
import placing
import pytest

from railwright.fabric import intent, names, node_views
from railwright.fabric.placement.state import object_info
from railwright.fabric.workloads import volcano

POLICY = placing.build_policy()


def find_broken_rails(cluster, name, policy=POLICY):
    """Return the broken rails of a node of the fabric: `rail0 named`, by the annotation, or `rail0 dead`."""
    if name not in cluster.nodes_with_broken_rails:
        return []
    fabric = intent.fill_resources("roce", policy.document.fabrics["roce"], {})
    rows = object_info.find_broken_rails(cluster.nodes[name], fabric.rails)
    return [f"{row.rail} {'named' if row.is_named else 'dead'}" for row in rows]


def reduce_allocatable(node: node_views.Node, **amounts: str) -> node_views.Node:
    """Return a node with fewer allocatable devices of the rails with these names."""
    allocatable = dict(node.status.allocatable)
    allocatable |= {placing.RESOURCES[placing.RAILS.index(rail)]: amount for rail, amount in amounts.items()}
    return msgspec.structs.replace(node, status=node_views.NodeStatus(node.status.capacity, allocatable))


# --- which rails ----------------------------------------------------------------------------------------------


def test_a_rail_is_broken_while_the_annotation_of_its_node_names_it():
    cluster = placing.build_cluster(
        [placing.build_node("n", "a"), placing.mark_broken(placing.build_node("m", "a"), "rail1,rail3")]
    )
    assert find_broken_rails(cluster, "m") == ["rail1 named", "rail3 named"]
    assert find_broken_rails(cluster, "n") == []
    cluster.upsert_node(placing.build_node("m", "a"))
    assert find_broken_rails(cluster, "m") == []


def test_a_rail_is_broken_while_none_of_its_devices_is_allocatable():
    node = placing.build_node("n", "a", rails_each=2)
    cluster = placing.build_cluster([reduce_allocatable(node, rail0="0", rail1="1")])
    assert find_broken_rails(cluster, "n") == ["rail0 dead"]
    cluster.upsert_node(node)
    assert find_broken_rails(cluster, "n") == []


@pytest.mark.parametrize(("left", "rails"), [(0, 4), (1, 0)])
def test_the_rails_of_a_shared_resource_break_together_when_no_device_is_left(left, rails):
    known = POLICY.document.fabrics["roce"].rails
    by = placing.change_fabric(
        POLICY, rails=tuple(msgspec.structs.replace(rail, resource="rdma/shared") for rail in known)
    )
    node = placing.build_node("n", "a", rails_each={"rdma/shared": left}, capacity={"rdma/shared": "4"})
    assert len(find_broken_rails(placing.build_cluster([node]), "n", by)) == rails


def test_a_rail_that_a_node_never_had_is_not_broken():
    cluster = placing.build_cluster([placing.build_node("bare", "a", rails_each={placing.RESOURCES[0]: 1})])
    assert not cluster.nodes_with_broken_rails


def test_a_rail_is_broken_while_a_slice_taints_its_devices():
    cluster = placing.build_cluster([claimed.build_claimed_node("n")])
    claimed.name_devices(cluster)
    taints = {device["name"]: "NoSchedule" for device in devices.build_slices("n")[0]["spec"]["devices"]}
    claimed.add_slices(cluster, "n", taints=taints)
    rails = {row.split()[0] for row in find_broken_rails(cluster, "n", claimed.policy())}
    assert rails == {rail.name for rail in claimed.policy().document.fabrics["roce"].rails}
    claimed.add_slices(cluster, "n")
    assert find_broken_rails(cluster, "n", claimed.policy()) == []


@pytest.mark.parametrize(
    ("value", "rails"),
    [
        ("", ()),
        (" , ,", ()),
        (" rail1 ,rail1,, rail0", ("rail1", "rail0")),
        ("mlx5_0 is down; rail1", ("mlx5_0 is down; rail1",)),
    ],
)
def test_the_annotation_of_broken_rails_has_names_separated_by_commas(value, rails):
    assert object_info.read_broken_rails({names.BROKEN_RAILS: value}) == rails


def test_a_long_annotation_of_broken_rails_is_cut():
    many = ",".join(f"rail{number}" for number in range(10_000))
    assert len(object_info.read_broken_rails({names.BROKEN_RAILS: many})) == 64
    assert sum(map(len, object_info.read_broken_rails({names.BROKEN_RAILS: "r" * 100_000}))) == 4096


def test_an_annotation_that_names_an_unknown_rail_breaks_no_rail():
    cluster = placing.build_cluster([placing.mark_broken(placing.build_node("n", "a"), "mlx5_9")])
    assert find_broken_rails(cluster, "n") == []


# --- what follows ---------------------------------------------------------------------------------------------


def decide(cluster, by=POLICY, *, size=1):
    cluster.sizes.upsert(volcano.POD_GROUPS, placing.build_pod_group("train", "gang", size))
    request = placing.build_request(placing.build_pod("job-worker-0", group="gang"), list(cluster.nodes), by)
    return placing.score_once(request, cluster)


def test_a_gang_avoids_a_node_with_a_broken_rail_which_scores_lowest():
    nodes = placing.build_leaves(a=4, b=3)
    cluster = placing.build_cluster([placing.mark_broken(nodes[1], "rail3"), nodes[0], *nodes[2:]])
    decision = decide(cluster, size=3)
    assert decision.plan.bandwidth == 1.0
    broken = placing.explain(decision)["a-01"]
    assert (broken.reasons[0].code, broken.fits, broken.score) == ("RailBroken", False, 0)
    assert not decide(cluster, size=7).plan.is_complete


def remove_resources(count):
    """Return the policy with this number of rails that no device counts, such as those of a host network."""
    rails = POLICY.document.fabrics["roce"].rails
    changed = [msgspec.structs.replace(rail, resource=None) for rail in rails[:count]]
    return placing.change_fabric(POLICY, rails=(*changed, *rails[count:]))


@pytest.mark.parametrize("count", [1, 4], ids=["beside counted rails", "all rails"])
def test_a_gang_leaves_out_a_broken_rail_without_a_resource(count):
    by, nodes = remove_resources(count), placing.build_leaves(a=4, b=3)
    cluster = placing.build_cluster(nodes)
    assert [leaf for leaf, *_ in decide(cluster, by, size=3).plan.leaves] == ["b"]
    cluster.upsert_node(placing.mark_broken(nodes[5], "rail0"))
    assert [leaf for leaf, *_ in decide(cluster, by, size=3).plan.leaves] == ["a"]
