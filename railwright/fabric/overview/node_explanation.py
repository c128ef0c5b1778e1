"""Describes one node for JSON: why a pod is not on it, or what the pod gets there.

Owns the row that `/explain` and the dashboard show of a node; its values come from `node_explainer` and `node_limits`.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from railwright.fabric import resources, topology
from railwright.fabric.placement.explain import node_explainer, node_limits
from railwright.fabric.placement.nodes import node_evaluation
from railwright.fabric.reasons import reason, rendering
from railwright.fabric.reasons.codes import Code


def describe(explanation: node_explainer.NodeExplanation, row: node_explainer.NodeRow) -> dict[str, Any]:
    """Return a node's score, leaf, rejection, insufficient rails and score terms."""
    entry: dict[str, Any] = {"node": explanation.node, "score": round(explanation.score, 1)}
    if not explanation.is_known:
        return {**entry, "reason": rendering.describe(reason.make(Code.NODE_UNKNOWN))}
    entry["leaf"] = topology.format_domain(row.leaf)
    if explanation.refusal:
        entry["rejection"] = rendering.describe(explanation.refusal)
    lists = {"rails": _list_rail_shortages(explanation)}
    if row.evaluation is not None:
        lists |= {"short": _list_shortages(row.evaluation), "degradations": _list_degradations(row.evaluation)}
    entry |= {key: described for key, reasons in lists.items() if (described := rendering.describe_all(reasons))}
    if explanation.terms:
        entry["terms"] = {
            name: {"value": round(term.value, 3), **msgspec.to_builtins(rendering.describe(term.reason))}
            for name, term in explanation.terms.items()
        }
    return entry


def _list_rail_shortages(explanation: node_explainer.NodeExplanation) -> Iterator[reason.Reason]:
    for rail in explanation.rails:
        if not rail.is_sufficient:
            yield reason.make(
                Code.RAIL_SHORTAGE,
                rail=rail.need.label,
                free=max(0, rail.free) // resources.UNIT,
                allocatable=rail.allocatable // resources.UNIT,
                holders=reason.take_first(rail.holders, node_explainer.MAX_HOLDERS_NAMED),
            )


def _list_shortages(evaluation: node_evaluation.NodeEvaluation) -> Iterator[reason.Reason]:
    """Yield the missing resources other than rails."""
    pools = {pool.need.resource for pool in evaluation.pools}
    for name in node_limits.list_short_resources(evaluation):
        if name not in pools:
            yield node_limits.describe_shortage(evaluation, name)


def _list_degradations(evaluation: node_evaluation.NodeEvaluation) -> Iterator[reason.Reason]:
    """Yield the degradations; rails that are in use are among the shortages already."""
    return (cause for cause in node_limits.list_degradations(evaluation) if cause.code is not Code.RAIL_NOT_FREE)
