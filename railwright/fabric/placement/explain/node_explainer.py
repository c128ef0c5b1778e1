"""Explains the result of one node: score, terms with their reasons, missing rails, and the pods that use them.

Explanations are formatted on demand from rows. A row stores the node's state at the time of the decision, and nothing
of the request.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from railwright.fabric import intent, topology
from railwright.fabric.placement import locality
from railwright.fabric.placement.gangs import gang_planning, planner
from railwright.fabric.placement.nodes import node_classes, node_evaluation, request_view, score_terms
from railwright.fabric.placement.state import device_holders
from railwright.fabric.reasons import reason

ListHolders = Callable[[str], tuple[device_holders.Holder, ...]]
"""Node -> pods and claims that use its devices."""

MAX_ROWS = 50  # feasible nodes stored for explanations, and as many infeasible ones
MAX_HOLDERS_NAMED = 5  # a node may have a hundred pods that use a shared pool


class NodeRow(NamedTuple):
    """The state of one node at the time of a decision."""

    node: str
    score: float
    evaluation: node_evaluation.NodeEvaluation | None  # None: the cache does not contain the node
    leaf: topology.Domain
    holders: tuple[device_holders.Holder, ...]  # pods of the node, if it has too few free devices of a rail


class PoolUsage(msgspec.Struct, frozen=True):
    """Usage of one device pool on a node. Amounts in milli-units."""

    need: intent.Need
    free: int
    allocatable: int
    is_sufficient: bool
    holders: tuple[str, ...]  # namespace/name of pods that use it, if not sufficient; at most MAX_HOLDERS_NAMED + 1


class NodeExplanation(msgspec.Struct, frozen=True):
    """The explanation of one node."""

    node: str
    is_known: bool  # False: the cache does not contain the node; it is feasible and scores 0 (docs/interface.md 7.5)
    score: float  # 0..100
    refusal: reason.Reason | None  # why the node is filtered; None if the pod fits
    is_unresolvable: bool  # the pod would not fit even if all other pods left the node
    terms: Mapping[str, score_terms.TermScore]  # by name
    rails: tuple[PoolUsage, ...]


class Explainer(msgspec.Struct, frozen=True):
    """Builds the explanations of one decision."""

    plan: planner.Plan
    gang: gang_planning.GangSummary
    terms: Sequence[score_terms.ScoreTerm]  # the weighted terms except locality

    def explain(self, row: NodeRow) -> NodeExplanation:
        """Return the explanation of a node."""
        evaluation = row.evaluation
        if evaluation is None:
            return NodeExplanation(
                row.node, is_known=False, score=0.0, refusal=None, is_unresolvable=False, terms={}, rails=()
            )
        return NodeExplanation(
            node=row.node,
            is_known=True,
            score=row.score,
            refusal=evaluation.refusal,
            is_unresolvable=evaluation.is_unresolvable,
            terms={} if evaluation.refusal else self._explain_terms(row.leaf, evaluation),
            rails=list_pool_usage(row),
        )

    def _explain_terms(
        self, leaf: topology.Domain, evaluation: node_evaluation.NodeEvaluation
    ) -> dict[str, score_terms.TermScore]:
        terms = {}
        if self.gang.has_domains:
            terms[locality.NAME] = locality.explain(leaf, evaluation.capacity, self.gang, self.plan)
        return terms | {term.name: term.score(evaluation) for term in self.terms}


def list_pool_usage(row: NodeRow) -> tuple[PoolUsage, ...]:
    """Return the device pools of a row, with the pods that use the insufficient ones."""
    return tuple(
        PoolUsage(
            need=pool.need,
            free=pool.free,
            allocatable=pool.allocatable,
            is_sufficient=pool.is_sufficient,
            holders=() if pool.is_sufficient else _list_holders(row.holders, pool.need.resource),
        )
        for pool in (row.evaluation.pools if row.evaluation else ())
    )


def _list_holders(holders: Sequence[device_holders.Holder], resource: str) -> tuple[str, ...]:
    keys = dict.fromkeys(holder.key for holder in holders if holder.requests.get(resource, 0) > 0)
    return tuple(keys)[: MAX_HOLDERS_NAMED + 1]


# --- which nodes are stored ---------------------------------------------------------------------------------


def build_infeasible_row(view: request_view.RequestView, list_holders: ListHolders, node: str) -> NodeRow:
    """Build the row of an infeasible node, with the pods that use it."""
    return NodeRow(node, 0.0, view.get_evaluation(node), view.get_leaf(node), list_holders(node))


def build_rows(
    view: request_view.RequestView,
    list_holders: ListHolders,
    gang: gang_planning.GangSummary,
    scores: Mapping[str, float],
    first: Iterable[str] = (),
) -> list[NodeRow]:
    """Return rows of up to MAX_ROWS candidate nodes, and of up to MAX_ROWS infeasible ones.

    The nodes `first` come first, then those of the target leaf and of the planned leaves.
    """
    leaves = view.index.nodes_by_leaf
    planned = [leaves.get(leaf, ()) for leaf in (gang.target_leaf, *gang.planned_leaves) if leaf is not None]
    names = itertools.chain(first, *planned, scores)
    class_of_node = view.class_of_node
    chosen = dict.fromkeys(itertools.islice(filter(scores.__contains__, names), MAX_ROWS))
    infeasible_classes = {node_class for node_class in view.index.classes if node_class.evaluation.refusal}
    if infeasible_classes:
        classes = map(class_of_node.get, scores)
        infeasible = (
            name for name, node_class in zip(scores, classes, strict=True) if node_class in infeasible_classes
        )
        chosen |= dict.fromkeys(itertools.islice(infeasible, MAX_ROWS))
    lacks_rail: dict[node_classes.NodeClass | None, bool] = {None: False}  # the nodes of a leaf belong to few classes
    rows = []
    for name in chosen:
        node_class = class_of_node.get(name)
        evaluation = None if node_class is None else node_class.evaluation
        if node_class not in lacks_rail:
            lacks_rail[node_class] = _lacks_rail(evaluation)
        holders = list_holders(name) if lacks_rail[node_class] else ()
        leaf = view.index.leaf_by_node.get(name, topology.NO_DOMAIN)
        rows.append(NodeRow(name, scores[name], evaluation, leaf, holders))
    return rows


def _lacks_rail(evaluation: node_evaluation.NodeEvaluation | None) -> bool:
    return evaluation is not None and any(not pool.is_sufficient for pool in evaluation.pools)
