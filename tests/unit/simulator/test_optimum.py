"""Compares the optimum with all possible placements, on clusters small enough to try them."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated import fill, mixed_nodes, town

from railwright.simulator import bandwidth_model, cluster_specs
from railwright.simulator import cluster as clusters

pytestmark = pytest.mark.exhaustive


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
    assert best is not None
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


def test_a_small_leaf_with_weak_uplinks_is_not_used():
    cluster = town({"s": (3, 7, 7)}, (7.0, 1.0))
    for host in range(3, 7):
        fill(cluster, host, 8)
    best = bandwidth_model.find_best(cluster, cluster.get_capacity(cluster.build_demand(8)).snapshot(), 9)
    assert best.value == 1.0
    assert {cluster.hosts[host].chain[0] for host in best.hosts} == {
        cluster.hosts[3].chain[0],
        cluster.hosts[10].chain[0],
    }


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
