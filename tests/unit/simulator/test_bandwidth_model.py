"""The modelled bandwidth of placements worked out by hand, and kubelet's choice on a node."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated import fill, mixed_nodes, town

from railwright.cli import simulation
from railwright.fabric.placement import bandwidth
from railwright.simulator import bandwidth_model, cluster_specs
from railwright.simulator import cluster as clusters

pytestmark = pytest.mark.exhaustive

NODE = clusters.Hardware(gpus=(4, 4), numa_of_rail=(0, 0, 0, 0, 1, 1, 1, 1), devices=(1,) * 8)


def assess_placed(on: clusters.Cluster, hosts, gpus=8) -> bandwidth_model.GangBandwidth:
    capacity = on.get_capacity(on.build_demand(gpus))
    return bandwidth_model.assess_gang(on, capacity.demand, bandwidth_model.grant_ranks(capacity.snapshot(), hosts))


SPINES = {"a": (8,), "b": (8,)}
PLACEMENTS = {  # leaves of each spine, oversubscription, hosts by rank: bandwidth, crossings, those out of rank order
    "in one leaf": ({"s": (4,)}, (7.0,), [0, 1, 2, 3], (1.0, 0, 0)),
    "over two leaves at 1:1": ({"s": (2, 2)}, (1.0,), [0, 1, 2, 3], (1.0, 2, 0)),
    "over two leaves at 7:1, by the smaller one's uplinks": ({"s": (5, 2)}, (7.0, 1.0), [0, 1, 5], (2 / 7, 2, 0)),
    "from leaves with uplinks enough": ({"s": (8, 7)}, (7.0, 1.0), [0, 8], (1.0, 2, 0)),
    "in rank order": ({"s": (4, 4)}, (7.0, 1.0), [0, 1, 4, 5], (4 / 7, 2, 0)),
    "out of rank order": ({"s": (4, 4)}, (7.0, 1.0), [0, 4, 1, 5], (4 / 14, 4, 2)),
    "over two spines, at their own oversubscription": (SPINES, (1.0, 16.0), [0, 8], (8 / 16, 2, 0)),
    "closed from the second leaf of a spine to its first": ({"a": (1, 1), "b": (1,)}, (1.0,), [0, 2, 1], (1.0, 3, 0)),
    "back to a spine": ({"a": (1, 1), "b": (1, 1)}, (1.0,), [0, 2, 1, 3], (1.0, 4, 2)),
}


@pytest.mark.parametrize(("spines", "ratios", "hosts", "expected"), PLACEMENTS.values(), ids=PLACEMENTS)
def test_each_crossing_shares_the_uplinks_of_the_domains_that_it_leaves(spines, ratios, hosts, expected):
    value = assess_placed(town(spines, ratios), hosts)
    assert (value.total, value.crossings, value.rank_order_crossings) == pytest.approx(expected)


def test_a_gang_runs_over_the_rails_that_all_its_members_have():
    on = town({"s": (1,)}, mixed=True, nodes=mixed_nodes())
    assert assess_placed(on, [0]).member == 1.0
    assert assess_placed(on, [1]).member == 0.5
    assert assess_placed(on, [0, 1]).member == 0.5


def test_rails_that_only_some_members_have_do_not_count():
    demand = clusters.Demand(gpus=8, rails=2, named=True, counted=False)
    left = clusters.Hardware(gpus=(8,), numa_of_rail=(0, 0), devices=(9, 0))
    right = clusters.Hardware(gpus=(8,), numa_of_rail=(0, 0), devices=(0, 9))
    grants = [clusters.list_grants(shape, shape.empty, demand)[0] for shape in (left, right)]
    assert [grant.value for grant in grants] == [0.5, 0.5]
    assert bandwidth_model.find_slowest_member(list(enumerate(grants)), demand) == 0.0


def test_kubelet_takes_the_devices_of_one_numa_node_where_they_fit():
    first, second = clusters.list_grants(NODE, NODE.empty, clusters.Demand(gpus=4, rails=4))
    assert (first.gpus, second.gpus) == ((4, 0), (0, 4))
    assert not first.split
    assert first.value == second.value == 1.0


def test_a_pod_on_the_free_devices_of_two_numa_nodes_is_split():
    left = ((2, 2), (1, 1, 0, 0, 1, 1, 0, 0))
    (only,) = clusters.list_grants(NODE, left, clusters.Demand(gpus=4, rails=4))
    assert only.split
    assert only.value == 1.0  # in matching pairs: each GPU still has a rail beside it


def test_rails_of_the_other_numa_node_give_less():
    left = ((4, 0), (1, 1, 0, 0, 1, 1, 0, 0))
    (only,) = clusters.list_grants(NODE, left, clusters.Demand(gpus=4, rails=4))
    assert only.misaligned == 2
    assert only.value == pytest.approx((2 + 2 * bandwidth.MISALIGNED) / 4)


def test_pods_on_one_nic_divide_it_whether_they_are_peers_or_not():
    shared = clusters.Hardware(gpus=(8,), numa_of_rail=(0, 0), devices=(100, 100))
    demand = clusters.Demand(gpus=2, rails=2, named=True)
    peers = clusters.list_grants(shared, shared.empty, demand)
    assert [bandwidth_model.compute_slowest_on_host(peers[:count], None, demand) for count in (1, 2, 4)] == [
        1.0,
        1 / 2,
        1 / 4,
    ]
    assert bandwidth_model.find_slowest_member([(0, peers[0]), (1, peers[0])], demand) == 1.0
    others = clusters.list_grants(shared, peers[0].after, demand)
    assert [bandwidth_model.compute_slowest_on_host(others[:count], None, demand) for count in (1, 2)] == [
        1 / 2,
        pytest.approx(1 / 3),
    ]


def test_half_of_the_rails_have_all_uplinks_of_a_bundle_and_half_of_those_by_rail():
    on = town({"s": (4, 4)}, (7.0, 1.0))
    assert assess_placed(on, [0, 4]).total == pytest.approx(4 / 7)
    assert assess_placed(on, [0, 4], gpus=4).total == 1.0
    on.is_bundled = False
    assert assess_placed(on, [0, 4], gpus=4).total == pytest.approx(4 / 7)


def test_the_devices_of_an_ended_pod_are_free_again():
    on = town({"s": (2,)})
    before = list(on.states)
    grant = on.start_pod(1, on.build_demand(4))
    assert on.states != before
    on.end_pod(1, grant)
    assert on.states == before
    assert on.get_capacity(on.build_demand(4)).total == 4


def test_the_capacity_index_counts_the_pods_that_still_fit():
    on = town({"s": (2,)})
    capacity = on.get_capacity(on.build_demand(8))
    assert (capacity.total, capacity.slots) == (2, [1, 1])
    fill(on, 0, 1)
    assert (capacity.total, capacity.slots) == (1, [0, 1])


def test_every_parameter_has_a_source():
    assert all(all(row.values()) for row in simulation.list_parameters())
    assert str(bandwidth.MISALIGNED) in {row["value"] for row in simulation.list_parameters()}


# --- the optimum against all possible placements --------------------------------------------------------------


@st.composite
def situations(draw):
    """Draw (cluster, pods, GPUs per pod): up to six nodes in a small tree, some of them partly used."""
    spines = draw(
        st.dictionaries(st.sampled_from("ab"), st.lists(st.integers(1, 3), min_size=1, max_size=2), min_size=1)
    )
    oversubscription = draw(st.sampled_from([(1.0, 1.0), (7.0, 7.0), (1.0, 3.0), (2.0, 1.0)]))
    cluster = town(
        spines, oversubscription, goal=draw(st.sampled_from(["bandwidth", "capacity"])), mixed=draw(st.booleans())
    )
    for host in range(len(cluster.hosts)):
        for gpus in draw(st.lists(st.sampled_from([1, 2, 4, 8]), max_size=2)):
            if cluster.get_capacity(cluster.build_demand(gpus)).slots[host]:
                fill(cluster, host, gpus)
    return cluster, draw(st.integers(2, 4)), draw(st.sampled_from([4, 8]))


def every_placement(cluster, capacity, free, pods):
    for hosts in itertools.product([host for host, slots in enumerate(capacity.slots) if slots], repeat=pods):
        if all(hosts.count(host) <= capacity.slots[host] for host in set(hosts)):
            yield bandwidth_model.assess_gang(cluster, free.demand, bandwidth_model.grant_ranks(free, hosts))


@given(situations())
def test_no_placement_has_more_bandwidth_and_none_of_as_much_has_fewer_leaves(situation):
    cluster, pods, gpus = situation
    capacity = cluster.get_capacity(cluster.build_demand(gpus))
    free = clusters.apply_goal(cluster, capacity.snapshot())
    best = bandwidth_model.find_best(cluster, free, pods)
    tried = list(every_placement(cluster, capacity, free, pods))
    if not tried:
        assert best is None
        return
    most = max(value.total for value in tried)
    assert best.value == most
    assert best.leaves == min(value.leaves for value in tried if value.total == most)
    assert (
        bandwidth_model.assess_gang(cluster, free.demand, bandwidth_model.grant_ranks(free, best.hosts)).total
        == best.value
    )
    assert bandwidth_model.count_min_leaves(cluster, free, pods) == min(value.leaves for value in tried)
    fits_alone = any(value.leaves == 1 and value.total >= most for value in tried)
    assert bandwidth_model.fits_one_leaf(cluster, free, pods, most) == fits_alone


def test_on_nodes_of_different_rails_the_common_ones_count():
    cluster = town({"s": (1,)}, mixed=True, nodes=[*mixed_nodes(), *rename(mixed_nodes(), "x")])
    free = cluster.get_capacity(cluster.build_demand(8)).snapshot()
    assert bandwidth_model.find_best(cluster, free, 2).value == 1.0
    assert set(bandwidth_model.find_best(cluster, free, 2).hosts) == {0, 2}
    assert bandwidth_model.find_best(cluster, free, 3).value == 0.5


def rename(trees, suffix):
    for tree in trees:
        tree["metadata"]["name"] += suffix
        yield tree


def test_among_equals_the_optimum_splits_no_pod_over_numa_nodes():
    cluster = town({"s": (3,)})
    fill(cluster, 0, 2, 4, 1)  # (1, 0) left
    fill(cluster, 1, 2)
    grant = cluster.start_pod(1, cluster.build_demand(4))
    cluster.start_pod(1, cluster.build_demand(1))
    cluster.end_pod(1, grant)
    free = cluster.get_capacity(cluster.build_demand(4)).snapshot()
    assert all(
        not grant.split
        for _, grant in bandwidth_model.grant_ranks(free, bandwidth_model.find_best(cluster, free, 2).hosts)
    )


def test_of_rail_sets_with_equal_bandwidth_the_optimum_uses_the_one_with_fewer_leaves():
    wide = cluster_specs.Shape(
        {"s": (1, 1)}, 8, cluster_specs.list_rail_resources(8, mixed=True), "a test", product="8x8"
    )
    narrow = cluster_specs.Shape(
        {"s": (2,)}, 8, cluster_specs.list_rail_resources(4, mixed=True), "a test", product="8x4"
    )
    nodes = [*cluster_specs.build_nodes(wide), *cluster_specs.build_nodes(narrow, 2)]
    cluster = town({}, (2.0,), mixed=True, nodes=nodes)
    best = bandwidth_model.find_best(cluster, cluster.get_capacity(cluster.build_demand(8)).snapshot(), 2)
    assert (best.value, best.leaves, set(best.hosts)) == (0.5, 1, {2, 3})
