"""Memory of gangs between decisions: an immutable value that goes into a decision and comes out changed.

Everything else in a decision follows from the request, the cluster state and the assumed pods. The memory is small and
not persisted. Without it, after a restart, a gang that is being placed may get a plan with more bandwidth than its
placed peers can use. Two gangs that are placed at the same time may share a leaf that one could have had alone.

Its soft reservations keep a gang off the leaves planned for other gangs. Schedulers that place pod by pod interleave
the pods of two jobs. Without reservations each job takes half of the leaf that is tightest for both. A reservation
filters no node and lasts only while its gang has unplaced pods. A gang with a placed pod has a prior right: others plan
without its reserved nodes, as if it were placed already. Gangs without a prior right leave each other's reserved nodes
free, unless that would cost them bandwidth, node type, leaves or spines.

For example, leaves of 4, 3 and 2 nodes, and gangs a and b of 4 pods, which come in turns:

| pod | without a prior right | with it |
|---|---|---|
| a-0 | leaf of 4 | leaf of 4, which keeps 3 nodes there for a |
| b-0 | leaf of 4: 3 + 1 nodes are faster than 3 + 2 without it | leaf of 3 |
| a-1 | leaf of 4, with 2 nodes left for 3 pods | leaf of 4 |
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from railwright.fabric import topology
from railwright.fabric.placement.gangs import planner
from railwright.fabric.placement.nodes import node_evaluation
from railwright.fabric.placement.state import cluster_state, gang_status
from railwright.fabric.workloads import membership

_MAX_GANGS = 64  # most recently planned gangs; schedulers place one gang after the other
_MAX_DECISIONS = 256  # on other pods, after which a gang that has begun loses its prior right: it cannot grow now

ReservedNodes = Mapping[topology.Domain, int]
"""Leaf -> number of its nodes that are reserved for a gang."""


class GangMemory(msgspec.Struct, frozen=True):
    """Memory of one gang after the last decision on it."""

    reserved: ReservedNodes = {}  # for its unplaced pods; the leaf of the pod of the last decision comes last
    decision: int = 0  # number of this decision
    placed: int = 0  # number of peers placed when the plan was made
    bandwidth_of_placed: node_evaluation.Bandwidth = 1.0  # planned bandwidth of these peers
    planned_bandwidth: node_evaluation.Bandwidth = 1.0  # planned bandwidth of the others

    def get_bandwidth_of_placed(self, placed: int) -> node_evaluation.Bandwidth:
        """Return the planned bandwidth of this number of placed peers; 1 if none is placed.

        A plan's bandwidth limits the gang only after a pod has been placed by this plan.
        """
        if not placed:
            return 1.0
        return min(self.bandwidth_of_placed, self.planned_bandwidth if placed > self.placed else 1.0)


_UNKNOWN = GangMemory()


class PlacementMemory(msgspec.Struct, frozen=True):
    """Memory of the most recently planned gangs."""

    gangs: Mapping[membership.GangKey, GangMemory] = {}  # least recently planned first
    decisions: int = 0

    def get(self, gang: membership.GangKey) -> GangMemory:
        """Return the memory of a gang."""
        return self.gangs.get(gang, _UNKNOWN)

    def record(self, key: membership.GangKey, planned: GangMemory | None) -> "PlacementMemory":
        """Return the memory after a decision on a gang. Without a complete plan (None), the gang's reservation ends."""
        number = self.decisions + 1
        if not key or planned is None:
            return msgspec.structs.replace(self.drop_reservations([key]), decisions=number)
        gangs = {other: memory for other, memory in self.gangs.items() if other != key}
        if len(gangs) >= _MAX_GANGS:
            del gangs[next(iter(gangs))]
        return PlacementMemory({**gangs, key: msgspec.structs.replace(planned, decision=number)}, number)

    def drop_reservations(self, keys: Sequence[membership.GangKey]) -> "PlacementMemory":
        """Return the memory without the reservations of these gangs."""
        dropped = {
            key: msgspec.structs.replace(self.gangs[key], reserved={})
            for key in keys
            if key in self.gangs and self.gangs[key].reserved
        }
        return msgspec.structs.replace(self, gangs={**self.gangs, **dropped}) if dropped else self


EMPTY = PlacementMemory()


# --- soft reservations ----------------------------------------------------------------------------------------


class Reservations(NamedTuple):
    """The nodes reserved for other gangs, at most one for each of their unplaced pods."""

    prior: dict[membership.GangKey, ReservedNodes]  # for gangs with a prior right
    waiting: dict[membership.GangKey, ReservedNodes]  # for the others


def read_reservations(
    gang: membership.GangKey,
    devices: frozenset[str],
    memory: PlacementMemory,
    cluster: cluster_state.ClusterState,
) -> Reservations:
    """Return the nodes reserved for gangs other than `gang`.

    Only gangs that request any of `devices` have a prior right, because pods with other rails can share their nodes.
    """
    reservations = Reservations({}, {})
    for key, remembered in memory.gangs.items():
        left = gang_status.count_unplaced(key, cluster) if key != gang and remembered.reserved else 0
        if not left:
            continue
        is_recent = memory.decisions - remembered.decision <= _MAX_DECISIONS
        pods = cluster.get_gang(key)
        has_placed = bool(cluster.assumed.list_of_gang(key)) or left < len(pods)
        has_prior_right = (
            is_recent and has_placed and not all(devices.isdisjoint(pod.requests) for pod in pods.values())
        )
        nodes: dict[topology.Domain, int] = {}
        for leaf, count in remembered.reserved.items():
            nodes[leaf] = min(count, left)
            left -= nodes[leaf]
        (reservations.prior if has_prior_right else reservations.waiting)[key] = nodes
    return reservations


def exclude_reserved_nodes(capacity: planner.GangCapacity, reserved: Iterable[ReservedNodes]) -> planner.GangCapacity:
    """Return the capacity without the reserved nodes that have slots; all of it if no slot would be left."""
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


def reserve(
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


def avoid_reserved(
    plan: planner.Plan, reserved: Iterable[ReservedNodes], unplaced: int, capacity: planner.GangCapacity
) -> planner.Plan:
    """Return an equally good plan of a gang without placed pods, without the reserved nodes; else the given plan."""
    without = exclude_reserved_nodes(capacity, reserved)
    if without is capacity or not plan.is_complete:
        return plan
    alternative = planner.solve(unplaced, without)
    is_as_good = (
        alternative.is_complete
        and alternative.bandwidth >= plan.bandwidth
        and _count_domains(alternative) <= _count_domains(plan)
        and (plan.shape is None or alternative.shape is not None)
    )
    return alternative if is_as_good else plan


def _count_domains(plan: planner.Plan) -> tuple[int, ...]:
    """Return the number of leaves, of spines, and so on."""
    return tuple(len({leaf[level:] for leaf in plan.leaves}) for level in range(max(map(len, plan.leaves))))
