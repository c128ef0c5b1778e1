"""Soft reservations: keeps a gang off the leaves planned for other gangs, if that does not make its plan worse.

Schedulers that place pod by pod interleave the pods of two jobs. Without reservations each job takes half of the leaf
that is tightest for both. A reservation filters no node and lasts only while its gang has unplaced pods. It is ignored
if it would cost this gang bandwidth, node type, leaves or spines.
"""

from collections.abc import Mapping, Sequence

import msgspec

from railwright.fabric import topology
from railwright.fabric.placement.gangs import gang_capacity, gang_memory, planner
from railwright.fabric.placement.nodes import node_classes
from railwright.fabric.placement.state import assumed_pods, cluster_state, placed_peers
from railwright.fabric.workloads import membership


def list_finished(
    memory: gang_memory.PlacementMemory, cluster: cluster_state.ClusterState, assumed: assumed_pods.Assumptions
) -> list[membership.GangKey]:
    """Return the gangs with a reservation that have no unplaced pod any more."""
    return [
        key
        for key, remembered in memory.gangs.items()
        if remembered.reserved and not any(True for _ in placed_peers.list_unplaced(key, cluster, assumed))
    ]


def sum_reserved_by_others(
    gang: membership.GangKey,
    memory: gang_memory.PlacementMemory,
    cluster: cluster_state.ClusterState,
    assumed: assumed_pods.Assumptions,
) -> gang_memory.ReservedNodes:
    """Return the nodes reserved for other gangs, at most one for each of their unplaced pods in a leaf."""
    nodes: dict[topology.Domain, int] = {}
    for key, remembered in memory.gangs.items():
        if key == gang or not remembered.reserved:
            continue
        unplaced = sum(1 for _ in placed_peers.list_unplaced(key, cluster, assumed))
        for leaf, count in remembered.reserved.items() if unplaced else ():
            nodes[leaf] = nodes.get(leaf, 0) + min(count, unplaced)
    return nodes


def reserve(remaining_slots: int, plan: planner.Plan, slots_per_node: int) -> gang_memory.ReservedNodes:
    """Return the nodes to reserve for the unplaced pods of a gang, including the requesting pod."""
    reserved: dict[topology.Domain, int] = {}
    for leaf in plan.leaves:
        share = min(remaining_slots, plan.slots_by_leaf[leaf])
        if share:
            reserved[leaf] = -(-share // max(1, slots_per_node))
        remaining_slots -= share
    return reserved


def avoid_reserved(
    plan: planner.Plan,
    reserved: gang_memory.ReservedNodes,
    remaining_slots: int,
    capacity: gang_capacity.GangCapacity,
    peers: planner.PlacedPeers,
) -> planner.Plan:
    """Return an equally good plan without the reserved nodes, otherwise the given plan."""
    if reserved.keys().isdisjoint(plan.leaves) or not plan.is_complete:
        return plan
    nodes = {leaf: _remove_reserved(counts, reserved.get(leaf, 0)) for leaf, counts in capacity.nodes.items()}
    alternative = planner.solve(remaining_slots, msgspec.structs.replace(capacity, nodes=nodes), peers)
    if not alternative.is_complete or not _is_as_good(alternative, plan, peers.ring):
        return plan
    return msgspec.structs.replace(
        alternative, min_leaves=plan.min_leaves, min_leaves_with_placed=plan.min_leaves_with_placed
    )


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


def _remove_reserved(
    counts: Mapping[node_classes.NodeClass, int], reserved: int
) -> Mapping[node_classes.NodeClass, int]:
    """Remove `reserved` nodes with free slots from the class counts of a leaf."""
    if not reserved:
        return counts
    left = dict(counts)
    for node_class in sorted(left, key=lambda node_class: -len(node_class.capacity.slot_numa_factors)):
        if node_class.capacity.slot_numa_factors:
            removed = min(reserved, left[node_class])
            left[node_class] -= removed
            reserved -= removed
    return left
