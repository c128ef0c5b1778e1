"""Explains the result of one node: score, terms with their reasons, missing rails, pods that use them, and limits.

Explanations are formatted on demand from rows. A row stores the node's state at the time of the decision, and nothing
of the request.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from railwright.fabric import resources, text, topology
from railwright.fabric.placement import bandwidth, locality
from railwright.fabric.placement.gangs import gang_planning, planner
from railwright.fabric.placement.nodes import node_evaluation, request_view, score_terms
from railwright.fabric.placement.state import pod_usage
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import PlacementCode

# --- what limits a node ---------------------------------------------------------------------------------------

_CLOSE = 1e-6


def find_blocking_reason(evaluation: node_evaluation.NodeEvaluation) -> reason.Reason:
    """Return why nodes of this class have no slot."""
    if not evaluation.facts.eligible:
        return reason.Reason(
            PlacementCode.NODE_INELIGIBLE,
            "cordoned, not Ready, tainted, or not matched by the pod's node selector or affinity",
        )
    if lacking := list_short_resources(evaluation):
        return describe_shortage(evaluation, lacking[0])
    return evaluation.fault or reason.Reason(
        PlacementCode.OTHER_RESOURCES, "too little CPU or memory, or too many pods"
    )


def list_short_resources(evaluation: node_evaluation.NodeEvaluation) -> list[str]:
    """Return the accelerators and rail resources with fewer free devices on the node than one pod requests."""
    return [name for name, (free, _, requested) in evaluation.usage.items() if free < requested]


def describe_shortage(evaluation: node_evaluation.NodeEvaluation, resource: str) -> reason.Reason:
    """Return the reason that states the free and the needed amount of one resource."""
    free, allocatable, requested = evaluation.usage[resource]
    message = _format_shortage(get_label(evaluation, resource), free, allocatable, requested)
    return reason.Reason(PlacementCode.DEVICE_SHORTAGE, message)


def _format_shortage(label: str, free: int, allocatable: int, requested: int) -> str:
    free_devices, all_devices = max(0, free) // resources.UNIT, allocatable // resources.UNIT
    return f"{label} has {free_devices} of {all_devices} free, {requested // resources.UNIT} needed"


def get_label(evaluation: node_evaluation.NodeEvaluation, resource: str) -> str:
    """Return the name of the rails that use a resource, or the resource itself if no needed rail does."""
    return next((pool.need.label for pool in evaluation.pools if pool.need.resource == resource), resource)


def list_degradations(evaluation: node_evaluation.NodeEvaluation) -> tuple[reason.Reason, ...]:
    """Return the reasons why nodes of this class have less than full bandwidth."""
    degradations = []
    node_capacity = evaluation.capacity
    if node_capacity.slot_numa_factors and node_capacity.slot_numa_factors[0] < 1:
        degradations.append(reason.Reason(PlacementCode.NUMA_SPLIT, "NUMA splits"))
    for pool in evaluation.pools:
        if not pool.is_sufficient:
            shortage = reason.Reason(PlacementCode.DEVICE_SHORTAGE, f"{pool.need.label} not free")
            dead = reason.Reason(PlacementCode.RAIL_BROKEN, f"{pool.need.label} dead or absent")
            degradations.append(shortage if pool.allocatable > 0 else dead)
        elif not pool.is_healthy:
            degradations.append(reason.Reason(PlacementCode.RAIL_BROKEN, f"{pool.need.label} degraded"))
    if not degradations and node_capacity.shares and sum(node_capacity.shares) < 1 - _CLOSE:
        degradations.append(reason.Reason(PlacementCode.NICS_SHARED, "NICs shared with other pods"))
    return tuple(degradations)


def list_rail_names(evaluation: node_evaluation.NodeEvaluation) -> list[str]:
    """Return the names of the rails that the pod needs."""
    return [name for pool in evaluation.pools for name in pool.need.rails]


def describe_uplinks(
    uplinks: bandwidth.Uplinks, domain: topology.Domain, level: int, crossings: int = 1
) -> reason.Reason:
    """Return the reason that states the bandwidth, 0..1, of each ring edge over the domain's uplinks."""
    size = f"{text.format_count(uplinks.count_nodes(domain), 'node')}, {uplinks.get_ratio(level):g}:1"
    if uplinks.links_per_rail > 1:
        size += ", including the uplinks of rails that the gang does not use"
    carried = f"{uplinks.compute_bandwidth(domain, level, crossings):.2f}"
    share = f" for each of {crossings} crossings" if crossings > 1 else ""
    message = f"the uplinks of {topology.format_domain(domain)} ({size}) carry {carried}{share}"
    return reason.Reason(PlacementCode.UPLINKS_LIMIT, message)


# --- one node -------------------------------------------------------------------------------------------------

ListHolders = Callable[[str], tuple[pod_usage.Holder, ...]]
"""Node -> pods and claims that use its devices."""

MAX_ROWS = 50  # feasible nodes stored for explanations, and as many infeasible ones
MAX_NAMED = 3  # items of a list in a reason
_MAX_HOLDERS_NAMED = 5  # a node may have a hundred pods that use a shared pool


def name_leaves(leaves: Iterable[topology.Domain]) -> str:
    """Return the names of a few leaves and the number of the others."""
    return text.join_first(map(topology.format_domain, leaves), MAX_NAMED)


def count_on_leaves(counts: Iterable[tuple[topology.Domain, int]]) -> str:
    """Return the names of a few leaves with their numbers, and the number of the others."""
    return text.join_first([f"{topology.format_domain(leaf)} {count}" for leaf, count in counts], MAX_NAMED)


class NodeRow(NamedTuple):
    """The state of one node at the time of a decision."""

    node: str
    score: float  # 0..100
    # None: the cache does not contain the node; it is feasible and scores 0 (docs/interface.md 7.5)
    evaluation: node_evaluation.NodeEvaluation | None
    leaf: topology.Domain
    holders: tuple[pod_usage.Holder, ...]  # pods of the node, if it has too few free devices of a rail
    refusal: reason.Reason | None = None  # why the pod may not go there

    def list_holders(self, resource: str) -> tuple[str, ...]:
        """Return the pods (namespace/name) that use a resource."""
        return tuple(dict.fromkeys(holder.key for holder in self.holders if holder.requests.get(resource, 0) > 0))


_UNKNOWN = reason.Reason(PlacementCode.NODE_UNKNOWN, "the cache does not contain this node yet: it scores 0")


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
            return {**entry, "reason": _UNKNOWN}
        entry["leaf"] = topology.format_domain(row.leaf)
        main = row.refusal or evaluation.fault
        if row.refusal is not None:
            entry["rejection"] = row.refusal
        elif evaluation.fault is not None:
            entry["fault"] = evaluation.fault
        lists = {
            "rails": _list_rail_shortages(row, evaluation.pools),
            "short": _list_other_shortages(evaluation),
            "degradations": _list_other_degradations(evaluation),
            "broken": [rail.describe() for rail in evaluation.facts.broken if rail.describe() != main],
        }
        entry |= {key: described for key, reasons in lists.items() if (described := tuple(reasons))}
        if terms := self.explain_terms(row):
            entry["terms"] = {
                name: {"value": round(value, 3), "message": message} for name, (value, message) in terms.items()
            }
        return entry

    def explain_terms(self, row: NodeRow) -> Mapping[str, tuple[float, str]]:
        """Return the terms of a node's score by name, each with its value and why.

        There are none if the node is refused, comes last, or is unknown.
        """
        if row.evaluation is None or row.refusal is not None or row.evaluation.fault is not None:
            return {}
        terms = {}
        if self.gang.has_domains:
            terms[locality.NAME] = locality.explain(row.leaf, row.evaluation.capacity, self.gang, self.plan)
        return terms | {term.name: (term.score(row.evaluation), term.explain(row.evaluation)) for term in self.terms}


def _list_rail_shortages(row: NodeRow, pools: Iterable[node_evaluation.PoolAvailability]) -> Iterator[reason.Reason]:
    for pool in pools:
        if not pool.is_sufficient:
            message = _format_shortage(pool.need.label, pool.free, pool.allocatable, pool.need.amount)
            if holders := row.list_holders(pool.need.resource):
                others = " and others" if len(holders) > _MAX_HOLDERS_NAMED else ""
                message += f", held by {', '.join(holders[:_MAX_HOLDERS_NAMED])}{others}"
            yield reason.Reason(PlacementCode.DEVICE_SHORTAGE, message)


def _list_other_shortages(evaluation: node_evaluation.NodeEvaluation) -> Iterator[reason.Reason]:
    """Yield the missing resources other than rails."""
    pools = {pool.need.resource for pool in evaluation.pools}
    for name in list_short_resources(evaluation):
        if name not in pools:
            yield describe_shortage(evaluation, name)


def _list_other_degradations(evaluation: node_evaluation.NodeEvaluation) -> Iterator[reason.Reason]:
    """Yield the degradations; rails that are in use are among the shortages already."""
    return (cause for cause in list_degradations(evaluation) if cause.code is not PlacementCode.DEVICE_SHORTAGE)


# --- which nodes are stored ---------------------------------------------------------------------------------


def build_rows(  # noqa: PLR0913 - one argument a fact
    view: request_view.RequestView,
    list_holders: ListHolders,
    gang: gang_planning.GangSummary,
    score: Callable[[Sequence[str]], Mapping[str, float]],
    *,
    refusals: Mapping[str, reason.Reason],
    first: Iterable[str] = (),
) -> list[NodeRow]:
    """Return rows of up to MAX_ROWS candidate nodes, and of up to MAX_ROWS refused ones.

    The nodes `first` come first, then those of the target leaf and of the planned leaves.
    """
    leaves = view.index.nodes_by_leaf
    planned = dict.fromkeys((gang.target_leaf, *gang.planned_leaves))
    names = itertools.chain(first, *[leaves.get(leaf, ()) for leaf in planned if leaf is not None])
    get_class = view.get_class
    chosen = dict.fromkeys(itertools.islice(filter(view.request.offered.__contains__, names), MAX_ROWS))
    others = (name for name in view.request.nodes if name not in chosen)
    chosen |= dict.fromkeys(itertools.islice(others, MAX_ROWS - len(chosen)))
    chosen |= dict.fromkeys(itertools.islice(refusals, MAX_ROWS))
    # the nodes of a leaf belong to few classes
    lacks_rail = {
        node_class: any(not pool.is_sufficient for pool in node_class.evaluation.pools)
        for node_class in view.list_classes(chosen)
    }
    rows, scores = [], score([name for name in chosen if name in view.request.offered])
    for name in chosen:
        node_class = get_class(name)
        evaluation = None if node_class is None else node_class.evaluation
        holders = list_holders(name) if node_class is not None and lacks_rail[node_class] else ()
        leaf, refusal = view.get_leaf(name), refusals.get(name)
        rows.append(NodeRow(name, scores.get(name, 0.0), evaluation, leaf, holders, refusal))
    return rows
