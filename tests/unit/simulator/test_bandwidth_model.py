"""The modelled bandwidth of placements worked out by hand, and kubelet's choice on a node."""

import pytest
from simulated import fill, mixed_nodes, town

from railwright.cli import simulation
from railwright.fabric.placement import bandwidth
from railwright.simulator import bandwidth_model, cluster

pytestmark = pytest.mark.exhaustive

NODE = cluster.Hardware(gpus=(4, 4), numa_of_rail=(0, 0, 0, 0, 1, 1, 1, 1), devices=(1,) * 8)


def assess_placed(on: cluster.Cluster, hosts, gpus=8) -> bandwidth_model.GangBandwidth:
    capacity = on.get_capacity(on.build_demand(gpus))
    return bandwidth_model.assess_gang(on, capacity.demand, bandwidth_model.grant_ranks(capacity.snapshot(), hosts))


def test_a_gang_in_one_leaf_has_all_of_the_bandwidth():
    value = assess_placed(town({"s": (4,)}, (7.0,)), [0, 1, 2, 3])
    assert (value.total, value.leaves, value.crossings) == (1.0, 1, 0)


def test_a_crossing_at_1_to_1_costs_no_bandwidth():
    value = assess_placed(town({"s": (2, 2)}), [0, 1, 2, 3])
    assert (value.total, value.leaves, value.crossings) == (1.0, 2, 2)


def test_a_crossing_at_seven_to_one_has_the_bandwidth_of_the_smaller_leafs_uplinks():
    on = town({"s": (5, 2)}, (7.0, 1.0))
    assert assess_placed(on, [0, 1, 5]).total == pytest.approx(2 / 7)
    assert assess_placed(town({"s": (8, 7)}, (7.0, 1.0)), [0, 8]).total == 1.0


def test_ranks_out_of_order_share_the_uplinks_and_are_counted():
    on = town({"s": (4, 4)}, (7.0, 1.0))
    assert assess_placed(on, [0, 1, 4, 5]).total == pytest.approx(4 / 7)
    mixed_up = assess_placed(on, [0, 4, 1, 5])
    assert mixed_up.total == pytest.approx(4 / 14)
    assert (mixed_up.crossings, mixed_up.rank_order_crossings) == (4, 2)


def test_a_spine_is_crossed_at_its_own_oversubscription():
    on = town({"a": (8,), "b": (8,)}, (1.0, 16.0))
    assert assess_placed(on, [0, 8]).total == pytest.approx(8 / 16)


def test_ranks_that_come_back_to_a_spine_are_out_of_order():
    on = town({"a": (1, 1), "b": (1,)})
    assert (
        assess_placed(on, [0, 2, 1]).rank_order_crossings == 0
    )  # the ring closes from the second leaf of a to the first
    on = town({"a": (1, 1), "b": (1, 1)})
    assert assess_placed(on, [0, 2, 1, 3]).rank_order_crossings == 2


def test_a_gang_runs_over_the_rails_that_all_its_members_have():
    on = town({"s": (1,)}, mixed=True, nodes=mixed_nodes())
    assert assess_placed(on, [0]).member == 1.0
    assert assess_placed(on, [1]).member == 0.5
    assert assess_placed(on, [0, 1]).member == 0.5


def test_rails_that_only_some_members_have_do_not_count():
    demand = cluster.Demand(gpus=8, rails=2, named=True, counted=False)
    left = cluster.Hardware(gpus=(8,), numa_of_rail=(0, 0), devices=(9, 0))
    right = cluster.Hardware(gpus=(8,), numa_of_rail=(0, 0), devices=(0, 9))
    grants = [cluster.list_grants(shape, shape.empty, demand)[0] for shape in (left, right)]
    assert [grant.value for grant in grants] == [0.5, 0.5]
    assert bandwidth_model.find_slowest_member(list(enumerate(grants)), demand) == 0.0


def test_kubelet_takes_the_devices_of_one_numa_node_where_they_fit():
    first, second = cluster.list_grants(NODE, NODE.empty, cluster.Demand(gpus=4, rails=4))
    assert (first.gpus, second.gpus) == ((4, 0), (0, 4))
    assert not first.split
    assert first.value == second.value == 1.0


def test_a_pod_on_the_free_devices_of_two_numa_nodes_is_split():
    left = ((2, 2), (1, 1, 0, 0, 1, 1, 0, 0))
    (only,) = cluster.list_grants(NODE, left, cluster.Demand(gpus=4, rails=4))
    assert only.split
    assert only.value == 1.0  # in matching pairs: each GPU still has a rail beside it


def test_rails_of_the_other_numa_node_give_less():
    left = ((4, 0), (1, 1, 0, 0, 1, 1, 0, 0))
    (only,) = cluster.list_grants(NODE, left, cluster.Demand(gpus=4, rails=4))
    assert only.misaligned == 2
    assert only.value == pytest.approx((2 + 2 * bandwidth.MISALIGNED) / 4)


def test_pods_on_one_nic_divide_it_whether_they_are_peers_or_not():
    shared = cluster.Hardware(gpus=(8,), numa_of_rail=(0, 0), devices=(100, 100))
    demand = cluster.Demand(gpus=2, rails=2, named=True)
    peers = cluster.list_grants(shared, shared.empty, demand)
    assert [bandwidth_model.compute_slowest_on_host(peers[:count], None, demand) for count in (1, 2, 4)] == [
        1.0,
        1 / 2,
        1 / 4,
    ]
    assert bandwidth_model.find_slowest_member([(0, peers[0]), (1, peers[0])], demand) == 1.0
    others = cluster.list_grants(shared, peers[0].after, demand)
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
