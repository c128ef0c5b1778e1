"""Formats the explanation of one node: why a pod is not on it, or what the pod gets there.

Owns the row that `/explain` and the dashboard show of a node; its values come from `node_explainer` and `diagnosis`.
"""

from collections.abc import Sequence
from typing import Any

from railwright.fabric import resources, topology
from railwright.fabric.placement.explain import diagnosis, node_explainer
from railwright.fabric.placement.nodes import node_evaluation


def describe(verdict: node_explainer.NodeExplanation, row: node_explainer.NodeRow) -> dict[str, Any]:
    """Return a node's score, leaf, refusal, insufficient rails and score terms."""
    entry: dict[str, Any] = {"node": verdict.node, "score": round(verdict.score, 1)}
    if not verdict.is_known:
        return {**entry, "reason": "the cache does not contain this node yet: it is feasible and scores 0"}
    entry["leaf"] = topology.name_of(row.leaf)
    if verdict.refusal:
        entry["refused"] = verdict.refusal
    insufficient = [rail for rail in verdict.rails if not rail.is_sufficient]
    if insufficient:
        entry["rails"] = [
            f"{rail.need.label} has {max(0, rail.free) // resources.UNIT} of {rail.allocatable // resources.UNIT} free"
            + _format_holders(rail.holders)
            for rail in insufficient
        ]
    if row.evaluation is not None:
        entry |= _shortages(row.evaluation)
    if verdict.terms:
        entry["terms"] = {
            name: {"value": round(value, 3), "reason": why} for name, (value, why) in verdict.terms.items()
        }
    return entry


def _shortages(evaluation: node_evaluation.NodeEvaluation) -> dict[str, Any]:
    """Return the missing resources other than rails, and the degradations; empty if there are none."""
    pools = {rail.need.resource for rail in evaluation.pools}
    short = [
        diagnosis.format_shortage(evaluation, name)
        for name in diagnosis.list_short_resources(evaluation)
        if name not in pools
    ]
    flaws = [flaw for flaw in diagnosis.list_degradations(evaluation) if not flaw.endswith("not free")]
    return ({"short": short} if short else {}) | ({"flaws": flaws} if flaws else {})


def _format_holders(holders: Sequence[str]) -> str:
    if not holders:
        return ""
    more = " and others" if len(holders) > node_explainer.MAX_HOLDERS_NAMED else ""
    return f", held by {', '.join(holders[: node_explainer.MAX_HOLDERS_NAMED])}{more}"
