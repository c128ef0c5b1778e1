"""NUMA nodes: where devices are, what bound pods have taken of them, and where a pod's rails are beside its GPUs."""

import cpu_time
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from placing import GPU, RAILS, RESOURCES, TWO_SIDED

from railwright.fabric import node_views
from railwright.fabric.placement.nodes import numa
from railwright.fabric.policy import model

POOL = "rdma/hca"
EACH = [model.Rail(name=name, resource=resource) for name, resource in zip(RAILS, RESOURCES, strict=True)]
ONE_POOL = [model.Rail(name=name, resource=POOL) for name in RAILS]
FULL = {"cpu": 128_000, GPU: 8000, **dict.fromkeys(RESOURCES, 1000)}


def node(rails=EACH, **more):
    return numa.build_zones_from_shape(TWO_SIDED, rails, {**FULL, **more}, [GPU])


def zones(*free):
    """Zones by devices: zones({GPU: 4, rail: 1}, ...)."""
    made_zones = []
    for number, amounts in enumerate(free):
        made_zones.append(numa.Zone(number, tuple(sorted((name, count * 1000) for name, count in amounts.items()))))
    return tuple(made_zones)


def want(gpus, *rails, pool=0):
    rails = {RESOURCES[rail]: 1 for rail in rails} | ({POOL: pool} if pool else {})
    pools = tuple((name, count * 1000) for name, count in rails.items())
    return numa.NumaDemand(((GPU, gpus * 1000),) if gpus else (), pools)


def pod(gpus, *rails, pool=0):
    asked = want(gpus, *rails, pool=pool)
    return dict((*asked.accelerators, *asked.pools), cpu=4000)


def left(free_zones, resource=GPU):
    return [dict(zone.free).get(resource, -1000) // 1000 for zone in free_zones]


def topology(*free, **more):
    made_zones = [
        {
            "name": f"node-{number}",
            "type": "Node",
            "resources": [
                {"name": name, "capacity": str(whole), "allocatable": str(whole), "available": str(available)}
                for name, (whole, available) in amounts.items()
            ],
        }
        for number, amounts in enumerate(free)
    ]
    return msgspec.convert({"metadata": {"name": "n"}, "zones": made_zones, **more}, node_views.NodeResourceTopology)


# --- where devices are ------------------------------------------------------------------------------------


def test_a_shape_says_which_gpus_and_rails_are_on_which_numa_node():
    assert node() == zones({GPU: 4, RESOURCES[0]: 1, RESOURCES[1]: 1}, {GPU: 4, RESOURCES[2]: 1, RESOURCES[3]: 1})


def test_a_pool_of_virtual_functions_is_divided_by_the_rails_of_each_numa_node():
    assert left(node(ONE_POOL, **{POOL: 8000}), POOL) == [4, 4]
    three_to_one = msgspec.structs.replace(
        TWO_SIDED,
        numa=(
            model.NumaNode(node=1, gpus=(4,), rails=("rail3",)),
            model.NumaNode(node=0, gpus=(0,), rails=("rail0", "rail1", "rail2")),
        ),
    )
    built_zones = numa.build_zones_from_shape(three_to_one, ONE_POOL, {**FULL, POOL: 7000}, [GPU])
    assert [(zone.node, dict(zone.free)[POOL]) for zone in built_zones] == [(0, 5000), (1, 2000)]


def test_a_dead_rail_is_listed_without_free_devices():
    gone = numa.build_zones_from_shape(TWO_SIDED, EACH, {GPU: 8000, **dict.fromkeys(RESOURCES[:3], 1000)}, [GPU])
    assert left(node(**{RESOURCES[3]: 0}), RESOURCES[3]) == [-1, 0]
    assert left(gone, RESOURCES[3]) == [-1, 0]
    assert numa.assign(gone, want(8, 0, 1, 2, 3)) is None
    assert numa.assign(gone, want(4, 2, 3)) is None
    beside = numa.assign(gone, want(4, 0, 1))
    assert beside is not None
    assert beside.is_aligned


def test_lost_gpus_are_missing_from_the_last_numa_node():
    assert left(node(**{GPU: 7000})) == [4, 3]
    assert left(node(**{GPU: 80_000})) == [40, 40]


def test_a_shape_without_numa_nodes_or_devices_determines_nothing():
    assert numa.build_zones_from_shape(model.NodeShape(name="s", match={}), EACH, FULL, [GPU]) == ()
    empty = model.NodeShape(name="s", match={}, numa=(model.NumaNode(node=0, gpus=(0,)),))
    assert numa.build_zones_from_shape(empty, EACH, FULL, ["amd.com/gpu"]) == ()


def test_a_report_gives_the_available_devices_of_its_numa_nodes_and_of_no_other_zone():
    exported = topology({GPU: (4, 1), "cpu": (64, 2)}, {GPU: (4, -1), RESOURCES[2]: (1, 1)})
    other = [{"name": name, "resources": [{"name": GPU, "available": "8"}]} for name in ("socket-0", "node-0")]
    tree = msgspec.to_builtins(exported)
    zones_ = [{**other[0], "type": "Node"}, {**other[1], "type": "Socket"}, *tree["zones"][::-1]]
    with_socket = msgspec.convert({**tree, "zones": zones_}, node_views.NodeResourceTopology)
    names = {GPU, *RESOURCES}
    assert numa.read_available_zones(exported, names) == zones({GPU: 1}, {GPU: 0, RESOURCES[2]: 1})
    assert numa.read_available_zones(with_socket, names) == numa.read_available_zones(exported, names)
    assert left(numa.read_allocatable_zones(exported, names)) == [4, 4]
    assert numa.read_available_zones(exported, {"amd.com/gpu"}) == ()


def test_resources_missing_from_a_report_come_from_the_shape():
    reported = zones({GPU: 1}, {GPU: 4})
    assert numa.fill_missing_from(reported, node()) == zones(
        {GPU: 1, RESOURCES[0]: 1, RESOURCES[1]: 1}, {GPU: 4, RESOURCES[2]: 1, RESOURCES[3]: 1}
    )


# --- what is taken ----------------------------------------------------------------------------------------


def test_two_pods_on_shared_rails_fill_one_numa_node_and_spill_to_the_other():
    shared = node(**{RESOURCES[0]: 100_000, RESOURCES[1]: 100_000})
    once = numa.subtract_usage(shared, [pod(4, 0, 1)])
    twice = numa.subtract_usage(shared, [pod(4, 0, 1), pod(4, 0, 1)])
    assert (left(once), left(once, RESOURCES[0])) == ([0, 4], [99, -1])
    assert (left(twice), left(twice, RESOURCES[0])) == ([0, 0], [98, -1])


def test_a_pod_that_holds_gpus_without_rails_is_charged_to_the_lowest_that_fits_it():
    assert left(numa.subtract_usage(node(), [pod(4)])) == [0, 4]
    assert left(numa.subtract_usage(node(), [pod(3), pod(2)])) == [1, 2]


def test_pods_with_rails_on_one_numa_node_are_charged_first_in_any_order():
    assert left(numa.subtract_usage(node(), [pod(4), pod(2, 0)])) == [2, 0]
    assert left(numa.subtract_usage(node(), [pod(2, 0), pod(4)])) == [2, 0]


def test_a_whole_node_pod_takes_all_devices_and_amounts_never_drop_below_zero():
    held = numa.subtract_usage(node(), [pod(8, 0, 1, 2, 3)])
    assert left(held) == [0, 0]
    assert numa.subtract_usage(held, [pod(8, 0, 1, 2, 3), pod(1)]) == held
    assert numa.subtract_zones(zones({GPU: 1}, {GPU: 1}), zones({GPU: 2})) == zones({GPU: 0}, {GPU: 1})


def test_a_pod_over_two_numa_nodes_is_charged_in_matching_pairs_first():
    assert left(numa.subtract_usage(node(), [pod(4, 0, 2)])) == [2, 2]
    assert left(numa.subtract_usage(node(), [pod(6, 0, 1, 2)])) == [0, 2]
    three_left = numa.subtract_usage(node(), [pod(1)])
    assert left(numa.subtract_usage(three_left, [pod(5, 0, 1)])) == [0, 2]
    from_pool = numa.subtract_usage(node(ONE_POOL, **{POOL: 4000}), [pod(8, pool=4)])
    assert (left(from_pool), left(from_pool, POOL)) == ([0, 0], [0, 0])


AMOUNTS = st.builds(
    pod, st.integers(0, 8), st.sampled_from(range(4)), st.sampled_from(range(4)), pool=st.integers(0, 3)
)


@given(st.lists(AMOUNTS, max_size=6), st.randoms(use_true_random=False))
def test_the_charged_devices_are_the_requested_ones_in_any_order_of_pods(held, chance):
    rails = [*EACH, model.Rail(name="more", resource=POOL)]
    shape = msgspec.structs.replace(
        TWO_SIDED,
        numa=(*TWO_SIDED.numa, model.NumaNode(node=2, rails=("more",))),
    )
    before = numa.build_zones_from_shape(shape, rails, {**FULL, POOL: 3000}, [GPU])
    before = tuple(
        numa.Zone(zone.node, tuple(sorted({**dict(zone.free), POOL: 2000}.items()))) if zone.node else zone
        for zone in before
    )
    after = numa.subtract_usage(before, held)
    for name in (GPU, POOL, *RESOURCES):
        had, has = (sum(dict(zone.free).get(name, 0) for zone in node_zones) for node_zones in (before, after))
        assert had - has == min(had, sum(grant.get(name, 0) for grant in held))
    assert all(amount >= 0 for zone in after for _, amount in zone.free)
    mixed = list(held)
    chance.shuffle(mixed)
    assert numa.subtract_usage(before, mixed) == after


# --- where a pod goes -------------------------------------------------------------------------------------


def test_eight_gpus_and_four_rails_are_matching_pairs_of_a_whole_node():
    assignment = numa.assign(node(), want(8, 0, 1, 2, 3))
    assert assignment is not None
    assert (assignment.is_aligned, assignment.local, assignment.zones) == (True, 4, (0, 1))
    assert assignment.taken == node()


def test_four_gpus_with_the_rails_of_their_numa_node_are_in_it_alone():
    assignment = numa.assign(node(), want(4, 2, 3))
    assert assignment is not None
    assert (assignment.is_aligned, assignment.local, assignment.zones) == (True, 2, (1,))


def test_two_pods_of_four_gpus_with_the_same_shared_rails_are_not_both_local():
    shared = node(**{RESOURCES[0]: 100_000, RESOURCES[1]: 100_000})
    first, second = numa.assign_all(shared, want(4, 0, 1), limit=5)
    assert (first.is_aligned, first.local, first.zones) == (True, 2, (0,))
    assert (second.is_aligned, second.local, second.zones) == (False, 0, (0, 1))


def test_a_pool_over_both_numa_nodes_serves_two_pods_locally():
    assignments = numa.assign_all(node(ONE_POOL, **{POOL: 4000}), want(4, pool=2), limit=5)
    assert [(assignment.is_aligned, assignment.local, assignment.zones) for assignment in assignments] == [
        (True, 2, (0,)),
        (True, 2, (1,)),
    ]
    assert [left(assignment.taken, POOL) for assignment in assignments] == [[2], [2]]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (want(4, 0, 2), (True, 2)),  # 2 + 2 with a rail each: matching pairs
        (want(4, 0, 1), (False, 1)),  # both rails beside the first two GPUs, which are the share of one
        (want(4, 0, 1, 2, 3), (True, 4)),
        (want(2, 0, 1), (True, 2)),
        (want(3, 0, 1), (True, 2)),  # two of three GPUs are the share of two rails, rounded up
        (want(5, 0), None),
    ],
)
def test_a_pod_is_aligned_if_it_needs_only_the_free_half_of_a_numa_node(asked, expected):
    held = zones({GPU: 2, RESOURCES[0]: 1, RESOURCES[1]: 1}, {GPU: 2, RESOURCES[2]: 1, RESOURCES[3]: 1})
    assignment = numa.assign(held, asked)
    assert (assignment and (assignment.is_aligned, assignment.local)) == expected


def test_one_gpu_and_one_rail_are_together_or_not_aligned():
    assignment = numa.assign(node(), want(1, 3))
    assert assignment is not None
    assert (assignment.is_aligned, assignment.zones) == (True, (1,))
    away = numa.assign(zones({GPU: 4, RESOURCES[3]: 0}, {GPU: 0, RESOURCES[3]: 1}), want(1, 3))
    assert away == numa.NumaAssignment(False, 0, zones({GPU: 1}, {RESOURCES[3]: 1}), (0, 1))


def test_a_pod_completes_a_numa_node_before_it_takes_part_of_a_free_one():
    assignment = numa.assign(zones({GPU: 4}, {GPU: 2}, {GPU: 3}), want(2))
    assert assignment is not None
    assert assignment.zones == (1,)
    over_two = numa.assign(zones({GPU: 4}, {GPU: 4}, {GPU: 2}), want(6))
    assert over_two is not None
    assert over_two.zones == (0, 2)


def test_without_rails_accelerators_or_a_known_layout_a_pod_is_aligned():
    gpus, rails = numa.assign(node(), want(8)), numa.assign(node(), want(0, 0, 3))
    assert gpus is not None
    assert rails is not None
    assert (gpus.is_aligned, gpus.local, rails.is_aligned, rails.local) == (True, 0, True, 2)
    assert numa.assign((), want(8, 0, 1)) == numa.NumaAssignment(True, 2, (), ())


def test_a_resource_that_no_numa_node_names_does_not_count():
    assignment = numa.assign(zones({GPU: 4}, {GPU: 4}), want(4, 0, 1))
    assert assignment == numa.NumaAssignment(True, 2, zones({GPU: 4}), (0,))
    over_both = numa.assign(zones({GPU: 4}, {GPU: 4, RESOURCES[1]: 1}), want(8, 0, 1, 2))
    assert over_both is not None
    assert (over_both.is_aligned, over_both.local, over_both.zones) == (True, 3, (0, 1))


@given(st.lists(st.integers(0, 4), min_size=2, max_size=4), st.integers(1, 4), st.integers(0, 20))
def test_members_are_placed_until_the_next_does_not_fit(free, gpus, limit):
    held = zones(*({GPU: gpus_free} for gpus_free in free))
    assignments = numa.assign_all(held, want(gpus), limit)
    assert len(assignments) == min(limit, sum(free) // gpus)
    for assignment in assignments:
        held = numa.subtract_zones(held, assignment.taken)
    assert sum(left(held)) == sum(free) - gpus * len(assignments)


def test_numa_nodes_of_memory_alone_cost_nothing():
    """A GB200 node reports a NUMA node for every slice of its GPUs' memory; this took seconds."""
    free = [{GPU: 1000, RESOURCES[0]: 1000}, {GPU: 2000}, {GPU: 2000, RESOURCES[0]: 2000}, {GPU: 2000}, *[{}] * 32]
    zones = tuple(numa.Zone(node, tuple(sorted(here.items()))) for node, here in enumerate(free))
    want = numa.NumaDemand(accelerators=((GPU, 7000),), pools=((RESOURCES[0], 1000),))
    with cpu_time.limit(0.1):
        assignment = numa.assign(zones, want)
        left = numa.subtract_usage(zones, [{GPU: 7000, RESOURCES[0]: 3000}])
    assert assignment is not None
    assert assignment == numa.assign(zones[:4], want)
    assert left[:4] == numa.subtract_usage(zones[:4], [{GPU: 7000, RESOURCES[0]: 3000}])
