"""Plans the gang of a request: reuses or solves its plan, reserves leaves, and finds the target leaf of the pod's rank.

The result has the plan, its summary for locality scores, and the memory of gangs after this decision.

A plan is reused while the gang's pods are placed as planned and nothing else in the cluster has changed. Its unfilled
leaves are then optimal for the unplaced pods, because every choice for these was also a choice for the whole gang. The
planner runs again after a change of any node outside the plan's leaves, if slots in these leaves increase, if a change
allows more bandwidth, or if the gang's size changes.
"""

from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from railwright.fabric import topology
from railwright.fabric.placement.gangs import gang_capacity, gang_memory, planner, rank_order, segments
from railwright.fabric.placement.nodes import node_evaluation, node_index, node_slots, request_view
from railwright.fabric.placement.state import assumed_pods, cluster_state, gang_status
from railwright.fabric.workloads import membership

# --- plans of earlier requests --------------------------------------------------------------------------------

_MAX_PLANS = 64  # cached gangs; schedulers place one gang after the other


class _CachedPlan(msgspec.Struct, frozen=True):
    """A plan, and what it was based on."""

    plan: planner.Plan
    size: int  # of the gang
    remaining: int
    slots_by_leaf: Mapping[topology.Domain, int]  # slots of the plan's leaves and of the leaves of the peers
    positions: tuple[int, int]  # positions in the change logs up to which changes were looked at
    has_changes: bool  # such changes exist; all are in these leaves
    inferred: frozenset[tuple[str, str]]  # (uid, node) of pods that were assumed for this request only


class PlanInput(msgspec.Struct, frozen=True):
    """The input of a plan."""

    key: membership.GangKey
    gang: gang_status.GangStatus
    index: node_index.NodeIndex
    capacity: gang_capacity.GangCapacity
    inferred: Sequence[assumed_pods.AssumedPod]  # pods that are assumed for this request only


class PlanCache:
    """The latest plans of the most recently used gangs."""

    def __init__(self, cluster: cluster_state.ClusterState, assumed: assumed_pods.AssumedPods) -> None:
        self._change_logs = (cluster.change_log, assumed.change_log)
        self._plans: OrderedDict[Hashable, _CachedPlan] = OrderedDict()

    def store(self, plan_input: PlanInput, plan: planner.Plan) -> None:
        """Cache a new plan."""
        gang, index = plan_input.gang, plan_input.index
        if not plan_input.key or not plan.is_complete:
            return
        if not plan.rails and any(node_class.capacity.rails for node_class in index.classes):
            return
        peer_leaves = {index.leaf_by_node.get(peer.node, topology.NO_DOMAIN) for peer in gang.placed}
        cache_key = (plan_input.key, index.signature.key)
        self._plans[cache_key] = _CachedPlan(
            plan=plan,
            size=gang.size,
            remaining=gang.remaining_slots,
            slots_by_leaf=_count_slots(plan_input.capacity, {*plan.leaves, *peer_leaves}, plan),
            positions=self._read_positions(),
            has_changes=False,
            inferred=list_places(plan_input.inferred),
        )
        self._plans.move_to_end(cache_key)
        if len(self._plans) > _MAX_PLANS:
            self._plans.popitem(last=False)

    def find(self, plan_input: PlanInput, bandwidth_of_placed: node_slots.Bandwidth) -> planner.Plan | None:
        """Return the unfilled part of the gang's plan, or None if the planner has to run again."""
        gang, index = plan_input.gang, plan_input.index
        cache_key = (plan_input.key, index.signature.key)
        cached = self._plans.get(cache_key)
        if cached is None or gang.size != cached.size or gang.remaining_slots > cached.remaining:
            return None
        changes = [log.read_since(position) for log, position in zip(self._change_logs, cached.positions, strict=True)]
        inferred_nodes = [node for _, node in cached.inferred ^ list_places(plan_input.inferred)]
        names = [name for names in changes if names is not None for name in names]
        find_leaf, leaves = index.leaf_by_node.get, cached.slots_by_leaf
        if None in changes or any(find_leaf(name) not in leaves for name in (*names, *inferred_nodes)):
            return None
        if names:
            cached = msgspec.structs.replace(cached, positions=self._read_positions(), has_changes=True)
            self._plans[cache_key] = cached
        if (cached.has_changes or inferred_nodes) and cached.plan.bandwidth < bandwidth_of_placed:
            return None
        slots_by_leaf = _count_slots(plan_input.capacity, cached.slots_by_leaf, cached.plan)
        if any(slots > cached.slots_by_leaf[leaf] for leaf, slots in slots_by_leaf.items()):
            return None
        open_slots = {leaf: slots_by_leaf[leaf] for leaf in cached.plan.leaves if slots_by_leaf[leaf]}
        if sum(open_slots.values()) < gang.remaining_slots:
            return None
        return msgspec.structs.replace(cached.plan, leaves=tuple(open_slots), slots_by_leaf=open_slots)

    def _read_positions(self) -> tuple[int, int]:
        return self._change_logs[0].position, self._change_logs[1].position


def list_places(pods: Iterable[assumed_pods.AssumedPod]) -> frozenset[tuple[str, str]]:
    """Return the UID and node of each assumed pod."""
    return frozenset([(pod.uid, pod.node) for pod in pods])


def _count_slots(
    capacity: gang_capacity.GangCapacity, leaves: Iterable[topology.Domain], plan: planner.Plan
) -> Mapping[topology.Domain, int]:
    """Return the slots of each of these leaves at a plan's bandwidth."""
    slots_by_leaf = {
        leaf: sum(
            nodes * plan.count_slots(node_class.capacity) for node_class, nodes in capacity.nodes.get(leaf, {}).items()
        )
        for leaf in leaves
    }
    return {**dict.fromkeys(slots_by_leaf, 0), **capacity.cut(slots_by_leaf)}


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

    def has_target(
        self, rank: membership.Rank, gang: gang_status.GangStatus, leaf_by_node: Mapping[str, topology.Domain]
    ) -> bool:
        """True if another rank of the gang, in the same state, has the same target leaf."""
        plan, slot_rank = self.plan, gang.find_slot(rank)
        leaf = rank_order.find_target_leaf(slot_rank, gang, plan.leaves, plan.slots_by_leaf, leaf_by_node)
        return leaf == self.summary.target_leaf

    def fill_node(self, key: membership.GangKey, node_class: node_evaluation.NodeClass) -> "PlannedGang | None":
        """Return what is planned for the next pod, once the pod is on a node of this class in the target leaf.

        A plan of one leaf, whose free nodes are equal and hold one pod each, has one slot less, and is the same
        otherwise. None for other plans.
        """
        plan, summary, leaf = self.plan, self.summary, self.summary.target_leaf
        if self.capacity is None or leaf is None or not plan.is_complete:
            return None
        counts = self.capacity.nodes[leaf]
        free = [known for known in counts if known.capacity.slot_numa_factors]
        has_one_slot = len(node_class.capacity.slot_numa_factors) == 1
        if plan.leaves != (leaf,) or summary.peers_by_leaf.keys() - {leaf} or free != [node_class] or not has_one_slot:
            return None
        left, remaining = {leaf: plan.slots_by_leaf[leaf] - 1}, summary.remaining_slots - 1
        plan = msgspec.structs.replace(plan, slots_by_leaf=left)
        nodes = {**self.capacity.nodes, leaf: {**counts, node_class: counts[node_class] - 1}}
        capacity = msgspec.structs.replace(self.capacity, nodes=nodes)
        known = self.memory.get(key)
        remembered = msgspec.structs.replace(
            known,
            placed=known.placed + 1,
            bandwidth_of_placed=min(known.bandwidth_of_placed, known.planned_bandwidth),
            reserved=gang_memory.reserve(remaining, plan, capacity, leaf),
        )
        summary = msgspec.structs.replace(
            summary,
            peers_by_leaf={leaf: summary.peers_by_leaf.get(leaf, 0) + 1},
            remaining=summary.remaining - 1,
            remaining_slots=remaining,
            slots_by_leaf=left,
        )
        memory = self.memory.record(key, remembered)
        return PlannedGang(plan, summary, memory, self.begun, self.part, capacity)  # faster than _replace


class _Target(NamedTuple):
    """The target leaf of the requesting pod's rank, and the plan that it follows from."""

    leaf: topology.Domain | None  # None if no planned leaf has a free slot
    plan: planner.Plan


class GangPlanner:
    """Plans the gangs of one cluster. Caches their plans between requests."""

    def __init__(self, cluster: cluster_state.ClusterState, assumed: assumed_pods.AssumedPods) -> None:
        self._cluster = cluster
        self._plans = PlanCache(cluster, assumed)

    def plan(
        self,
        gang: gang_status.GangStatus,
        view: request_view.RequestView,
        memory: gang_memory.PlacementMemory,
        assumed: assumed_pods.Assumptions,
    ) -> PlannedGang:
        """Plan the unplaced pods of a gang. `memory` is that of the last decision.

        Of a gang with segments, the filter leaves each pod the leaves for its own segment. The other leaves hold the
        rest of the gang, so that all count.
        """
        if not view.request.domains:
            return PlannedGang(planner.NO_PLAN, _summarize(gang, view, has_domains=False), memory)
        key = view.request.gang
        memory = memory.drop_reservations(gang_memory.list_finished(memory, self._cluster, assumed))
        devices = _list_devices(view)
        others = gang_memory.list_others(key, devices, memory, self._cluster, assumed)
        prior = gang_memory.sum_reserved(others.begun, memory, self._cluster, assumed)
        preferred = _choose_nodes(view) if view.index.signature.is_single_pod else None
        request = view.request
        segmented = segments.find_segments(request, self._cluster, assumed, view.get_leaf)
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
            gang = gang_status.build_status(request, self._cluster, assumed, part=part)
        else:
            part = ""
        bandwidth = memory.get(key).get_bandwidth_of_placed(gang)
        # a plan on a smaller offer depends on which nodes are offered
        is_sample = len(request.nodes) >= gang_capacity.MAX_FULL_OFFER and not request.is_confined
        is_cacheable = preferred is None and is_sample
        cacheable = PlanInput(key, gang, view.index, capacity, assumed.inferred) if is_cacheable else None
        plan = self._plans.find(cacheable, bandwidth) if cacheable is not None else None
        if plan is None:
            soft = gang_memory.sum_reserved(others.waiting, memory, self._cluster, assumed)
            plan = _solve(gang, view, capacity, bandwidth, soft)
            if cacheable is not None:
                self._plans.store(cacheable, plan)
        if preferred is not None:
            plan = msgspec.structs.replace(plan, upper_bound=max(plan.upper_bound, preferred.upper_bound))
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


def _solve(
    gang: gang_status.GangStatus,
    view: request_view.RequestView,
    capacity: gang_capacity.GangCapacity,
    bandwidth: node_slots.Bandwidth,
    soft: gang_memory.ReservedNodes,
) -> planner.Plan:
    """Return a new plan. `bandwidth` is that of the placed peers; `soft` are nodes reserved for gangs that wait."""
    peers = _summarize_peers(gang, view, bandwidth)
    plan = planner.solve(gang.remaining_slots, capacity, peers)
    return gang_memory.avoid_reserved(plan, soft, gang.remaining_slots, capacity, peers)


def _summarize(gang: gang_status.GangStatus, view: request_view.RequestView, **planned: Any) -> GangSummary:
    """Return the summary of a gang. `planned` are the fields that follow from its plan."""
    return GangSummary(
        peers_by_leaf=Counter(_list_leaves(gang.placed, view)),
        remaining=gang.unplaced,
        remaining_slots=gang.remaining_slots,
        is_planned=gang.planning_request == view.request.requests,
        **planned,
    )


def _list_leaves(placed: Sequence[gang_status.PlacedPeer], view: request_view.RequestView) -> Sequence[topology.Domain]:
    """Return the leaf of each placed pod."""
    leaves = list(map(view.index.leaf_by_node.get, [peer.node for peer in placed]))
    return [leaf or topology.NO_DOMAIN for leaf in leaves]


def _list_devices(view: request_view.RequestView) -> frozenset[str]:
    """Return the resources of the rails that pods request, or those of their accelerators if they request no rail."""
    signature = view.index.signature
    pools = [need.resource for need in signature.needs if signature.requests.get(need.resource, 0) > 0]
    return frozenset(pools or signature.devices)


def _find_target(
    gang: gang_status.GangStatus,
    view: request_view.RequestView,
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
    gang: gang_status.GangStatus, view: request_view.RequestView, bandwidth: node_slots.Bandwidth = 1.0
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
    upper_bound: node_slots.Bandwidth  # highest modelled bandwidth of all offered nodes


def _choose_nodes(view: request_view.RequestView) -> _PreferredNodes | None:
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
        upper_bound=max(_get_max_bandwidth(node_class.capacity) for node_class in classes),
    )


def _get_max_bandwidth(node_capacity: node_slots.NodeCapacity) -> node_slots.Bandwidth:
    return node_capacity.compute_bandwidth(node_capacity.rails) * max(node_capacity.slot_numa_factors)
