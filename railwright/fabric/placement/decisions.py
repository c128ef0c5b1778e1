"""Decides on one pod: plans its gang, reserves leaves, finds the leaf of the pod's rank, and scores nodes.

Leaves have few tiers with large gaps between their scores, so that other plugins' scores rarely override the plan.
`rate_locality` gives the value of a node in its tier, for scores and for their explanations.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from railwright.fabric import topology
from railwright.fabric.placement import bandwidth
from railwright.fabric.placement.gangs import gang_memory, planner, rank_order, segments
from railwright.fabric.placement.nodes import node_evaluation, node_index, score_terms
from railwright.fabric.placement.state import cluster_state, gang_status
from railwright.fabric.workloads import membership

# --- the decision ---------------------------------------------------------------------------------------------

NO_FILL_LIMIT = 1 << 30
_NO_CAPACITY = planner.GangCapacity((), {}, bandwidth.Uplinks({}, ()))


class Decision(msgspec.Struct, frozen=True):
    """The plan for one pod and its gang, from which the scores of its candidate nodes follow."""

    gang: gang_status.GangStatus
    view: node_index.RequestView
    planning_view: node_index.RequestView  # of the largest pods of the gang
    memory: gang_memory.Memory  # for the next decision
    plan: planner.Plan = planner.NO_PLAN  # for the unplaced pods of the gang
    # that the plan may use: without nodes that are kept for `begun`
    capacity: planner.GangCapacity = _NO_CAPACITY
    begun: Sequence[membership.GangKey] = ()  # other gangs, for whose pods nodes are kept
    target_leaf: topology.Domain | None = None  # of the pod's rank; None if no planned leaf has a free slot
    # fill priority to use in the target leaf; nodes with a higher value are kept free
    max_fill_priority: int = NO_FILL_LIMIT
    fills_used_nodes: bool = False  # single-pod job for which a partly used node is available, on any leaf

    @property
    def has_domains(self) -> bool:
        """True if the policy has domains; otherwise there is no plan, and locality is not scored."""
        return bool(self.view.request.domains)

    @property
    def peers_by_leaf(self) -> Mapping[topology.Domain, int]:
        """Return the number of placed peers by leaf."""
        return Counter(self.view.get_leaf(peer.node) for peer in self.gang.placed)

    @property
    def scores(self) -> dict[str, float]:
        """Return the score of each candidate node, 0..100."""
        return self.score(self.view.request.nodes)

    def score(self, names: Sequence[str]) -> dict[str, float]:
        """Return the score of each of these candidate nodes, with the locality of its leaf.

        The score is 0 for nodes with a broken rail and for nodes that the cache does not contain. A score is computed
        once for each tier of leaves and class of nodes. The cluster state must not have changed since the decision.
        """
        nodes_by_leaf = self.view.index.nodes_by_leaf
        tiers = {} if self.fills_used_nodes else find_tiers(nodes_by_leaf, self)
        tier_by_node = {name: tier for leaf, tier in tiers.items() for name in nodes_by_leaf[leaf]}
        pairs = list(zip(map(tier_by_node.get, names), self.view.find_classes(names), strict=True))
        locality, scores = score_terms.compute_max_locality(self.view.request), dict.fromkeys(pairs, 0.0)
        for tier, node_class in scores:
            if node_class is not None and not node_class.facts.broken:
                rating = rate_locality(ELSEWHERE if tier is None else tier, node_class, self)
                scores[tier, node_class] = node_class.score + locality * rating.value
        return dict(zip(names, map(scores.__getitem__, pairs), strict=True))

    def list_nodes_in_one_domain(self, nodes: Sequence[str], last: topology.Domain) -> Sequence[str]:
        """Return the nodes that are in one NVLink domain; all nodes if no domain is known.

        The domain is the pod's target leaf, otherwise a planned leaf, otherwise the one with most of these nodes.
        The domain `last` is chosen only if there is no other.
        """
        leaves = self.view.index.leaf_by_node
        counts = Counter(leaf for leaf in map(leaves.get, nodes) if leaf)
        if not counts:
            return nodes
        order = [leaf for leaf in (self.target_leaf, *self.plan.leaves) if leaf is not None and leaf in counts]
        order += sorted(counts, key=lambda leaf: (-counts[leaf], leaf))
        domain = next((leaf for leaf in order if leaf != last), last)
        return [name for name in nodes if leaves.get(name) == domain]

    def list_nodes_in_target_leaf(self) -> Sequence[str]:
        """Return the candidate nodes in the pod's target leaf."""
        target = self.target_leaf
        in_leaf = self.view.index.nodes_by_leaf.get(target, {}) if target is not None else {}
        return [name for name in self.view.request.nodes if name in in_leaf]


def decide_on_pod(
    gang: gang_status.GangStatus,
    view: node_index.RequestView,
    planning_view: node_index.RequestView,
    memory: gang_memory.Memory,
    cluster: cluster_state.ClusterState,
) -> Decision:
    """Plan the unplaced pods of a gang, and choose the leaf of the requesting pod. `memory` is from the last decision.

    The scheduler offers a pod with a segment only the leaf of that segment. The plan counts all leaves, because the
    rest of the gang needs them.
    """
    request = view.request
    if not request.domains:
        return Decision(gang, view, planning_view, memory)
    key = request.gang
    kind = planning_view.index.kind
    # nodes are kept for other gangs only if they compete for the devices that the pod requests
    rails = [need.resource for need in kind.needs if need.resource not in kind.unrequested]
    begun = gang_memory.list_reserved_nodes(key, frozenset(rails or kind.demand.names), memory, cluster)
    segmented = segments.find_segments(request, cluster, view.index.leaf_by_node) if request.has_segment else None
    fills_used_nodes = False
    if kind.is_single_pod and (leaves := _choose_first_nodes(planning_view)):
        whole = planner.build_capacity_on(view.index, leaves)
        fills_used_nodes = not any(known.is_idle for known in whole.classes)
    else:
        is_on_all_leaves = segmented is not None and not request.is_confined
        whole = planner.build_capacity(planning_view, on_all_leaves=is_on_all_leaves)
    if segmented is not None:
        whole = segmented.limit_capacity(whole)
    capacity = gang_memory.exclude_reserved_nodes(whole, begun.values())
    ring = rank_order.Ring(
        waiting=gang.waiting,
        placed=[peer.rank for peer in gang.placed_workers],
        leaves=[view.get_leaf(peer.node) for peer in gang.placed_workers],
        is_closed=not gang.missing,
    )
    remembered = memory.get(key, gang_memory.UNKNOWN)
    bandwidth_of_placed = remembered.get_bandwidth_of_placed(len(gang.placed))
    peers = _summarize_peers(gang, ring, planning_view, bandwidth_of_placed)
    plan = target_plan = planner.plan_gang(gang.unplaced, capacity, peers)
    if segmented is not None:
        target_leaf = segmented.find_target_leaf(plan)
    else:
        # a launcher, for which nothing is planned, goes to the first worker
        rank = request.rank if request.rank in gang.waiting else gang.waiting[0]
        target_leaf = ring.find_target_leaf(rank, plan.leaves, plan.slots_by_leaf)
    if target_leaf is not None and view.index.nodes_by_leaf[target_leaf].keys().isdisjoint(request.offered):
        # the scheduler offered a sample of nodes without any of that leaf: plan again on the offered leaves
        offered = {leaf: counts for leaf, counts in capacity.nodes.items() if leaf in view.offered_leaves}
        on_offered = msgspec.structs.replace(capacity, nodes=offered)
        target_plan = planner.plan_gang(gang.unplaced, on_offered, peers)
        target_leaf = next(iter(target_plan.leaves), None)
    # of the nodes that meet the plan the fuller ones come first, so that idle nodes stay idle
    in_leaf = capacity.nodes.get(target_leaf, {}) if target_leaf is not None else {}
    meeting = [known for known, nodes in in_leaf.items() if nodes > 0 and target_plan.is_met_by(known)]
    planned = msgspec.structs.replace(remembered, reserved={})
    if plan.is_complete:
        reserved = gang_memory.reserve_nodes(gang.unplaced, plan, capacity, target_leaf)
        planned = gang_memory.GangMemory(reserved, len(gang.placed), bandwidth_of_placed, plan.bandwidth)
    return Decision(
        gang=gang,
        view=view,
        planning_view=planning_view,
        memory=gang_memory.add_plan(memory, key, planned),
        plan=target_plan,
        capacity=capacity,
        begun=tuple(begun) if capacity is not whole else (),
        target_leaf=target_leaf,
        max_fill_priority=min([known.fill_priority for known in meeting], default=NO_FILL_LIMIT),
        fills_used_nodes=fills_used_nodes,
    )


def _summarize_peers(
    gang: gang_status.GangStatus,
    ring: rank_order.Ring,
    view: node_index.RequestView,
    bandwidth_of_placed: node_evaluation.Bandwidth,
) -> planner.PlacedPeers:
    """Return the leaves, node shapes and bandwidth of the placed peers."""
    known = view.find_classes([peer.node for peer in gang.placed_workers])
    classes = {node_class for node_class in known if node_class is not None}
    on_nodes = [sum(shares) for node_class in classes if (shares := node_class.shares[0])]
    return planner.PlacedPeers(
        leaves=ring.list_nearest_leaves(view.request.rank),
        bandwidth=min([bandwidth_of_placed, *on_nodes]),
        shapes={node_class.facts.shape for node_class in classes},
    )


# --- single-pod jobs ----------------------------------------------------------------------------------------
# Partly used nodes come first, in the order of their scores (`score_terms`). The leaf matters only if the pod needs an
# idle node, because gangs need leaves with many idle nodes.


def _choose_first_nodes(view: node_index.RequestView) -> dict[topology.Domain, node_evaluation.Counts]:
    """Return the offered nodes that a single-pod job fills first, as leaf -> class -> number of nodes."""
    nodes = view.request.nodes
    leaves = map(view.index.leaf_by_node.get, nodes)
    counts = Counter(zip(leaves, view.find_classes(nodes), strict=True))
    orders = {
        node_class: (node_class.fill_priority, -round(node_class.score, 6))
        for _, node_class in counts
        if node_class and node_class.slot_numa_factors
    }
    first = min(orders.values(), default=None)
    chosen: dict[topology.Domain, node_evaluation.Counts] = {}
    for (leaf, node_class), count in counts.items():
        if leaf is not None and node_class in orders and orders[node_class] == first:
            chosen.setdefault(leaf, {})[node_class] = count
    return chosen


def plan_single_pod(view: node_index.RequestView) -> planner.Plan:
    """Return the plan of a single-pod job, with the bandwidth of the slowest node among those with the best score."""
    leaves = _choose_first_nodes(view)
    classes = [node_class for counts in leaves.values() for node_class in counts]
    if classes and not any(known.is_idle for known in classes):  # for idle nodes scores depend on the plan
        slowest = min(classes, key=lambda known: known.bandwidths[0])
        leaves = {leaf: {slowest: counts[slowest]} for leaf, counts in leaves.items() if slowest in counts}
    return planner.plan_gang(1, planner.build_capacity_on(view.index, leaves)) if leaves else planner.NO_PLAN


# --- the rating of a node -------------------------------------------------------------------------------------

TARGET, PLANNED, SAME_PARENT, ELSEWHERE = 1.0, 0.6, 0.3, 0.0  # the tiers of leaves, and the values of their nodes


class Rating(NamedTuple):
    """The locality of a node, 0..1, and why it differs from its leaf's tier ("" if it does not)."""

    value: float
    why: str = ""


def find_tiers(leaves: Iterable[topology.Domain], decision: Decision) -> dict[topology.Domain, float]:
    """Return leaf -> tier, of planned leaves and of leaves with the target leaf's parent; others are ELSEWHERE."""
    target = decision.target_leaf
    if target is None:
        return {}
    parent = target[1:]
    planned = {target, *decision.plan.leaves}
    has_parent = bool(parent and parent[0])  # leaves whose parent has no label are beside no other
    tiers = {leaf: SAME_PARENT for leaf in leaves if leaf in planned or (has_parent and leaf and leaf[1:] == parent)}
    tiers |= {leaf: PLANNED for leaf in planned if leaf in tiers}
    return tiers | {target: TARGET} if target in tiers else tiers


def rate_locality(tier: float, node_class: node_evaluation.NodeClass, decision: Decision) -> Rating:
    """Return the locality of a node of this class on a leaf of this tier."""
    if decision.fills_used_nodes:  # whatever the leaf
        if node_class.fill_priority > decision.max_fill_priority:
            why = "other nodes are partly used and hold the pod without splitting its GPUs over NUMA nodes"
            return Rating(PLANNED, why)
        return Rating(TARGET, "a single-pod job fills partly used nodes first, on any leaf")
    is_covered = decision.gang.planning_request == decision.view.request.requests  # the plan is for workers only
    if tier >= PLANNED and is_covered:
        if not decision.plan.uses_shape_of(node_class):
            return Rating(ELSEWHERE, f"the leaf is planned, but the gang uses only nodes of {decision.plan.node_type}")
        if not decision.plan.is_met_by(node_class):
            return Rating(ELSEWHERE, "the leaf is planned, but this node would slow the gang down")
        if tier == TARGET and node_class.fill_priority > decision.max_fill_priority:
            others = "other nodes of the target leaf come first"
            return Rating(PLANNED, f"{others} (this node is idle, or would split the pod across NUMA nodes)")
    return Rating(tier)
