"""Computes the final scores of all candidate nodes: the node's own score plus the score of its leaf's locality tier."""

import operator
from collections.abc import Iterable, Mapping, Sequence

from railwright.fabric import topology
from railwright.fabric.placement import scheduling_request
from railwright.fabric.placement.gangs import planner, single_pods
from railwright.fabric.placement.nodes import node_index, request_view
from railwright.fabric.placement.nodes.terms import locality


def score_nodes(
    request: scheduling_request.SchedulingRequest,
    view: request_view.RequestView,
    plan: planner.Plan,
    gang: locality.GangSummary,
) -> dict[str, float]:
    """Return the score, 0..100, of each candidate node: its own score plus that of its leaf's locality tier."""
    index = view.index
    if gang.fills_used_nodes:
        return single_pods.score_nodes(
            view,
            index.compute_locality_score(locality.TARGET),
            index.compute_locality_score(locality.PLANNED),
            gang.max_fill_priority,
        )
    scores = _score_without_locality(request, view)
    if gang.target_leaf is None:
        return scores
    usable = [not evaluation.refusal for evaluation in index.evaluations]
    meets_plan = [
        fits and (not gang.is_planned or plan.is_met_by(evaluation.capacity))
        for fits, evaluation in zip(usable, index.evaluations, strict=True)
    ]
    for leaf, names in _list_scored_leaves(index, gang):
        tier = locality.get_tier(leaf, gang)
        locality_scores = [index.compute_locality_score(tier)] * len(index.evaluations)
        if leaf == gang.target_leaf and gang.is_planned:
            spared_score = index.compute_locality_score(locality.PLANNED)
            locality_scores = [
                spared_score if evaluation.capacity.fill_priority > gang.max_fill_priority else each
                for each, evaluation in zip(locality_scores, index.evaluations, strict=True)
            ]
        is_scored: Sequence[bool] = meets_plan if tier >= locality.PLANNED else usable
        for name in names:
            if name in scores and is_scored[node_class := _get_class(view, name)]:
                scores[name] += locality_scores[node_class]
    return scores


def _score_without_locality(
    request: scheduling_request.SchedulingRequest, view: request_view.RequestView
) -> dict[str, float]:
    """Return the score of each candidate node without locality."""
    index = view.index
    try:
        node_scores = operator.itemgetter(*request.nodes)(index.node_scores) if len(request.nodes) > 1 else ()
        scores = dict(zip(request.nodes, node_scores, strict=False))
    except KeyError:  # a candidate node is not in the cache
        scores = {}
    if len(scores) != len(request.nodes):
        scores = {name: index.node_scores.get(name, 0.0) for name in request.nodes}
    for name, node_class in view.overrides.items():
        if name in scores:
            scores[name] = index.scores[node_class]
    return scores


def find_min_fill_priority(capacity: planner.GangCapacity, target_leaf: topology.Domain, plan: planner.Plan) -> int:
    """Return the lowest fill priority of the nodes in the target leaf that meet the plan."""
    grades = (
        capacity.node_capacities[node_class]
        for node_class, nodes in capacity.class_counts.get(target_leaf, {}).items()
        if nodes > 0
    )
    return min(
        (node_capacity.fill_priority for node_capacity in grades if plan.is_met_by(node_capacity)),
        default=locality.NO_FILL_LIMIT,
    )


def _get_class(view: request_view.RequestView, name: str) -> int:
    found = view.get_class(name)
    return -1 if found is None else found


def _list_scored_leaves(
    index: node_index.NodeIndex, gang: locality.GangSummary
) -> Iterable[tuple[topology.Domain, Mapping[str, None]]]:
    """Yield the leaves above the lowest tier, with their nodes: planned leaves, and leaves with the target's parent."""
    target_leaf, planned = gang.target_leaf, {gang.target_leaf, *gang.planned_leaves}
    for leaf, names in index.nodes_by_leaf.items():
        if target_leaf is not None and (leaf in planned or locality.is_beside(leaf, target_leaf)):
            yield leaf, names
