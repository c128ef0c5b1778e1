"""Computes the final scores of all candidate nodes: the node's own score plus the score of its leaf's locality tier."""

import contextlib
import operator
from collections.abc import Iterable, Mapping, Sequence

from railwright.fabric import topology
from railwright.fabric.placement.nodes import node_classes, node_index, request_view
from railwright.fabric.placement.nodes.terms import locality


def score_nodes(view: request_view.RequestView, plan: locality.Plan, gang: locality.GangSummary) -> dict[str, float]:
    """Return the score, 0..100, of each candidate node: its own score plus that of its leaf's locality tier."""
    if gang.fills_used_nodes:
        return _score_single_pod(view, gang.max_fill_priority)
    scores = _score_without_locality(view)
    if gang.target_leaf is None:
        return scores
    usable = [node_class for node_class in view.index.classes if not node_class.evaluation.refusal]
    meeting_plan = [node_class for node_class in usable if not gang.is_planned or plan.is_met_by(node_class.capacity)]
    for leaf, names in _list_scored_leaves(view.index, gang):
        tier = locality.get_tier(leaf, gang)
        locality_scores = dict.fromkeys(
            meeting_plan if tier >= locality.PLANNED else usable, view.index.weights.score_locality(tier)
        )
        if leaf == gang.target_leaf and gang.is_planned:
            spared_score = view.index.weights.score_locality(locality.PLANNED)
            locality_scores |= {
                node_class: spared_score
                for node_class in locality_scores
                if node_class.capacity.fill_priority > gang.max_fill_priority
            }
        _add_scores(scores, names, view, locality_scores)
    return scores


def _add_scores(
    scores: dict[str, float],
    names: Iterable[str],
    view: request_view.RequestView,
    score_by_class: Mapping[node_classes.NodeClass, float],
) -> None:
    """Add the score of its class to the score of each candidate node among `names`."""
    overrides, class_of_node = view.overrides, view.index.class_of_node
    for name in names:
        if name in scores:
            node_class = overrides.get(name) or class_of_node.get(name)
            if node_class is not None and node_class in score_by_class:
                scores[name] += score_by_class[node_class]


def _score_without_locality(view: request_view.RequestView) -> dict[str, float]:
    """Return the score of each candidate node without locality."""
    scores = _look_up(view.request.nodes, view.index.node_scores)
    for name, node_class in view.overrides.items():
        if name in scores:
            scores[name] = node_class.score
    return scores


def _look_up(names: Sequence[str], node_scores: Mapping[str, float]) -> dict[str, float]:
    """Return the score of each node; 0 for nodes that the cache does not contain."""
    if len(names) > 1:  # hot path: itemgetter is much faster than a loop, but fails if it returns no tuple
        with contextlib.suppress(KeyError):
            return dict(zip(names, operator.itemgetter(*names)(node_scores), strict=True))
    return {name: node_scores.get(name, 0.0) for name in names}


def _score_single_pod(view: request_view.RequestView, max_fill_priority: int) -> dict[str, float]:
    """Score nodes for a single-pod job: those up to this fill priority get the score of the target leaf."""
    weights = view.index.weights
    first, rest = weights.score_locality(locality.TARGET), weights.score_locality(locality.PLANNED)
    totals: dict[node_classes.NodeClass | None, float] = {None: 0.0}  # None: a node that the cache does not contain
    for node_class in view.index.classes:
        tier = first if node_class.capacity.fill_priority <= max_fill_priority else rest
        totals[node_class] = 0.0 if node_class.evaluation.refusal else node_class.score + tier
    nodes = view.request.nodes
    return dict(zip(nodes, map(totals.__getitem__, map(view.map_classes().get, nodes)), strict=True))


def _list_scored_leaves(
    index: node_index.NodeIndex, gang: locality.GangSummary
) -> Iterable[tuple[topology.Domain, Mapping[str, None]]]:
    """Yield the leaves above the lowest tier, with their nodes: planned leaves, and leaves with the target's parent."""
    target_leaf, planned = gang.target_leaf, {gang.target_leaf, *gang.planned_leaves}
    for leaf, names in index.nodes_by_leaf.items():
        if target_leaf is not None and (leaf in planned or locality.is_beside(leaf, target_leaf)):
            yield leaf, names
