"""Plans the gang of a request: solves its plan, reserves leaves, and finds the target leaf of the pod's rank.

The result has the plan, its summary for locality scores, and the memory of gangs after this decision.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from railwright.fabric import topology
from railwright.fabric.placement.gangs import gang_capacity, gang_memory, planner, rank_order, segments
from railwright.fabric.placement.nodes import node_evaluation, node_index, node_slots
from railwright.fabric.placement.state import assumed_pods, cluster_state, gang_status
from railwright.fabric.workloads import membership

# --- the plan of a request ------------------------------------------------------------------------------------

NO_FILL_LIMIT = 1 << 30


class GangSummary(msgspec.Struct, frozen=True):
    """Summary of a gang and its plan, for scoring leaves."""

    peers_by_leaf: Mapping[topology.Domain, int]  # leaf -> number of placed peers
    remaining: int  # unplaced pods, including the requesting one
    remaining_slots: int  # slots that these need, each of the size of the largest pod
    target_leaf: topology.Domain | None = None  # target leaf of the requesting pod's rank
    planned_leaves: Sequence[topology.Domain] = ()  # leaves to fill, in order
    slots_by_leaf: Mapping[topology.Domain, int] = {}  # slots of each planned leaf
    is_planned: bool = True  # False for launchers: the plan covers workers only
    # fill priority to use in the target leaf; nodes with a higher value are kept free
    max_fill_priority: int = NO_FILL_LIMIT
    fills_used_nodes: bool = False  # single-pod job for which a partly used node is available, on any leaf
    has_domains: bool = True  # False: the policy has no domains, so locality is not scored


class PlannedGang(NamedTuple):
    """A gang's plan, its summary for scoring, and the memory after it."""

    plan: planner.Plan
    summary: GangSummary
    memory: gang_memory.PlacementMemory
    begun: tuple[membership.GangKey, ...] = ()  # other gangs, for whose pods nodes are kept
    part: str = ""  # of the gang, for which the plan is; "" for the whole gang
    capacity: gang_capacity.GangCapacity | None = None  # without these nodes; None without a plan


class _Target(NamedTuple):
    """The target leaf of the requesting pod's rank, and the plan that it follows from."""

    leaf: topology.Domain | None  # None if no planned leaf has a free slot
    plan: planner.Plan


def plan_gang(
    gang: gang_status.GangStatus,
    view: node_index.RequestView,
    memory: gang_memory.PlacementMemory,
    cluster: cluster_state.ClusterState,
    assumed: assumed_pods.AssumedPods,
) -> PlannedGang:
    """Plan the unplaced pods of a gang. `memory` is that of the last decision.

    A pod with a segment is offered the leaf of its segment alone. The other leaves hold the rest of the gang, so that
    all count.
    """
    request = view.request
    if not request.domains:
        return PlannedGang(planner.NO_PLAN, _summarize(gang, view, has_domains=False), memory)
    key = request.gang
    memory = memory.drop_reservations(gang_memory.list_finished(memory, cluster, assumed))
    devices = _list_devices(view)
    others = gang_memory.list_others(key, devices, memory, cluster, assumed)
    prior = gang_memory.sum_reserved(others.begun, memory, cluster, assumed)
    preferred = _choose_nodes(view) if view.index.signature.is_single_pod else None
    segmented = segments.find_segments(request, cluster, assumed, view.get_leaf)
    if preferred is not None:
        whole = preferred.capacity
    elif segmented is None or request.is_confined:
        whole = gang_capacity.build(view)
    else:
        whole = gang_capacity.build_of_all(view)
    whole = whole if segmented is None else segmented.limit(whole)
    capacity = gang_memory.keep_off(whole, prior)
    part = request.part if request.is_confined else ""
    if part and sum(whole.count_all_slots().values()) < gang.remaining_slots:
        gang = gang_status.build_status(request, cluster, assumed, part=part)
    else:
        part = ""
    bandwidth = memory.get(key).get_bandwidth_of_placed(gang)
    soft = gang_memory.sum_reserved(others.waiting, memory, cluster, assumed)
    peers = _summarize_peers(gang, view, bandwidth)
    plan = planner.solve(gang.remaining_slots, capacity, peers)
    plan = gang_memory.avoid_reserved(plan, soft, gang.remaining_slots, capacity, peers)
    target = _find_target(gang, view, capacity, plan, segmented)
    remembered = gang_memory.GangMemory(
        placed=len(gang.placed),
        bandwidth_of_placed=bandwidth,
        planned_bandwidth=plan.bandwidth,
        reserved=gang_memory.reserve(gang.remaining_slots, plan, capacity, target.leaf),
        devices=devices,
    )
    return PlannedGang(
        plan=target.plan,
        summary=_summarize(
            gang,
            view,
            target_leaf=target.leaf,
            planned_leaves=target.plan.leaves,
            slots_by_leaf=target.plan.slots_by_leaf,
            max_fill_priority=_find_min_fill_priority(capacity, target),
            fills_used_nodes=preferred is not None and preferred.are_partly_used,
        ),
        memory=memory.record(key, remembered if plan.is_complete else None),
        begun=tuple(others.begun) if capacity is not whole else (),
        part=part,
        capacity=capacity,
    )


def _summarize(gang: gang_status.GangStatus, view: node_index.RequestView, **planned: Any) -> GangSummary:
    """Return the summary of a gang. `planned` are the fields that follow from its plan."""
    return GangSummary(
        peers_by_leaf=Counter(_list_leaves(gang.placed, view)),
        remaining=gang.unplaced,
        remaining_slots=gang.remaining_slots,
        is_planned=gang.planning_request == view.request.requests,
        **planned,
    )


def _list_leaves(placed: Sequence[gang_status.PlacedPeer], view: node_index.RequestView) -> Sequence[topology.Domain]:
    """Return the leaf of each placed pod."""
    leaves = list(map(view.index.leaf_by_node.get, [peer.node for peer in placed]))
    return [leaf or topology.NO_DOMAIN for leaf in leaves]


def _list_devices(view: node_index.RequestView) -> frozenset[str]:
    """Return the resources of the rails that pods request, or those of their accelerators if they request no rail."""
    signature = view.index.signature
    pools = [need.resource for need in signature.needs if signature.requests.get(need.resource, 0) > 0]
    return frozenset(pools or signature.devices)


def _find_target(
    gang: gang_status.GangStatus,
    view: node_index.RequestView,
    capacity: gang_capacity.GangCapacity,
    plan: planner.Plan,
    segmented: segments.Segments | None,
) -> _Target:
    """Return the target leaf of the requesting pod's rank, or of its segment.

    If the scheduler offered a sample of nodes without any of that leaf, plan again on the offered leaves only.
    """
    index = view.index
    if segmented is not None:
        target_leaf = segmented.find_target_leaf(plan)
    else:
        slot_rank = gang.find_slot(view.request.rank)
        target_leaf = rank_order.find_target_leaf(slot_rank, gang, plan.leaves, plan.slots_by_leaf, index.leaf_by_node)
    if target_leaf is None or not index.nodes_by_leaf[target_leaf].keys().isdisjoint(view.request.offered):
        return _Target(target_leaf, plan)
    offered_nodes = {leaf: counts for leaf, counts in capacity.nodes.items() if leaf in view.offered_leaves}
    plan = planner.solve(
        gang.remaining_slots,
        msgspec.structs.replace(capacity, nodes=offered_nodes),
        _summarize_peers(gang, view),
    )
    return _Target(next(iter(plan.leaves), None), plan)


def _summarize_peers(
    gang: gang_status.GangStatus, view: node_index.RequestView, bandwidth: node_slots.Bandwidth = 1.0
) -> planner.PlacedPeers:
    """Summarize the placed peers. `bandwidth` is what was planned for them, 1 if that is unknown."""
    peer_leaves = _list_leaves(gang.placed_workers, view)
    nearest = rank_order.list_nearest_leaves(view.request.rank, gang, peer_leaves)
    classes = view.list_classes([peer.node for peer in gang.placed_workers])
    rails = node_slots.ALL_RAILS
    for node_class in classes:
        rails &= node_class.evaluation.available_rails
    return planner.PlacedPeers(
        leaves=nearest.leaves,
        ring=peer_leaves,
        crossings=rank_order.count_crossings(gang, peer_leaves, view.index.leaf_by_node),
        next_leaf=nearest.next_leaf,
        bandwidth=bandwidth,
        shapes={node_class.capacity.shape for node_class in classes},
        rails=rails,
        rail_shares={
            node_evaluation.compute_shares(
                view.index.signature, node_class.evaluation.facts, node_class.evaluation.pools, further_pods=0
            )
            for node_class in classes
        },
    )


def _find_min_fill_priority(capacity: gang_capacity.GangCapacity, target: _Target) -> int:
    """Return the lowest fill priority of the nodes in the target leaf that meet the plan."""
    counts = capacity.nodes.get(target.leaf, {}) if target.leaf is not None else {}
    node_capacities = (node_class.capacity for node_class, nodes in counts.items() if nodes > 0)
    return min((node.fill_priority for node in node_capacities if target.plan.is_met_by(node)), default=NO_FILL_LIMIT)


# --- single-pod jobs ----------------------------------------------------------------------------------------
# Partly used nodes come first, in the order of `score_terms`. The leaf matters only if the pod needs an idle node,
# because gangs need leaves with many idle nodes.


class _PreferredNodes(msgspec.Struct, frozen=True):
    """The offered nodes that come first for a single-pod job."""

    capacity: gang_capacity.GangCapacity  # capacity of these nodes only
    are_partly_used: bool


def _choose_nodes(view: node_index.RequestView) -> _PreferredNodes | None:
    """Return the best of the offered nodes, or None if none has a slot."""
    nodes = view.request.nodes
    counts = Counter(zip(map(view.index.leaf_by_node.get, nodes), map(view.get_class, nodes), strict=True))
    classes = {node_class for _, node_class in counts if node_class and node_class.capacity.slot_numa_factors}
    if not classes:
        return None
    first = min(node_class.fill_order for node_class in classes)
    preferred = {node_class for node_class in classes if node_class.fill_order == first}
    leaves: dict[topology.Domain, node_evaluation.Counts] = {}
    for (leaf, node_class), count in counts.items():
        if leaf is not None and node_class in preferred:
            leaves.setdefault(leaf, {})[node_class] = count
    return _PreferredNodes(
        capacity=gang_capacity.build_on(view.index, leaves),
        are_partly_used=not any(node_class.capacity.is_idle for node_class in preferred),
    )
