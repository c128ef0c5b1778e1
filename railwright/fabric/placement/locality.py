"""Scores nodes by their own terms and by the gang's plan: target leaf, other planned leaves, same spine, elsewhere.

There are few tiers, far apart, so that a greedy scheduler that adds other scores still follows the plan rank by rank.
`rate` is the rule. The scores of all nodes and the explanation of one follow from it.
"""

from collections.abc import Iterable
from typing import NamedTuple

from railwright.fabric import topology
from railwright.fabric.placement.gangs import gang_planning, planner
from railwright.fabric.placement.nodes import node_evaluation, node_slots, request_view, score_terms
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import Code

NAME = "locality"  # of this term in explanations
TARGET, PLANNED, SAME_PARENT, ELSEWHERE = 1.0, 0.6, 0.3, 0.0  # the tiers of leaves, and the values of their nodes
_CODES = {
    TARGET: Code.TARGET_LEAF,
    PLANNED: Code.PLANNED_LEAF,
    SAME_PARENT: Code.SIBLING_LEAF,
    ELSEWHERE: Code.UNPLANNED_LEAF,
}


class Rating(NamedTuple):
    """The value of a node, 0..1, and its reason."""

    value: float
    code: Code


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
        return Rating(PLANNED, Code.OTHERS_PARTLY_USED) if is_spared else Rating(TARGET, Code.PARTLY_USED_FIRST)
    if tier >= PLANNED and gang.is_planned:
        if not plan.uses_shape_of(node_capacity):
            return Rating(ELSEWHERE, Code.NODE_TYPE_DIFFERS)
        if not plan.is_met_by(node_capacity):
            return Rating(ELSEWHERE, Code.NODE_TOO_SLOW)
        if tier == TARGET and is_spared:
            return Rating(PLANNED, Code.NODE_RESERVED)
    return Rating(tier, _CODES[tier])


def score_nodes(
    view: request_view.RequestView, gang: gang_planning.GangSummary, plan: planner.Plan
) -> dict[str, float]:
    """Return the score, 0..100, of each candidate node: its own, and that of its rating.

    The rating depends on the tier and the class, of which there are few. So it is computed once for each pair of them,
    and only the nodes of leaves above the lowest tier are visited: 5,000 nodes take a millisecond.
    """
    weights = view.index.weights

    def compute_points(tier: float, node_class: node_evaluation.NodeClass) -> float:
        if node_class.evaluation.refusal:
            return 0.0
        return weights.score_locality(rate(tier, node_class.capacity, gang, plan).value)

    if gang.fills_used_nodes:
        totals = {
            known: 0.0 if known is None else known.score + compute_points(ELSEWHERE, known)
            for known in view.class_counts
        }
        return dict(zip(view.request.nodes, map(totals.__getitem__, view.classes), strict=True))
    scores = _score_without_locality(view)
    nodes_by_leaf = view.index.nodes_by_leaf
    tiers = rank_leaves(view.offered_leaves if len(scores) < len(nodes_by_leaf) else nodes_by_leaf, gang)
    get_class = view.get_class
    points_by_tier: dict[float, dict[node_evaluation.NodeClass, float]] = {tier: {} for tier in tiers.values()}
    for leaf, tier in tiers.items():
        points = points_by_tier[tier]
        for name in scores.keys() & nodes_by_leaf[leaf].keys():
            if (node_class := get_class(name)) is not None:
                if node_class not in points:
                    points[node_class] = compute_points(tier, node_class)
                scores[name] += points[node_class]
    return scores


def explain(
    leaf: topology.Domain,
    node_capacity: node_slots.NodeCapacity,
    gang: gang_planning.GangSummary,
    plan: planner.Plan,
) -> score_terms.TermScore:
    """Return the value of a node on a leaf, with the reason."""
    value, code = rate(rank_leaves([leaf], gang).get(leaf, ELSEWHERE), node_capacity, gang, plan)
    return score_terms.TermScore(value, _describe(code, leaf, gang, plan))


def _describe(code: Code, leaf: topology.Domain, gang: gang_planning.GangSummary, plan: planner.Plan) -> reason.Reason:
    name = topology.format_domain(leaf)
    match code:
        case Code.PARTLY_USED_FIRST:
            return reason.make(Code.PARTLY_USED_FIRST)
        case Code.OTHERS_PARTLY_USED:
            return reason.make(Code.OTHERS_PARTLY_USED)
        case Code.NODE_TYPE_DIFFERS:
            return reason.make(Code.NODE_TYPE_DIFFERS, leaf=name, node_type=plan.shape or "")
        case Code.NODE_TOO_SLOW:
            return reason.make(Code.NODE_TOO_SLOW, leaf=name)
        case Code.NODE_RESERVED:
            return reason.make(Code.NODE_RESERVED, leaf=name)
        case Code.TARGET_LEAF:
            return _describe_target(leaf, gang)
        case Code.PLANNED_LEAF:
            position, leaves = list(gang.planned_leaves).index(leaf) + 1, len(gang.planned_leaves)
            return reason.make(Code.PLANNED_LEAF, leaf=name, position=position, leaves=leaves)
        case Code.SIBLING_LEAF:
            target = topology.format_domain(gang.target_leaf or topology.NO_DOMAIN)
            return reason.make(Code.SIBLING_LEAF, leaf=name, target=target)
        case _:
            return reason.make(Code.UNPLANNED_LEAF, leaf=name)


def _describe_target(leaf: topology.Domain, gang: gang_planning.GangSummary) -> reason.Reason:
    name, placed = topology.format_domain(leaf), gang.peers_by_leaf.get(leaf, 0)
    if gang.remaining_slots == 1 and not placed:
        return reason.make(Code.TIGHTEST_LEAF, leaf=name)
    return reason.make(
        Code.TARGET_LEAF,
        leaf=name,
        placed=placed,
        slots=gang.slots_by_leaf.get(leaf, 0),
        slots_needed=gang.remaining_slots,
        pods=gang.remaining,
    )


def _score_without_locality(view: request_view.RequestView) -> dict[str, float]:
    """Return the score of each candidate node without locality; 0 for nodes that the cache does not contain."""
    score_by_class = {known: 0.0 if known is None else known.score for known in view.class_counts}
    return dict(zip(view.request.nodes, map(score_by_class.__getitem__, view.classes), strict=True))
