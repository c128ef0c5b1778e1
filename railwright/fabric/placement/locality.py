"""Scores nodes by their own terms and by the gang's plan: target leaf, other planned leaves, same spine, elsewhere.

There are few tiers, far apart, so that a greedy scheduler that adds other scores still follows the plan rank by rank.
`rate` is the rule. The scores of all nodes and the explanation of one follow from it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

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


class NodeScores(msgspec.Struct, frozen=True):
    """The scores of the candidate nodes, 0..100; 0 for those that the cache does not contain.

    Nodes on leaves above the lowest tier have their own, all others that of their class. Thousands of them are needed
    only if the scheduler asks for all scores.
    """

    nodes: Sequence[str]
    classes: request_view.Classes  # of the nodes
    of_classes: Mapping[node_evaluation.NodeClass | None, float]  # at most that of any node of the class
    of_nodes: Mapping[str, float]

    @property
    def best(self) -> float:
        """Return the highest score; 0 without nodes."""
        return max([*self.of_classes.values(), *self.of_nodes.values()], default=0.0)

    def get(self, node: str, node_class: node_evaluation.NodeClass | None) -> float:
        """Return the score of a candidate node of this class."""
        score = self.of_nodes.get(node)
        return self.of_classes[node_class] if score is None else score

    def list_all(self, factor: float = 1.0) -> dict[str, float]:
        """Return the score of each node, times a factor."""
        of_classes = {known: score * factor for known, score in self.of_classes.items()}
        scores = dict(zip(self.nodes, map(of_classes.__getitem__, self.classes), strict=True))
        scores |= {name: score * factor for name, score in self.of_nodes.items()}
        return scores


def score_nodes(view: request_view.RequestView, gang: gang_planning.GangSummary, plan: planner.Plan) -> NodeScores:
    """Return the score of each candidate node: its own, and that of its rating.

    The rating depends on the tier and the class, of which there are few. So it is computed once for each pair of them,
    and only the nodes of leaves above the lowest tier are visited.
    """
    weights = view.index.weights

    def compute_points(tier: float, node_class: node_evaluation.NodeClass | None) -> float:
        if node_class is None or node_class.evaluation.refusal:
            return 0.0
        return weights.score_locality(rate(tier, node_class.capacity, gang, plan).value)

    of_classes = {known: 0.0 if known is None else known.score for known in view.distinct_classes}
    of_nodes: dict[str, float] = {}
    if gang.fills_used_nodes:
        of_classes = {known: score + compute_points(ELSEWHERE, known) for known, score in of_classes.items()}
        return NodeScores(view.request.nodes, view.classes, of_classes, of_nodes)
    nodes_by_leaf, offered = view.index.nodes_by_leaf, view.request.offered
    tiers = rank_leaves(view.offered_leaves if len(offered) < len(nodes_by_leaf) else nodes_by_leaf, gang)
    for tier in set(tiers.values()):
        leaves = [leaf for leaf, value in tiers.items() if value == tier]
        names = [name for leaf in leaves for name in offered.intersection(nodes_by_leaf[leaf])]
        classes = view.find_classes(names)
        scores = {known: of_classes[known] + compute_points(tier, known) for known in set(classes)}
        of_nodes.update(zip(names, map(scores.__getitem__, classes), strict=True))
    return NodeScores(view.request.nodes, view.classes, of_classes, of_nodes)


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
