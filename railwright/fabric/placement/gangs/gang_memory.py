"""Remembers the plans of recent gangs: an immutable value that each decision gets, and returns with its own plan.

Everything else in a decision follows from the request, the cluster state and the assumed pods. The memory is small and
not persisted. Without it, after a restart, a gang that is being placed may get a plan with more bandwidth than its
placed peers can use. Two gangs that are placed at the same time may share a leaf that one could have had alone.

Schedulers that place pod by pod interleave the pods of two jobs, and each job would take half of the leaf that is
tightest for both. So a gang with a placed pod has a prior right: others plan without the nodes that are planned for its
other pods, as if these were placed already. No node is refused. The right ends with the unplaced pods of the gang.

For example, leaves of 4, 3 and 2 nodes, and gangs a and b of 4 pods, which come in turns:

| pod | without a prior right | with it |
|---|---|---|
| a-0 | leaf of 4 | leaf of 4, which keeps 3 nodes there for a |
| b-0 | leaf of 4: 3 + 1 nodes are faster than 3 + 2 without it | leaf of 3 |
| a-1 | leaf of 4, with 2 nodes left for 3 pods | leaf of 4 |
"""

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from railwright.fabric import topology
from railwright.fabric.placement.gangs import planner
from railwright.fabric.placement.nodes import node_evaluation
from railwright.fabric.placement.state import cluster_state, gang_status
from railwright.fabric.workloads import membership

_MAX_GANGS = 64  # most recently planned gangs; schedulers place one gang after the other

ReservedNodes = Mapping[topology.Domain, int]
"""Leaf -> number of its nodes that are planned for a gang. The leaf of the pod of the last decision comes last."""


class GangMemory(msgspec.Struct, frozen=True):
    """The nodes and the bandwidth that the last decision on a gang planned."""

    reserved: ReservedNodes = {}  # for its unplaced pods; empty without a complete plan
    placed: int = 0  # number of peers placed when the plan was made
    bandwidth_of_placed: node_evaluation.Bandwidth = 1.0  # planned bandwidth of these peers
    bandwidth: node_evaluation.Bandwidth = 1.0  # planned bandwidth of the others

    def get_bandwidth_of_placed(self, placed: int) -> node_evaluation.Bandwidth:
        """Return the planned bandwidth of this number of placed peers; 1 if none is placed.

        A plan's bandwidth limits the gang only after a pod has been placed by this plan.
        """
        if not placed:
            return 1.0
        return min(self.bandwidth_of_placed, self.bandwidth if placed > self.placed else 1.0)


Memory = Mapping[membership.GangKey, GangMemory]
"""The memory of the most recently planned gangs, the least recently planned first."""

EMPTY: Memory = {}
UNKNOWN = GangMemory()


def add_plan(memory: Memory, gang: membership.GangKey, planned: GangMemory) -> Memory:
    """Return the memory with the plan of a gang. A new gang without a complete plan is not added."""
    if not gang or (gang not in memory and not planned.reserved):
        return memory
    others = {key: remembered for key, remembered in memory.items() if key != gang}
    if len(others) >= _MAX_GANGS:
        del others[next(iter(others))]
    return {**others, gang: planned}


def list_reserved_nodes(
    gang: membership.GangKey, devices: frozenset[str], memory: Memory, cluster: cluster_state.ClusterState
) -> Mapping[membership.GangKey, ReservedNodes]:
    """Return gang -> nodes planned for it, of other partly placed gangs; at most one node for each unplaced pod.

    Only gangs that request any of `devices` count, because pods with other rails can share their nodes.
    """
    begun: dict[membership.GangKey, ReservedNodes] = {}
    for key, remembered in memory.items():
        left = gang_status.count_unplaced_pods(key, cluster) if key != gang and remembered.reserved else 0
        pods = cluster.get_gang(key)
        has_placed = left < len(pods) or bool(cluster.assumed.list_of_gang(key))
        if not left or not has_placed or all(devices.isdisjoint(pod.requests) for pod in pods.values()):
            continue
        begun[key] = nodes = dict[topology.Domain, int]()
        for leaf, count in remembered.reserved.items():
            nodes[leaf] = min(count, left)
            left -= nodes[leaf]
    return begun


def exclude_reserved_nodes(capacity: planner.GangCapacity, reserved: Iterable[ReservedNodes]) -> planner.GangCapacity:
    """Return the capacity without the reserved nodes that have slots; the whole capacity if no slot would be left."""
    left_by_leaf: Counter[topology.Domain] = Counter()
    for reserved_nodes in reserved:
        left_by_leaf.update(reserved_nodes)
    nodes = dict(capacity.nodes)
    for leaf in left_by_leaf.keys() & nodes.keys():
        left, counts = left_by_leaf[leaf], dict(nodes[leaf])
        for node_class in sorted(counts, key=lambda node_class: -len(node_class.slot_numa_factors)):
            removed = min(left, counts[node_class]) if node_class.slot_numa_factors else 0
            counts[node_class] -= removed
            left -= removed
        nodes[leaf] = counts
    reduced = msgspec.structs.replace(capacity, nodes=nodes)
    return reduced if nodes != capacity.nodes and reduced.count_slots() else capacity


def reserve_nodes(
    unplaced: int, plan: planner.Plan, capacity: planner.GangCapacity, target_leaf: topology.Domain | None
) -> ReservedNodes:
    """Return the nodes to reserve for the unplaced pods of a gang, including the requesting pod in `target_leaf`."""
    slots_per_node = max((len(node_class.slot_numa_factors) for node_class in capacity.classes), default=1)
    reserved: dict[topology.Domain, int] = {}
    for leaf in plan.leaves:
        share = min(unplaced, plan.slots_by_leaf[leaf])
        if share:
            reserved[leaf] = -(-share // max(1, slots_per_node))
        unplaced -= share
    return dict(sorted(reserved.items(), key=lambda item: item[0] == target_leaf))
