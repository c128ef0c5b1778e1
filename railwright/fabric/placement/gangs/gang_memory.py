"""Memory of gangs between decisions: an immutable value that goes into a decision and comes out changed.

Everything else in a decision follows from the request, the cluster state and the assumed pods. The memory is small and
not persisted. Without it, after a restart, a gang that is being placed may get a plan with more bandwidth than its
placed peers can use, and two gangs that are placed at the same time may share a leaf that one could have had alone.

Its soft reservations keep a gang off the leaves planned for other gangs. Schedulers that place pod by pod interleave
the pods of two jobs. Without reservations each job takes half of the leaf that is tightest for both. A reservation
filters no node and lasts only while its gang has unplaced pods. A gang with a placed pod has a prior right: others plan
without its reserved nodes, as if it were placed already. The reservation of a gang without one is ignored if it would
cost this gang bandwidth, node type, leaves or spines.

For example, leaves of 4, 3 and 2 nodes, and gangs a and b of 4 pods, which come in turns:

| pod | without a prior right | with it |
|---|---|---|
| a-0 | leaf of 4 | leaf of 4, which keeps 3 nodes there for a |
| b-0 | leaf of 4: 3 + 1 nodes are faster than 3 + 2 without it | leaf of 3 |
| a-1 | leaf of 4, with 2 nodes left for 3 pods | leaf of 4 |
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from railwright.fabric import topology
from railwright.fabric.placement.gangs import gang_capacity, planner
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
    devices: frozenset[str] = frozenset()  # resources of the rails, or else accelerators, that its pods take
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
        """Return the memory after a decision on a gang. Without a complete plan (None), its reservation ends."""
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
    """The reservations of other gangs."""

    begun: Sequence[membership.GangKey]  # gangs with a prior right
    prior: ReservedNodes  # nodes reserved for the gangs in `begun`
    waiting: ReservedNodes  # nodes reserved for the other gangs
    ended: Sequence[membership.GangKey]  # gangs without unplaced pods


def read_reservations(
    gang: membership.GangKey,
    devices: frozenset[str],
    memory: PlacementMemory,
    cluster: cluster_state.ClusterState,
) -> Reservations:
    """Return the nodes reserved for gangs other than `gang`, at most one for each of their unplaced pods.

    Only gangs that use any of `devices` have a prior right, because pods with other rails can share their nodes.
    """
    begun: list[membership.GangKey] = []
    ended: list[membership.GangKey] = []
    prior: dict[topology.Domain, int] = {}
    waiting: dict[topology.Domain, int] = {}
    for key, remembered in memory.gangs.items():
        if not remembered.reserved:
            continue
        left = gang_status.count_unplaced(key, cluster)
        if not left:
            ended.append(key)
        elif key != gang:
            is_recent = memory.decisions - remembered.decision <= _MAX_DECISIONS
            has_placed = bool(cluster.assumed.list_of_gang(key)) or left < len(cluster.get_gang(key))
            has_begun = is_recent and has_placed and not devices.isdisjoint(remembered.devices)
            if has_begun:
                begun.append(key)
            nodes = prior if has_begun else waiting
            for leaf, count in remembered.reserved.items():
                taken = min(count, left)
                left -= taken
                nodes[leaf] = nodes.get(leaf, 0) + taken
    return Reservations(begun, prior, waiting, ended)


def exclude_reserved_nodes(capacity: gang_capacity.GangCapacity, prior: ReservedNodes) -> gang_capacity.GangCapacity:
    """Return the capacity without the nodes of gangs with a prior right; all of it if no slot would be left."""
    if prior.keys().isdisjoint(capacity.nodes):
        return capacity
    reduced = _remove_nodes(capacity, prior)
    return reduced if reduced.count_slots() else capacity


def reserve(
    remaining_slots: int, plan: planner.Plan, capacity: gang_capacity.GangCapacity, target_leaf: topology.Domain | None
) -> ReservedNodes:
    """Return the nodes to reserve for the unplaced pods of a gang, including the requesting pod in `target_leaf`."""
    slots_per_node = max((len(node_class.slot_numa_factors) for node_class in capacity.classes), default=1)
    reserved: dict[topology.Domain, int] = {}
    for leaf in plan.leaves:
        share = min(remaining_slots, plan.slots_by_leaf[leaf])
        if share:
            reserved[leaf] = -(-share // max(1, slots_per_node))
        remaining_slots -= share
    return dict(sorted(reserved.items(), key=lambda item: item[0] == target_leaf))


def avoid_reserved(
    plan: planner.Plan,
    reserved: ReservedNodes,
    remaining_slots: int,
    capacity: gang_capacity.GangCapacity,
    peers: planner.PlacedPeers,
) -> planner.Plan:
    """Return an equally good plan without the reserved nodes, otherwise the given plan."""
    if reserved.keys().isdisjoint(plan.leaves) or not plan.is_complete:
        return plan
    alternative = planner.solve(remaining_slots, _remove_nodes(capacity, reserved), peers)
    return alternative if alternative.is_complete and _is_as_good(alternative, plan, peers.ring) else plan


def _is_as_good(alternative: planner.Plan, plan: planner.Plan, peer_leaves: Sequence[topology.Domain]) -> bool:
    """True if `alternative` is as good as `plan`. `peer_leaves` are the leaves of the placed peers by rank."""
    return (
        alternative.bandwidth >= plan.bandwidth
        and _count_domains(alternative, peer_leaves) <= _count_domains(plan, peer_leaves)
        and _count_returns(alternative, peer_leaves) <= _count_returns(plan, peer_leaves)
        and (plan.shape is None or alternative.shape is not None)
    )


def _count_returns(plan: planner.Plan, peer_leaves: Sequence[topology.Domain]) -> int:
    """Return how often the ring re-enters a domain, if the planned leaves follow those of the peers in order."""
    order = [*peer_leaves, *plan.leaves]
    returns = 0
    for level in range(max(map(len, order), default=0)):
        domains = [leaf[level:] for leaf in order]
        entered = sum(here != before for before, here in zip([domains[-1], *domains[:-1]], domains, strict=True))
        returns += max(0, entered - len(set(domains)))
    return returns


def _count_domains(plan: planner.Plan, peer_leaves: Sequence[topology.Domain]) -> tuple[int, ...]:
    """Return the number of leaves, of spines, and so on, that the gang would use, including those of its peers."""
    leaves = {*plan.leaves, *peer_leaves} - {topology.NO_DOMAIN}
    return tuple(len({leaf[level:] for leaf in leaves}) for level in range(max(map(len, leaves), default=0)))


def _remove_nodes(capacity: gang_capacity.GangCapacity, reserved: ReservedNodes) -> gang_capacity.GangCapacity:
    """Remove the reserved nodes with free slots from the class counts of each leaf, those with most slots first."""
    nodes = dict(capacity.nodes)
    for leaf in reserved.keys() & nodes.keys():
        left, counts = reserved[leaf], dict(nodes[leaf])
        for node_class in sorted(counts, key=lambda node_class: -len(node_class.slot_numa_factors)):
            removed = min(left, counts[node_class]) if node_class.slot_numa_factors else 0
            counts[node_class] -= removed
            left -= removed
        nodes[leaf] = counts
    return msgspec.structs.replace(capacity, nodes=nodes)
