"""Scores nodes by their own terms and by the gang's plan: target leaf, other planned leaves, same spine, elsewhere.

There are few tiers, far apart, so that a greedy scheduler that adds other scores still follows the plan rank by rank.
`rate` is the rule. The scores of all nodes and the explanation of one follow from it.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from railwright.fabric import text, topology
from railwright.fabric.placement.gangs import gang_planning, planner
from railwright.fabric.placement.nodes import node_evaluation, node_index, node_slots

NAME = "locality"  # of this term in explanations
TARGET, PLANNED, SAME_PARENT, ELSEWHERE = 1.0, 0.6, 0.3, 0.0  # the tiers of leaves, and the values of their nodes


_USED_FIRST = "a single-pod job fills partly used nodes first, on any leaf"
_OTHERS_USED = "other nodes are partly used and hold the pod without splitting its GPUs over NUMA nodes"
_TOO_SLOW = "the leaf is planned, but this node would slow the gang down"
_RESERVED = "other nodes of the target leaf come first (this node is idle, or would split the pod across NUMA nodes)"


class Rating(NamedTuple):
    """The value of a node, 0..1, and why it is not that of its leaf's tier, "" if it is."""

    value: float
    why: str = ""


def rank_leaves(leaves: Iterable[topology.Domain], gang: gang_planning.GangSummary) -> dict[topology.Domain, float]:
    """Return the tier of each of these leaves that is above ELSEWHERE."""
    target = gang.target_leaf
    if target is None:
        return {}
    parent = target[1:]
    planned = {target, *gang.planned_leaves}
    has_parent = bool(parent and parent[0])  # leaves whose parent has no label are beside no other
    tiers = {leaf: SAME_PARENT for leaf in leaves if leaf in planned or (has_parent and leaf and leaf[1:] == parent)}
    tiers |= {leaf: PLANNED for leaf in planned if leaf in tiers}
    return tiers | {target: TARGET} if target in tiers else tiers


def rate(
    tier: float, node_capacity: node_slots.NodeCapacity, gang: gang_planning.GangSummary, plan: planner.Plan
) -> Rating:
    """Rate a node on a leaf of this tier."""
    is_spared = node_capacity.fill_priority > gang.max_fill_priority
    if gang.fills_used_nodes:  # whatever the leaf
        return Rating(PLANNED, _OTHERS_USED) if is_spared else Rating(TARGET, _USED_FIRST)
    if tier >= PLANNED and gang.is_planned:
        if not plan.uses_shape_of(node_capacity):
            return Rating(ELSEWHERE, f"the leaf is planned, but the gang uses only nodes of {plan.node_type}")
        if not plan.is_met_by(node_capacity):
            return Rating(ELSEWHERE, _TOO_SLOW)
        if tier == TARGET and is_spared:
            return Rating(PLANNED, _RESERVED)
    return Rating(tier)


def score_nodes(
    names: Sequence[str], view: node_index.RequestView, gang: gang_planning.GangSummary, plan: planner.Plan
) -> dict[str, float]:
    """Return the score of each of these candidate nodes, 0..100: its own, and that of its rating.

    It is 0 for nodes with a fault and for nodes that the cache does not contain. The rating depends on the tier of the
    leaf and the class of the node, of which there are few.
    """
    weights, nodes_by_leaf = view.index.weights, view.index.nodes_by_leaf
    tiers = {} if gang.fills_used_nodes else rank_leaves(nodes_by_leaf, gang)
    tier_by_node = {name: tier for leaf, tier in tiers.items() for name in nodes_by_leaf[leaf]}

    def compute_score(tier: float | None, node_class: node_evaluation.NodeClass | None) -> float:
        if node_class is None or node_class.evaluation.fault:
            return 0.0
        rating = rate(ELSEWHERE if tier is None else tier, node_class.capacity, gang, plan)
        return node_class.score + weights.score_locality(rating.value)

    pairs = list(zip(map(tier_by_node.get, names), view.find_classes(names), strict=True))
    scores = {pair: compute_score(*pair) for pair in set(pairs)}
    return dict(zip(names, map(scores.__getitem__, pairs), strict=True))


def explain(
    leaf: topology.Domain,
    node_capacity: node_slots.NodeCapacity,
    gang: gang_planning.GangSummary,
    plan: planner.Plan,
) -> tuple[float, str]:
    """Return the value of a node on a leaf, and why it has this value."""
    value, why = rate(rank_leaves([leaf], gang).get(leaf, ELSEWHERE), node_capacity, gang, plan)
    return value, why or _describe_tier(value, leaf, gang)


def _describe_tier(tier: float, leaf: topology.Domain, gang: gang_planning.GangSummary) -> str:
    name = topology.format_domain(leaf)
    if tier == TARGET:
        return _describe_target(leaf, gang)
    if tier == PLANNED:
        leaves = list(gang.planned_leaves)
        return f"{name} is leaf {leaves.index(leaf) + 1} of {len(leaves)} in the gang's plan"
    if tier == SAME_PARENT:
        target = topology.format_domain(gang.target_leaf or topology.NO_DOMAIN)
        return f"{name} has the same parent as the target leaf {target}"
    return f"{name} is not in the gang's plan"


def _describe_target(leaf: topology.Domain, gang: gang_planning.GangSummary) -> str:
    name, placed = topology.format_domain(leaf), gang.peers_by_leaf.get(leaf, 0)
    slots, slots_needed, pods = gang.slots_by_leaf.get(leaf, 0), gang.remaining_slots, gang.remaining
    if slots_needed == 1 and not placed:
        return f"{name} is the tightest leaf that fits the pod"
    if slots < slots_needed < pods:
        share = f"as much as {slots} of the largest of the {pods} pods"
    elif slots < slots_needed:
        share = f"{slots} of the {text.format_count(pods, 'pod')}"
    else:
        share = f"all {pods} pods" if pods > 1 else "the last pod"
    return f"{name} has {placed} placed peers and slots for {share} to place"
