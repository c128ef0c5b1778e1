"""Plans the gang of a request: reuses or solves its plan, reserves leaves, and finds the target leaf of the pod's rank.

The result has the plan, its summary for locality scores, and the memory of gangs after this decision.
"""

from collections import Counter
from typing import NamedTuple

import msgspec

from railwright.fabric import topology
from railwright.fabric.placement.gangs import (
    gang_capacity,
    gang_memory,
    gang_status,
    peer_summary,
    plan_cache,
    planner,
    rank_order,
    single_pods,
    soft_reservations,
)
from railwright.fabric.placement.nodes import node_slots, request_view
from railwright.fabric.placement.nodes.terms import locality
from railwright.fabric.placement.state import assumed_pods, cluster_state
from railwright.fabric.workloads import membership


class PlannedGang(NamedTuple):
    """A gang's plan, its summary for scoring, and the memory after it."""

    plan: planner.Plan
    summary: locality.GangSummary
    memory: gang_memory.PlacementMemory
    begun: tuple[membership.GangKey, ...] = ()  # other gangs, for whose pods nodes are kept
    capacity: gang_capacity.GangCapacity | None = None  # without these nodes; None without a plan


class _Target(NamedTuple):
    """The target leaf of the requesting pod's rank, and the plan that it follows from."""

    leaf: topology.Domain | None  # None if no planned leaf has a free slot
    plan: planner.Plan


class GangPlanner:
    """Plans the gangs of one cluster. Caches their plans between requests."""

    def __init__(self, cluster: cluster_state.ClusterState, assumed: assumed_pods.AssumedPods) -> None:
        self._cluster = cluster
        self._plans = plan_cache.PlanCache(cluster, assumed)

    def plan(
        self,
        gang: gang_status.GangStatus,
        view: request_view.RequestView,
        memory: gang_memory.PlacementMemory,
        assumed: assumed_pods.Assumptions,
    ) -> PlannedGang:
        """Plan the unplaced pods of a gang. `memory` is that of the last decision."""
        summary = _summarize_unplanned(gang, view)
        if not view.request.domains:
            return PlannedGang(planner.NO_PLAN, msgspec.structs.replace(summary, has_domains=False), memory)
        memory = memory.drop_reservations(soft_reservations.list_finished(memory, self._cluster, assumed))
        devices = _list_devices(view)
        others = soft_reservations.list_others(view.request.gang, devices, memory, self._cluster, assumed)
        prior = soft_reservations.sum_reserved(others.begun, memory, self._cluster, assumed)
        preferred = single_pods.choose_nodes(view) if view.index.signature.is_single_pod else None
        whole = gang_capacity.build(view) if preferred is None else preferred.capacity
        capacity = soft_reservations.keep_off(whole, prior)
        bandwidth = memory.get(view.request.gang).get_bandwidth_of_placed(gang)
        cacheable = _describe_input(gang, view, capacity, assumed) if preferred is None else None
        plan = self._plans.find(cacheable, bandwidth) if cacheable is not None else None
        if plan is None:
            soft = soft_reservations.sum_reserved(others.waiting, memory, self._cluster, assumed)
            plan = _solve(gang, view, capacity, bandwidth, soft)
            if cacheable is not None:
                self._plans.store(cacheable, plan)
        if preferred is not None:
            plan = msgspec.structs.replace(plan, upper_bound=max(plan.upper_bound, preferred.upper_bound))
            summary = msgspec.structs.replace(summary, fills_used_nodes=preferred.are_partly_used)
        target = _find_target(gang, view, capacity, plan)
        summary = msgspec.structs.replace(
            summary,
            target_leaf=target.leaf,
            planned_leaves=target.plan.leaves,
            slots_by_leaf=target.plan.slots_by_leaf,
            max_fill_priority=locality.NO_FILL_LIMIT
            if target.leaf is None
            else gang_capacity.find_min_fill_priority(capacity, target.leaf, target.plan),
        )
        own = gang_memory.Reservation(_reserve(gang, capacity, plan, target.leaf), devices)
        memory = memory.record_plan(view.request.gang, gang, plan, own)
        begun = tuple(others.begun) if capacity is not whole else ()
        return PlannedGang(target.plan, summary, memory, begun, capacity)


def _describe_input(
    gang: gang_status.GangStatus,
    view: request_view.RequestView,
    capacity: gang_capacity.GangCapacity,
    assumed: assumed_pods.Assumptions,
) -> plan_cache.PlanInput | None:
    """Return the input of a plan that may be reused, or None if the scheduler offers too few nodes for that."""
    if len(view.request.nodes) < gang_capacity.MAX_FULL_OFFER:
        return None
    inferred = assumed.inferred if isinstance(assumed, assumed_pods.InferredPods) else ()
    return plan_cache.PlanInput(view.request.gang, gang, view.index, capacity, inferred)


def _solve(
    gang: gang_status.GangStatus,
    view: request_view.RequestView,
    capacity: gang_capacity.GangCapacity,
    bandwidth: node_slots.Bandwidth,
    soft: gang_memory.ReservedNodes,
) -> planner.Plan:
    """Return a new plan. `bandwidth` is that of the placed peers; `soft` are nodes reserved for gangs that wait."""
    peers = peer_summary.summarize_peers(gang, view, bandwidth)
    plan = planner.solve(gang.remaining_slots, capacity, peers)
    return soft_reservations.avoid_reserved(plan, soft, gang.remaining_slots, capacity, peers)


def _summarize_unplanned(gang: gang_status.GangStatus, view: request_view.RequestView) -> locality.GangSummary:
    """Return the summary of a gang without a plan."""
    return locality.GangSummary(
        target_leaf=None,
        planned_leaves=(),
        slots_by_leaf={},
        peers_by_leaf=Counter([view.index.leaf_by_node.get(peer.node, topology.NO_DOMAIN) for peer in gang.placed]),
        remaining=gang.unplaced,
        remaining_slots=gang.remaining_slots,
        is_planned=gang.planning_request == view.request.requests,
    )


def _list_devices(view: request_view.RequestView) -> frozenset[str]:
    """Return the resources of the rails that pods request, or those of their accelerators if they request no rail."""
    signature = view.index.signature
    pools = [need.resource for need in signature.needs if signature.requests.get(need.resource, 0) > 0]
    return frozenset(pools or signature.devices)


def _reserve(
    gang: gang_status.GangStatus,
    capacity: gang_capacity.GangCapacity,
    plan: planner.Plan,
    target_leaf: topology.Domain | None,
) -> gang_memory.ReservedNodes:
    """Return the gang's soft reservation."""
    slots_per_node = max((len(node_class.capacity.slot_numa_factors) for node_class in capacity.classes), default=1)
    return soft_reservations.reserve(gang.remaining_slots, plan, slots_per_node, target_leaf)


def _find_target(
    gang: gang_status.GangStatus,
    view: request_view.RequestView,
    capacity: gang_capacity.GangCapacity,
    plan: planner.Plan,
) -> _Target:
    """Return the target leaf of the requesting pod's rank.

    If the scheduler offered a sample of nodes without any of that leaf, plan again on the offered leaves only.
    """
    index, nodes = view.index, view.request.nodes
    slot_rank = gang.find_slot(view.request.rank)
    target_leaf = rank_order.find_target_leaf(slot_rank, gang, plan.leaves, plan.slots_by_leaf, index.leaf_by_node)
    if target_leaf is None or not index.nodes_by_leaf[target_leaf].keys().isdisjoint(nodes):
        return _Target(target_leaf, plan)
    offered = view.list_offered_leaves()
    offered_nodes = {leaf: counts for leaf, counts in capacity.nodes.items() if leaf in offered}
    plan = planner.solve(
        gang.remaining_slots,
        msgspec.structs.replace(capacity, nodes=offered_nodes),
        peer_summary.summarize_peers(gang, view),
    )
    return _Target(next(iter(plan.leaves), None), plan)
