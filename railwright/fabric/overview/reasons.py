"""One node in words, for whoever asks why a pod is not there, or is.

Owns the row that `/explain` and the dashboard show of a node; the words come from `verdicts` and `account`.
"""

from collections.abc import Sequence
from typing import Any

from railwright.fabric import resources, topology
from railwright.fabric.placement import account, standing, verdicts


def of_node(verdict: verdicts.Verdict, seen: verdicts.Row) -> dict[str, Any]:
    """What a decision says of a node: score, leaf, refusal, rails that fall short and the terms of the score."""
    row: dict[str, Any] = {"node": verdict.node, "score": round(verdict.score, 1)}
    if not verdict.known:
        return {**row, "reason": "not in the cache yet: kept, scored 0"}
    row["leaf"] = topology.name_of(seen.leaf)
    if verdict.refusal:
        row["refused"] = verdict.refusal
    lacking = [rail for rail in verdict.rails if not rail.sufficient]
    if lacking:
        row["rails"] = [
            f"{rail.need.label} has {max(0, rail.free) // resources.UNIT} of {rail.allocatable // resources.UNIT} free"
            + _held(rail.holders)
            for rail in lacking
        ]
    if seen.stands is not None:
        row |= _shortfalls(seen.stands)
    if verdict.terms:
        row["terms"] = {name: {"value": round(value, 3), "reason": why} for name, (value, why) in verdict.terms.items()}
    return row


def _shortfalls(stands: standing.Standing) -> dict[str, Any]:
    """What else is wrong with a node, in numbers; nothing where nothing is."""
    pools = {rail.need.resource for rail in stands.rails}
    short = [account.shortage(stands, name) for name in account.short(stands) if name not in pools]
    flaws = [flaw for flaw in account.flaws(stands) if not flaw.endswith("not free")]
    return ({"short": short} if short else {}) | ({"flaws": flaws} if flaws else {})


def _held(holders: Sequence[str]) -> str:
    if not holders:
        return ""
    more = " and others" if len(holders) > verdicts.HOLDERS_NAMED else ""
    return f", held by {', '.join(holders[: verdicts.HOLDERS_NAMED])}{more}"
