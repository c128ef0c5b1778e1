"""Explains the result of one node: score, terms with their reasons, missing rails, pods that use them, and limits.

Explanations are formatted on demand from rows. A row stores the node's state at the time of the decision, and nothing
of the request.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from railwright.fabric import resources, topology
from railwright.fabric.placement import bandwidth, locality
from railwright.fabric.placement.gangs import gang_planning, planner
from railwright.fabric.placement.nodes import node_evaluation, request_view, score_terms
from railwright.fabric.placement.state import pod_usage, rail_health
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
        degradations += map(node_evaluation.describe_reported, pool.reported)
    if not degradations and node_capacity.shares and sum(node_capacity.shares) < 1 - _CLOSE:
        degradations.append(reason.make(Code.NICS_SHARED))
    return tuple(degradations)


def list_rail_names(evaluation: node_evaluation.NodeEvaluation) -> list[str]:
    """Return the names of the rails that the pod needs."""
    return [name for pool in evaluation.pools for name in pool.need.rails]


def describe_uplinks(
    uplinks: bandwidth.Uplinks, domain: topology.Domain, level: int, crossings: int = 1
) -> reason.Reason:
    """Return the reason that states the bandwidth, 0..1, of each ring edge over the domain's uplinks."""
    return reason.make(
        Code.UPLINKS_LIMIT,
        domain=topology.format_domain(domain),
        nodes=uplinks.count_nodes(domain),
        oversubscription=uplinks.get_ratio(level),
        carried=uplinks.compute_bandwidth(domain, level, crossings),
        crossings=crossings,
        has_unused_links=uplinks.links_per_rail > 1,
    )


# --- one node -------------------------------------------------------------------------------------------------

ListHolders = Callable[[str], tuple[pod_usage.Holder, ...]]
"""Node -> pods and claims that use its devices."""
ListReports = Callable[[str], Sequence[rail_health.RailState]]
"""Node -> reports about the rails of the pod's fabric."""

MAX_ROWS = 50  # feasible nodes stored for explanations, and as many infeasible ones
MAX_HOLDERS_NAMED = 5  # a node may have a hundred pods that use a shared pool


def name_leaves(leaves: Iterable[topology.Domain]) -> reason.Some:
    """Return the names of a few leaves and the number of the others."""
    return reason.take_first(map(topology.format_domain, leaves))


class NodeRow(NamedTuple):
    """The state of one node at the time of a decision."""

    node: str
    score: float  # 0..100
    # None: the cache does not contain the node; it is feasible and scores 0 (docs/interface.md 7.5)
    evaluation: node_evaluation.NodeEvaluation | None
    leaf: topology.Domain
    holders: tuple[pod_usage.Holder, ...]  # pods of the node, if it has too few free devices of a rail
    reports: Sequence[rail_health.RailState] = ()  # about rails of the fabric on the node

    @property
    def refusal(self) -> reason.Reason | None:
        """Return why the node is filtered; None if the pod fits."""
        return self.evaluation.refusal if self.evaluation is not None else None

    def list_holders(self, resource: str) -> tuple[str, ...]:
        """Return the pods (namespace/name) that use a resource."""
        return tuple(dict.fromkeys(holder.key for holder in self.holders if holder.requests.get(resource, 0) > 0))


class Explainer(msgspec.Struct, frozen=True):
    """Explains the nodes of one decision."""

    plan: planner.Plan
    gang: gang_planning.GangSummary
    terms: Sequence[score_terms.ScoreTerm]  # the weighted terms except locality

    def describe(self, row: NodeRow) -> dict[str, Any]:
        """Return a node's score, leaf, rejection, shortages and score terms, as in `/explain`."""
        entry: dict[str, Any] = {"node": row.node, "score": round(row.score, 1)}
        evaluation = row.evaluation
        if evaluation is None:
            return {**entry, "reason": rendering.describe(reason.make(Code.NODE_UNKNOWN))}
        entry["leaf"] = topology.format_domain(row.leaf)
        if evaluation.refusal:
            entry["rejection"] = rendering.describe(evaluation.refusal)
        lists = {
            "rails": _list_rail_shortages(row, evaluation.pools),
            "short": _list_other_shortages(evaluation),
            "degradations": _list_other_degradations(evaluation),
            "reports": map(describe_report, row.reports),
        }
        entry |= {key: described for key, reasons in lists.items() if (described := rendering.describe_all(reasons))}
        if terms := self.explain_terms(row):
            entry["terms"] = {
                name: {"value": round(term.value, 3), **msgspec.to_builtins(rendering.describe(term.reason))}
                for name, term in terms.items()
            }
        return entry

    def explain_terms(self, row: NodeRow) -> Mapping[str, score_terms.TermScore]:
        """Return the terms of a node's score by name; none if the node is filtered or unknown."""
        if row.evaluation is None or row.refusal:
            return {}
        terms = {}
        if self.gang.has_domains:
            terms[locality.NAME] = locality.explain(row.leaf, row.evaluation.capacity, self.gang, self.plan)
        return terms | {term.name: term.score(row.evaluation) for term in self.terms}


def describe_report(state: rail_health.RailState, node: str = "") -> reason.Reason:
    """Return the reason that states who reports a rail, and since when."""
    return reason.make(
        Code.RAIL_REPORTED,
        node=node,
        rail=state.rail,
        source=state.source,
        belief=state.belief,
        since=state.since,
        detail=state.detail,
        held=state.is_held,
    )


def _list_rail_shortages(row: NodeRow, pools: Iterable[node_evaluation.PoolAvailability]) -> Iterator[reason.Reason]:
    for pool in pools:
        if not pool.is_sufficient:
            yield reason.make(
                Code.RAIL_SHORTAGE,
                rail=pool.need.label,
                free=max(0, pool.free) // resources.UNIT,
                allocatable=pool.allocatable // resources.UNIT,
                holders=reason.take_first(row.list_holders(pool.need.resource), MAX_HOLDERS_NAMED),
            )


def _list_other_shortages(evaluation: node_evaluation.NodeEvaluation) -> Iterator[reason.Reason]:
    """Yield the missing resources other than rails."""
    pools = {pool.need.resource for pool in evaluation.pools}
    for name in list_short_resources(evaluation):
        if name not in pools:
            yield describe_shortage(evaluation, name)


def _list_other_degradations(evaluation: node_evaluation.NodeEvaluation) -> Iterator[reason.Reason]:
    """Yield the degradations; rails that are in use are among the shortages already, and others among the reports."""
    listed = (Code.RAIL_NOT_FREE, Code.RAIL_EXCLUDED, Code.RAIL_AVOIDED)
    return (cause for cause in list_degradations(evaluation) if cause.code not in listed)


# --- which nodes are stored ---------------------------------------------------------------------------------


def build_rows(  # noqa: PLR0913 - one argument a fact
    view: request_view.RequestView,
    list_holders: ListHolders,
    list_reports: ListReports,
    gang: gang_planning.GangSummary,
    scores: locality.NodeScores,
    *,
    first: Iterable[str] = (),
) -> list[NodeRow]:
    """Return rows of up to MAX_ROWS candidate nodes, and of up to MAX_ROWS infeasible ones.

    The nodes `first` come first, then those of the target leaf and of the planned leaves.
    """
    leaves = view.index.nodes_by_leaf
    planned = dict.fromkeys((gang.target_leaf, *gang.planned_leaves))
    names = itertools.chain(first, *[leaves.get(leaf, ()) for leaf in planned if leaf is not None])
    get_class = view.get_class
    chosen = dict.fromkeys(itertools.islice(filter(view.request.offered.__contains__, names), MAX_ROWS))
    others = (name for name in view.request.nodes if name not in chosen)
    chosen |= dict.fromkeys(itertools.islice(others, MAX_ROWS - len(chosen)))
    refused = {known for known in view.distinct_classes if known is not None and known.evaluation.refusal}
    if refused:
        infeasible = itertools.compress(view.request.nodes, map(refused.__contains__, view.classes))
        chosen |= dict.fromkeys(itertools.islice(infeasible, MAX_ROWS))
    # the nodes of a leaf belong to few classes
    lacks_rail = {
        node_class: any(not pool.is_sufficient for pool in node_class.evaluation.pools)
        for node_class in view.list_classes(chosen)
    }
    rows = []
    for name in chosen:
        node_class = get_class(name)
        evaluation = None if node_class is None else node_class.evaluation
        holders = list_holders(name) if node_class is not None and lacks_rail[node_class] else ()
        score = scores.get(name, node_class)
        rows.append(NodeRow(name, score, evaluation, view.get_leaf(name), holders, list_reports(name)))
    return rows
