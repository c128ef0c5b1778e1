"""Selects the nodes of a decision that are stored for explanations, and builds their rows."""

import itertools
from collections.abc import Callable, Iterable, Mapping

from railwright.fabric import topology
from railwright.fabric.placement.explain import node_explainer
from railwright.fabric.placement.nodes import node_classes, node_evaluation, request_view
from railwright.fabric.placement.state import device_holders

ListHolders = Callable[[str], tuple[device_holders.Holder, ...]]
"""Node -> pods and claims that use its devices."""


def build_row(
    view: request_view.RequestView, list_holders: ListHolders, node: str, score: float
) -> node_explainer.NodeRow:
    """Build the row of a node, with the pods that use it if it lacks a rail."""
    evaluation = view.get_evaluation(node)
    holders = list_holders(node) if _lacks_rail(evaluation) else ()
    return node_explainer.NodeRow(node, score, evaluation, view.get_leaf(node), holders)


def build_infeasible_row(
    view: request_view.RequestView, list_holders: ListHolders, node: str
) -> node_explainer.NodeRow:
    """Build the row of an infeasible node, with the pods that use it."""
    return node_explainer.NodeRow(node, 0.0, view.get_evaluation(node), view.get_leaf(node), list_holders(node))


def build_rows(
    view: request_view.RequestView,
    list_holders: ListHolders,
    names: Iterable[str],
    max_rows: int,
    scores: Mapping[str, float],
) -> list[node_explainer.NodeRow]:
    """Build rows for up to `max_rows` of these nodes, and for up to `max_rows` infeasible ones."""
    class_of_node = view.map_classes()
    chosen = dict.fromkeys(itertools.islice(filter(scores.__contains__, names), max_rows))
    infeasible_classes = {node_class for node_class in view.index.classes if node_class.evaluation.refusal}
    if infeasible_classes:
        classes = map(class_of_node.get, scores)
        infeasible = (
            name for name, node_class in zip(scores, classes, strict=True) if node_class in infeasible_classes
        )
        chosen |= dict.fromkeys(itertools.islice(infeasible, max_rows))
    lacks_rail: dict[node_classes.NodeClass | None, bool] = {None: False}  # the nodes of a leaf belong to few classes
    rows = []
    for name in chosen:
        node_class = class_of_node.get(name)
        evaluation = None if node_class is None else node_class.evaluation
        if node_class not in lacks_rail:
            lacks_rail[node_class] = _lacks_rail(evaluation)
        holders = list_holders(name) if lacks_rail[node_class] else ()
        leaf = view.index.leaf_by_node.get(name, topology.NO_DOMAIN)
        rows.append(node_explainer.NodeRow(name, scores[name], evaluation, leaf, holders))
    return rows


def _lacks_rail(evaluation: node_evaluation.NodeEvaluation | None) -> bool:
    return evaluation is not None and any(not pool.is_sufficient for pool in evaluation.pools)
