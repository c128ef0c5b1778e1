"""Soft reservations: keeps a gang off the leaves planned for other gangs, if that does not make its plan worse.

Schedulers that place pod by pod interleave the pods of two jobs. Without reservations each job takes half of the leaf
that is tightest for both. A reservation filters no node and lasts only while its gang has unplaced pods. It is ignored
if it would cost this gang bandwidth, node type, leaves or spines.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence

import msgspec

from railwright.fabric import topology
from railwright.fabric.placement.gangs import gang_status, planner
from railwright.fabric.placement.state import assumed_pods, cluster_state
from railwright.fabric.workloads import membership

_MAX_GANGS = 32  # most recently planned gangs

Nodes = Mapping[topology.Domain, int]
"""Leaf -> number of its nodes that are reserved for a gang."""


class SoftReservations:
    """The reservations of the most recently planned gangs."""

    def __init__(self, cluster: cluster_state.ClusterState, assumed: assumed_pods.AssumedPods) -> None:
        self._cluster = cluster
        self._assumed = assumed
        self._reserved: OrderedDict[membership.GangKey, Nodes] = OrderedDict()

    def reserve(self, gang: membership.GangKey, remaining: int, plan: planner.Plan, per_node: int) -> None:
        """Reserve the planned leaves for the unplaced pods of a gang, including the requesting pod."""
        self._reserved.pop(gang, None)
        if not gang or not plan.is_complete:
            return
        reserved: dict[topology.Domain, int] = {}
        for leaf in plan.leaves:
            share = min(remaining, plan.slots_by_leaf[leaf])
            if share:
                reserved[leaf] = -(-share // max(1, per_node))
            remaining -= share
        self._reserved[gang] = reserved
        if len(self._reserved) > _MAX_GANGS:
            self._reserved.popitem(last=False)

    def drop(self, gang: membership.GangKey) -> None:
        """Drop the reservation of a gang, after its scheduler rolled back."""
        self._reserved.pop(gang, None)

    def avoid_reserved(  # noqa: PLR0913, PLR0917 - one argument a fact
        self,
        gang: membership.GangKey,
        plan: planner.Plan,
        status: gang_status.GangStatus,
        capacity: planner.GangCapacity,
        peers: planner.PlacedPeers,
        leaf_by_node: Mapping[str, topology.Domain],
    ) -> planner.Plan:
        """Return an equally good plan that respects the reservations of other gangs, otherwise the given plan."""
        reserved = self._sum_reserved_by_others(gang)
        if reserved.keys().isdisjoint(plan.leaves) or not plan.is_complete:
            return plan
        leaves = {
            leaf: _remove_reserved(kinds, reserved.get(leaf, 0), capacity)
            for leaf, kinds in capacity.class_counts.items()
        }
        rest = msgspec.structs.replace(capacity, class_counts=leaves)
        alternative = planner.solve(status.remaining_slots, rest, peers)
        ring = [leaf_by_node.get(node, topology.NOWHERE) for _, _, node in status.placed_workers]
        if not alternative.is_complete or not _is_as_good(alternative, plan, ring):
            return plan
        return msgspec.structs.replace(
            alternative, min_leaves=plan.min_leaves, min_leaves_with_placed=plan.min_leaves_with_placed
        )

    def _sum_reserved_by_others(self, gang: membership.GangKey) -> Nodes:
        nodes: dict[topology.Domain, int] = {}
        for other, reserved in list(self._reserved.items()):
            if other == gang:
                continue
            waiting = sum(1 for _ in gang_status.list_unplaced(other, self._cluster, self._assumed))
            if not waiting:
                del self._reserved[other]
            for leaf, count in reserved.items():
                if waiting:
                    nodes[leaf] = nodes.get(leaf, 0) + min(count, waiting)
        return nodes


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
    leaves = {*plan.leaves, *peer_leaves} - {topology.NOWHERE}
    return tuple(len({leaf[level:] for leaf in leaves}) for level in range(max(map(len, leaves), default=0)))


def _remove_reserved(
    class_counts: Mapping[int, int], reserved: int, capacity: planner.GangCapacity
) -> Mapping[int, int]:
    """Remove `reserved` nodes with free slots from the leaf's class counts."""
    if not reserved:
        return class_counts
    left = dict(class_counts)
    for node_class in sorted(left, key=lambda node_class: -len(capacity.node_capacities[node_class].slot_numa_factors)):
        if capacity.node_capacities[node_class].slot_numa_factors:
            removed = min(reserved, left[node_class])
            left[node_class] -= removed
            reserved -= removed
    return left
