"""Explains the result of one node: score, terms with their reasons, missing rails, pods that use them, and limits.

Explanations are formatted on demand from rows. A row stores the node's state at the time of the decision, and nothing
of the request.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from railwright.fabric import intent, resources, topology
from railwright.fabric.placement import locality
from railwright.fabric.placement.gangs import gang_planning, planner
from railwright.fabric.placement.nodes import node_evaluation, node_slots, request_view, score_terms
from railwright.fabric.placement.state import pod_usage
from railwright.fabric.reasons import reason, rendering
from railwright.fabric.reasons.codes import Code

# --- what limits a node ---------------------------------------------------------------------------------------

_CLOSE = 1e-6


def find_blocking_reason(evaluation: node_evaluation.NodeEvaluation) -> reason.Reason:
    """Return why nodes of this class have no slot."""
    if not evaluation.facts.eligible:
        return reason.make(Code.NODE_INELIGIBLE)
    if lacking := list_short_resources(evaluation):
        return describe_shortage(evaluation, lacking[0])
    return evaluation.refusal or reason.make(Code.OTHER_RESOURCES)


def list_short_resources(evaluation: node_evaluation.NodeEvaluation) -> list[str]:
    """Return the accelerators and rail resources with fewer free devices on the node than one pod requests."""
    return [name for name, (free, _, requested) in evaluation.usage.items() if free < requested]


def describe_shortage(evaluation: node_evaluation.NodeEvaluation, resource: str) -> reason.Reason:
    """Return the reason that states the free and the needed amount of one resource."""
    free, allocatable, requested = evaluation.usage[resource]
    return reason.make(
        Code.DEVICE_SHORTAGE,
        device=get_label(evaluation, resource),
        free=max(0, free) // resources.UNIT,
        allocatable=allocatable // resources.UNIT,
        needed=requested // resources.UNIT,
    )


def get_label(evaluation: node_evaluation.NodeEvaluation, resource: str) -> str:
    """Return the name of the rails that use a resource, or the resource itself if no needed rail does."""
    return next((pool.need.label for pool in evaluation.pools if pool.need.resource == resource), resource)


def list_degradations(evaluation: node_evaluation.NodeEvaluation) -> tuple[reason.Reason, ...]:
    """Return the reasons why nodes of this class have less than full bandwidth."""
    degradations = []
    node_capacity = evaluation.capacity
    if node_capacity.slot_numa_factors and node_capacity.slot_numa_factors[0] < 1:
        degradations.append(reason.make(Code.NUMA_SPLIT))
    for pool in evaluation.pools:
        if not pool.is_sufficient:
            code = Code.RAIL_NOT_FREE if pool.allocatable > 0 else Code.RAIL_DEAD
            degradations.append(reason.make(code, rail=pool.need.label))
        elif not pool.is_healthy:
            degradations.append(reason.make(Code.RAIL_DEGRADED, rail=pool.need.label))
    if not degradations and node_capacity.shares and sum(node_capacity.shares) < 1 - _CLOSE:
        degradations.append(reason.make(Code.NICS_SHARED))
    return tuple(degradations)


def list_rail_names(evaluation: node_evaluation.NodeEvaluation) -> list[str]:
    """Return the names of the rails that the pod needs."""
    return [name for pool in evaluation.pools for name in pool.need.rails]


def describe_uplinks(  # noqa: PLR0913, PLR0917 - one argument for each parameter of the reason
    domain: topology.Domain,
    nodes: int,
    ratio: float,
    carried: node_slots.Bandwidth,
    crossings: int = 1,
    links: float = 1.0,
) -> reason.Reason:
    """Return the reason that states the bandwidth (`carried`, 0..1) of each ring edge over the domain's uplinks."""
    return reason.make(
        Code.UPLINKS_LIMIT,
        domain=topology.format_domain(domain),
        nodes=nodes,
        oversubscription=ratio,
        carried=carried,
        crossings=crossings,
        has_unused_links=links > 1,
    )


# --- one node -------------------------------------------------------------------------------------------------

ListHolders = Callable[[str], tuple[pod_usage.Holder, ...]]
"""Node -> pods and claims that use its devices."""

MAX_ROWS = 50  # feasible nodes stored for explanations, and as many infeasible ones
MAX_HOLDERS_NAMED = 5  # a node may have a hundred pods that use a shared pool


class NodeRow(NamedTuple):
    """The state of one node at the time of a decision."""

    node: str
    score: float
    evaluation: node_evaluation.NodeEvaluation | None  # None: the cache does not contain the node
    leaf: topology.Domain
    holders: tuple[pod_usage.Holder, ...]  # pods of the node, if it has too few free devices of a rail


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


def _list_holders(holders: Sequence[pod_usage.Holder], resource: str) -> tuple[str, ...]:
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
    lacks_rail: dict[node_evaluation.NodeClass | None, bool] = {
        None: False
    }  # the nodes of a leaf belong to few classes
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


# --- as JSON --------------------------------------------------------------------------------------------------


def describe_node(explanation: NodeExplanation, row: NodeRow) -> dict[str, Any]:
    """Return a node's score, leaf, rejection, insufficient rails and score terms."""
    entry: dict[str, Any] = {"node": explanation.node, "score": round(explanation.score, 1)}
    if not explanation.is_known:
        return {**entry, "reason": rendering.describe(reason.make(Code.NODE_UNKNOWN))}
    entry["leaf"] = topology.format_domain(row.leaf)
    if explanation.refusal:
        entry["rejection"] = rendering.describe(explanation.refusal)
    lists = {"rails": _list_rail_shortages(explanation)}
    if row.evaluation is not None:
        lists |= {"short": _list_shortages(row.evaluation), "degradations": _list_other_degradations(row.evaluation)}
    entry |= {key: described for key, reasons in lists.items() if (described := rendering.describe_all(reasons))}
    if explanation.terms:
        entry["terms"] = {
            name: {"value": round(term.value, 3), **msgspec.to_builtins(rendering.describe(term.reason))}
            for name, term in explanation.terms.items()
        }
    return entry


def _list_rail_shortages(explanation: NodeExplanation) -> Iterator[reason.Reason]:
    for rail in explanation.rails:
        if not rail.is_sufficient:
            yield reason.make(
                Code.RAIL_SHORTAGE,
                rail=rail.need.label,
                free=max(0, rail.free) // resources.UNIT,
                allocatable=rail.allocatable // resources.UNIT,
                holders=reason.take_first(rail.holders, MAX_HOLDERS_NAMED),
            )


def _list_shortages(evaluation: node_evaluation.NodeEvaluation) -> Iterator[reason.Reason]:
    """Yield the missing resources other than rails."""
    pools = {pool.need.resource for pool in evaluation.pools}
    for name in list_short_resources(evaluation):
        if name not in pools:
            yield describe_shortage(evaluation, name)


def _list_other_degradations(evaluation: node_evaluation.NodeEvaluation) -> Iterator[reason.Reason]:
    """Yield the degradations; rails that are in use are among the shortages already."""
    return (cause for cause in list_degradations(evaluation) if cause.code is not Code.RAIL_NOT_FREE)
