"""NUMA nodes: their devices, the free ones (interface.md 7.4), and pods with rails local to their GPUs."""

import itertools
import operator

import call_counts
import msgspec
import placing
import pytest
from hypothesis import given
from hypothesis import strategies as st
from placing import GPU, RAILS, RESOURCES, TWO_SIDED, build_cluster, build_report, build_topology

from extender import state as states
from railwright.cluster import snapshots
from railwright.fabric import node_views, resources, views
from railwright.fabric.placement import scheduling_request
from railwright.fabric.placement.nodes import node_index, numa
from railwright.fabric.policy import model

POOL = "rdma/hca"
EACH = [model.Rail(name=name, resource=resource) for name, resource in zip(RAILS, RESOURCES, strict=True)]
ONE_POOL = [model.Rail(name=name, resource=POOL) for name in RAILS]
FULL = {"cpu": 128_000, GPU: 8000, **dict.fromkeys(RESOURCES, 1000)}


def build_shape_zones(rails=EACH, **more):
    return numa.build_zones_from_shape(TWO_SIDED, rails, {**FULL, **more}, [GPU])


def build_zones(*free):
    """Return zones with these devices: build_zones({GPU: 4, rail: 1}, ...)."""
    amounts = ({name: count * 1000 for name, count in here.items()} for here in free)
    return tuple(numa.Zone(number, resources.freeze_amounts(here)) for number, here in enumerate(amounts))


def build_demand(gpus, *rails, pool=0):
    rails = {RESOURCES[rail]: 1 for rail in rails} | ({POOL: pool} if pool else {})
    pools = tuple((name, count * 1000) for name, count in rails.items())
    return scheduling_request.Demand(((GPU, gpus * 1000),) if gpus else (), pools)


def pod(gpus, *rails, pool=0):
    asked = build_demand(gpus, *rails, pool=pool)
    return dict((*asked.accelerators, *asked.pools), cpu=4000)


def count_free(free_zones, resource=GPU):
    return [zone.free.get(resource, -1000) // 1000 for zone in free_zones]


GONE = numa.build_zones_from_shape(TWO_SIDED, EACH, {GPU: 8000, **dict.fromkeys(RESOURCES[:3], 1000)}, [GPU])
HALF = build_zones({GPU: 2, RESOURCES[0]: 1, RESOURCES[1]: 1}, {GPU: 2, RESOURCES[2]: 1, RESOURCES[3]: 1})


# --- where devices are ------------------------------------------------------------------------------------


def test_a_shape_assigns_gpus_and_rails_to_numa_nodes():
    assert build_shape_zones() == build_zones(
        {GPU: 4, RESOURCES[0]: 1, RESOURCES[1]: 1}, {GPU: 4, RESOURCES[2]: 1, RESOURCES[3]: 1}
    )


def test_a_pool_of_virtual_functions_is_divided_between_numa_nodes_by_their_rails():
    assert count_free(build_shape_zones(ONE_POOL, **{POOL: 8000}), POOL) == [4, 4]
    three_to_one = msgspec.structs.replace(
        TWO_SIDED,
        numa=(
            model.NumaNode(gpus=(0,), rails=("rail0", "rail1", "rail2")),
            model.NumaNode(gpus=(4,), rails=("rail3",)),
        ),
    )
    built_zones = numa.build_zones_from_shape(three_to_one, ONE_POOL, {**FULL, POOL: 7000}, [GPU])
    assert [(zone.node, zone.free[POOL]) for zone in built_zones] == [(0, 5000), (1, 2000)]


def test_a_dead_rail_is_listed_without_free_devices():
    assert count_free(build_shape_zones(**{RESOURCES[3]: 0}), RESOURCES[3]) == [-1, 0]
    assert count_free(GONE, RESOURCES[3]) == [-1, 0]


def test_a_report_gives_the_available_devices_of_its_numa_nodes_and_of_no_other_zone():
    exported = build_topology({GPU: (4, 1), "cpu": (64, 2)}, {GPU: (4, -1), RESOURCES[2]: (1, 1)})
    other = [{"name": name, "resources": [{"name": GPU, "available": "8"}]} for name in ("socket-0", "node-0")]
    tree = msgspec.to_builtins(exported)
    zones_ = [{**other[0], "type": "Node"}, {**other[1], "type": "Socket"}, *tree["zones"][::-1]]
    with_socket = msgspec.convert({**tree, "zones": zones_}, node_views.NodeResourceTopology)
    names = {GPU, *RESOURCES}
    assert numa.read_zones(exported, names, only_free=True) == build_zones({GPU: 1}, {GPU: 0, RESOURCES[2]: 1})
    assert numa.read_zones(with_socket, names, only_free=True) == numa.read_zones(exported, names, only_free=True)
    assert count_free(numa.read_zones(exported, names, only_free=False)) == [4, 4]
    assert numa.read_zones(exported, {"amd.com/gpu"}, only_free=True) == ()


def test_resources_missing_from_a_report_come_from_the_shape():
    reported = build_zones({GPU: 1}, {GPU: 4})
    assert numa.add_missing_resources(reported, build_shape_zones()) == build_zones(
        {GPU: 1, RESOURCES[0]: 1, RESOURCES[1]: 1}, {GPU: 4, RESOURCES[2]: 1, RESOURCES[3]: 1}
    )


# --- what is taken ----------------------------------------------------------------------------------------


def test_a_pod_with_gpus_but_no_rails_is_charged_to_the_numa_node_of_the_lowest_number_with_room():
    assert count_free(numa.subtract_usage(build_shape_zones(), [pod(4)])) == [0, 4]
    assert count_free(numa.subtract_usage(build_shape_zones(), [pod(3), pod(2)])) == [1, 2]


def test_pods_with_rails_on_one_numa_node_are_charged_first():
    assert count_free(numa.subtract_usage(build_shape_zones(), [pod(4), pod(2, 0)])) == [2, 0]
    assert count_free(numa.subtract_usage(build_shape_zones(), [pod(2, 0), pod(4)])) == [2, 0]


def test_a_pod_over_two_numa_nodes_is_charged_gpus_and_rails_of_the_same_numa_nodes_first():
    assert count_free(numa.subtract_usage(build_shape_zones(), [pod(4, 0, 2)])) == [2, 2]
    assert count_free(numa.subtract_usage(build_shape_zones(), [pod(6, 0, 1, 2)])) == [0, 2]
    three_left = numa.subtract_usage(build_shape_zones(), [pod(1)])
    assert count_free(numa.subtract_usage(three_left, [pod(5, 0, 1)])) == [0, 2]
    from_pool = numa.subtract_usage(build_shape_zones(ONE_POOL, **{POOL: 4000}), [pod(8, pool=4)])
    assert (count_free(from_pool), count_free(from_pool, POOL)) == ([0, 0], [0, 0])


AMOUNTS = st.builds(
    pod, st.integers(0, 8), st.sampled_from(range(4)), st.sampled_from(range(4)), pool=st.integers(0, 3)
)


@given(st.lists(AMOUNTS, max_size=6), st.randoms(use_true_random=False))
def test_the_charged_devices_are_the_requested_ones_in_any_order_of_pods(held, chance):
    rails = [*EACH, model.Rail(name="more", resource=POOL)]
    shape = msgspec.structs.replace(
        TWO_SIDED,
        numa=(*TWO_SIDED.numa, model.NumaNode(rails=("more",))),
    )
    before = numa.build_zones_from_shape(shape, rails, {**FULL, POOL: 3000}, [GPU])
    before = tuple(
        numa.Zone(zone.node, resources.freeze_amounts({**zone.free, POOL: 2000})) if zone.node else zone
        for zone in before
    )
    after = numa.subtract_usage(before, held)
    for name in (GPU, POOL, *RESOURCES):
        had, has = (sum(zone.free.get(name, 0) for zone in node_zones) for node_zones in (before, after))
        assert had - has == min(had, sum(grant.get(name, 0) for grant in held))
    assert all(amount >= 0 for zone in after for amount in zone.free.values())
    mixed = list(held)
    chance.shuffle(mixed)
    assert numa.subtract_usage(before, mixed) == after


# --- where a pod goes -------------------------------------------------------------------------------------


PLACES = {  # free devices by NUMA node, a pod, and: how many rails are local, on which NUMA nodes
    "a whole node, in matching pairs": (build_shape_zones(), build_demand(8, 0, 1, 2, 3), (4, (0, 1))),
    "rails of one NUMA node": (build_shape_zones(), build_demand(4, 2, 3), (2, (1,))),
    "a GPU away from the only free rail": (
        build_zones({GPU: 4}, {GPU: 0, RESOURCES[3]: 1}),
        build_demand(1, 3),
        (0, (0, 1)),
    ),
    "two and two GPUs, with a rail each": (HALF, build_demand(4, 0, 2), (2, (0, 1))),
    "both rails beside two GPUs, which are the share of one": (HALF, build_demand(4, 0, 1), (1, (0, 1))),
    "two of three GPUs are the share of two rails, rounded up": (HALF, build_demand(3, 0, 1), (2, (0, 1))),
    "all rails, of which one is dead": (GONE, build_demand(8, 0, 1, 2, 3), None),
    "a partly used NUMA node before a free one": (
        build_zones({GPU: 4}, {GPU: 2}, {GPU: 3}),
        build_demand(2),
        (0, (1,)),
    ),
    "no accelerators": (build_shape_zones(), build_demand(0, 0, 3), (2, (0, 1))),
    "an unknown layout": ((), build_demand(8, 0, 1), (2, ())),
    "rails that no NUMA node names": (build_zones({GPU: 4}, {GPU: 4}), build_demand(4, 0, 1), (2, (0,))),
    "a rail that one NUMA node names": (
        build_zones({GPU: 4}, {GPU: 4, RESOURCES[1]: 1}),
        build_demand(8, 0, 1, 2),
        (3, (0, 1)),
    ),
}


@pytest.mark.parametrize(("free", "asked", "expected"), PLACES.values(), ids=PLACES)
def test_rails_are_local_if_their_numa_node_has_its_share_of_the_gpus(free, asked, expected):
    assignment = numa.assign_pod(free, asked)
    assert (assignment and (assignment.local, assignment.zones)) == expected


@given(st.lists(st.integers(0, 4), min_size=2, max_size=4), st.integers(1, 4), st.integers(0, 20))
def test_numa_nodes_are_filled_until_the_next_pod_does_not_fit(free, gpus, limit):
    held = build_zones(*({GPU: gpus_free} for gpus_free in free))
    assignments = numa.assign_pods(held, build_demand(gpus), limit)
    assert len(assignments) == min(limit, sum(free) // gpus)
    for assignment in assignments:
        held = numa.subtract_zones(held, assignment.taken)
    assert sum(count_free(held)) == sum(free) - gpus * len(assignments)


def test_numa_nodes_without_devices_change_neither_result_nor_cost():
    """A GB200 node reports a NUMA node for every slice of its GPUs' memory."""
    free = [{GPU: 1000, RESOURCES[0]: 1000}, {GPU: 2000}, {GPU: 2000, RESOURCES[0]: 2000}, {GPU: 2000}, *[{}] * 8]
    zones = tuple(numa.Zone(node, resources.freeze_amounts(here)) for node, here in enumerate(free))
    want = scheduling_request.Demand(accelerators=((GPU, 7000),), pools=((RESOURCES[0], 1000),))
    usage = [{GPU: 7000, RESOURCES[0]: 3000}]
    assert numa.assign_pod(zones, want) == numa.assign_pod(zones[:4], want)
    assert numa.subtract_usage(zones, usage)[:4] == numa.subtract_usage(zones[:4], usage)

    def count_calls(zones):
        return call_counts.count(lambda: (numa.assign_pod(zones, want), numa.subtract_usage(zones, usage)))

    assert count_calls(zones) < 2 * count_calls(zones[:4])


# --- free devices by NUMA node: kubelet's report if it includes the last binding, else bound pods -------------


def report(*gpus, written="", rails=(), name="n1"):
    return build_report(*gpus, written=written, rails=[rails] * len(gpus), name=name)


def bound(name, gpus, at="", *, rails=0, on="n1"):
    new_pod = placing.build_pod(name, gpus=gpus, rails=rails, on=on)
    conditions = [views.PodCondition(type="PodScheduled", status="True", last_transition_time=at)] if at else []
    return msgspec.structs.replace(new_pod, status=views.PodStatus(phase="Running", conditions=conditions))


def list_free(cluster, shape=TWO_SIDED, others=(), resource=GPU, absent=()):
    for number, requests in enumerate(others):
        cluster.assumed.assume(
            placing.build_assumed_pod(placing.build_pod(f"announced-{number}"), "n1", requests=requests)
        )
    policy = placing.build_policy(shapes=[shape] if shape else ())
    request = placing.build_request(placing.build_pod("asked"), ["n1"], policy)
    states = node_index.NodeStates(cluster, request.fabric, policy.document)
    zones = states.read_state("n1", absent).zones
    return [zone.free.get(resource, -1000) // 1000 for zone in zones]


def build_reported_cluster(*pods, topology_report=None):
    cluster = build_cluster([placing.build_node("n1")], pods)
    if topology_report:
        cluster.upsert_topology(topology_report)
    return cluster


A, UNTIMED = bound("a", 2, "2026-11-21T10:00:00Z"), bound("a", 2)
OLD, NEW = bound("a", 1, "2026-11-21T09:00:00Z"), bound("b", 1, "2026-11-21T11:00:00Z")
CPU_ONLY = bound("c", 0, "2026-11-21T11:00:00Z")
ANNOUNCED = [{GPU: 1000}]
BINDINGS = {  # bound pods, free GPUs of the report and its time, announced pods: free GPUs
    "written after the second of the last binding": ([A], (4, 2), "2026-11-21T10:00:01Z", [], [4, 2]),
    "written in this second, maybe before": ([A], (4, 2), "2026-11-21T10:00:00Z", [], [2, 4]),
    "written before the last binding": ([A], (4, 2), "2026-11-21T09:59:59Z", [], [2, 4]),
    "written before a pod without such devices": ([OLD, CPU_ONLY], (3, 3), "2026-11-21T10:00:00Z", [], [3, 3]),
    "less in use than is bound": ([A], (4, 3), "2026-11-21T12:00:00Z", [], [2, 4]),
    "no times, and the bound devices are in use": ([UNTIMED], (4, 2), "", [], [4, 2]),
    "no times, and they are not": ([UNTIMED], (4, 4), "", [], [2, 4]),
    "no time of the report": ([A], (4, 2), "", [], [4, 2]),
    "announced since a report that counts": ([A], (4, 2), "2026-11-21T10:00:01Z", ANNOUNCED, [3, 2]),
    "announced, without a report": ([A], (), "", iter(ANNOUNCED), [1, 4]),
}


@pytest.mark.parametrize(("pods", "gpus", "written", "announced", "expected"), BINDINGS.values(), ids=BINDINGS)
def test_a_topology_report_is_used_only_if_it_includes_the_last_binding(pods, gpus, written, announced, expected):
    topology_report = report(*gpus, written=written) if gpus else None
    cluster = build_reported_cluster(*pods, topology_report=topology_report)
    assert list_free(cluster, others=announced) == expected


def test_a_topology_report_that_lacks_a_bound_pod_is_ignored():
    """It does not show which of the devices in use that pod has."""
    cluster = build_reported_cluster(A, topology_report=report(2, 4, written="2026-11-21T10:00:01Z"))
    assert list_free(cluster) == [2, 4]
    assert list_free(cluster, absent=["uid-a"]) == [4, 4]


def test_without_a_shape_bound_pods_are_subtracted_from_the_allocatable_of_an_old_report():
    old = report(4, 4, written="2026-11-21T09:00:00Z")
    assert list_free(build_reported_cluster(A, topology_report=old), shape=None) == [2, 4]
    assert list_free(build_reported_cluster(A), shape=None) == []


def test_a_null_time_of_the_api_server_is_read_as_missing():
    status = {"conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": None}]}
    assert msgspec.json.decode(msgspec.json.encode(status), type=views.PodStatus).bound_at == ""
    fields = {"metadata": {"managedFields": [{"time": None, "fieldsV1": {"f:zones": {}}}]}, "zones": None}
    assert msgspec.json.decode(msgspec.json.encode(fields), type=node_views.NodeResourceTopology).written_at == ""


SNAPSHOT = """\
apiVersion: topology.node.k8s.io/v1alpha2
kind: NodeResourceTopology
metadata:
  name: n1
  managedFields: [{time: 2026-11-21T10:00:01Z, fieldsType: FieldsV1, fieldsV1: {"f:zones": {}}}]
topologyPolicies: []
attributes: [{name: topologyManagerPolicy, value: restricted}]
zones:
- name: node-0
  type: Node
  costs: [{name: node-0, value: 10}]
  resources:
  - {name: nvidia.com/gpu, capacity: "4", allocatable: 4, available: "1"}
- {name: node-1, type: Node, resources: null}
---
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {nvidia.com/gpu: 4}}
"""


def test_a_topology_report_of_a_snapshot_is_used_until_it_is_removed():
    topology_report = snapshots.read(SNAPSHOT)
    state = states.State()
    sinks = {watch.kind.snapshot_kind: watch.sink for watch in states.list_watches(state)}
    sinks["Node"].replace(topology_report["Node"])
    sink = sinks["NodeResourceTopology"]
    sink.replace(topology_report["NodeResourceTopology"])
    [reported] = topology_report["NodeResourceTopology"]
    assert reported.written_at == "2026-11-21T10:00:01Z"
    assert list_free(state.cluster) == [1, -1]
    sink.remove(reported)
    assert list_free(state.cluster) == [2, 2]
    sink.upsert(reported)
    assert list_free(state.cluster) == [1, -1]


# --- an assignment to several NUMA nodes against every possible one -----------------------------------------


def count_local(gpus, rails):
    """Return the number of local rails by their definition, for the GPUs and rails of each NUMA node."""
    all_gpus, all_rails = sum(gpus), sum(rails)
    if not all_gpus or not all_rails:
        return all_rails
    return sum(min(rail, -(-gpu * all_rails // all_gpus)) for gpu, rail in zip(gpus, rails, strict=True))


def build_places(gpus, rails):
    """Return NUMA nodes with these GPUs, and a device of each rail on the NUMA node that `rails` has for it."""
    return build_zones(
        *(
            {GPU: free} | {RESOURCES[rail]: 1 for rail, at in enumerate(rails) if at == place}
            for place, free in enumerate(gpus)
        )
    )


@given(st.lists(st.integers(0, 3), min_size=2, max_size=5), st.lists(st.integers(0, 4), max_size=4), st.integers(1, 9))
def test_an_assignment_has_the_most_local_rails_on_the_fewest_numa_nodes(free, rails, gpus):
    rails = [at % len(free) for at in rails]
    assignment = numa.assign_pod(build_places(free, rails), build_demand(gpus, *range(len(rails))))
    if sum(free) < gpus:
        assert assignment is None
        return
    rails_here = [rails.count(place) for place in range(len(free))]
    splits = [taken for taken in itertools.product(*(range(most + 1) for most in free)) if sum(taken) == gpus]
    local, unused = max(
        (count_local(taken, rails_here), -sum(map(bool, map(operator.or_, taken, rails_here)))) for taken in splits
    )
    assert (assignment.local, len(assignment.zones)) == (local, -unused)


@given(
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 8)), min_size=1, max_size=4),
    st.integers(0, 400),
    st.integers(0, 8),
)
def test_shares_of_gpus_and_functions_of_a_pool_are_assigned_where_they_are_free(free, gpus, pool):
    """A GPU can have hundreds of shares, which must not be assigned one by one."""
    assignment = numa.assign_pod(
        build_zones(*({GPU: gpu, POOL: rail} for gpu, rail in free)), build_demand(gpus, pool=pool)
    )
    has_room = all(sum(column) >= needed for column, needed in zip(zip(*free, strict=True), (gpus, pool), strict=True))
    assert (assignment is not None) == has_room
    if assignment is None:
        return
    taken = {zone.node: (zone.free.get(GPU, 0) // 1000, zone.free.get(POOL, 0) // 1000) for zone in assignment.taken}
    assert all(gpu <= free[node][0] and rail <= free[node][1] for node, (gpu, rail) in taken.items())
    gpus_here, rails_here = ([row[side] for row in taken.values()] for side in (0, 1))
    assert (sum(gpus_here), sum(rails_here)) == (gpus, pool)
    assert assignment.local == count_local(gpus_here, rails_here)
