"""The last decisions and why: what `/explain` shows, bounded in number and size."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import msgspec

from fabric import resources, topology
from fabric.placement import ask, decide, planner, verdicts
from fabric.placement.terms import locality

KEPT = 1000  # pods; with decide.ROWS about 30 MB at most
LEAVES_SHOWN = 50

_NO_GANG = locality.GangStanding(due=None, plan=(), rooms={}, mates={}, remaining=0, located=False)
_NO_PLAN = verdicts.Wording(plan=planner.NOTHING, gang=_NO_GANG, terms=())


class Explanation(msgspec.Struct, frozen=True):
    """What was decided on a pod, as shown to people and machines."""

    pod: str
    scheduler: str
    fabric: str
    gang: str
    gang_size: int
    remaining: int
    needs: Sequence[str]
    leaves_planned: Sequence[str]
    leaves_used: int
    leaves_least: int
    bandwidth: float
    bound: float
    exact: bool
    complete: bool
    nodes_judged: int
    nodes: Sequence[dict[str, Any]]


class _Kept(msgspec.Struct):
    """What stays of the decisions on one pod: neither the offers nor the pod, which may be megabytes."""

    told: Explanation  # but for the nodes
    wording: verdicts.Wording = _NO_PLAN
    scored: Sequence[verdicts.Row] = ()
    refused: Sequence[verdicts.Row] = ()  # by a filter or predicate before


class Explanations:
    """The decisions on the last KEPT pods; a pod's newer one replaces its older one."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str], _Kept] = OrderedDict()

    def decided(self, scheduler: str, question: ask.Ask, decision: decide.Decision) -> None:
        """Remember a decision; its nodes are put in words when somebody asks."""
        kept = self._of(scheduler, question)
        kept.told = _explained(scheduler, question, decision)
        kept.wording, kept.scored = decision.wording, decision.rows(decide.ROWS)

    def screened(self, scheduler: str, question: ask.Ask, screening: decide.Screening) -> None:
        """Remember what was refused; volcano asks node by node, so that those rows add up."""
        kept = self._of(scheduler, question)
        fresh = {row.node: row for row in screening.rows}
        judged = set(question.nodes)
        older = [row for row in kept.refused if row.node not in judged]
        kept.refused = (*fresh.values(), *older)[: decide.ROWS]

    def _of(self, scheduler: str, question: ask.Ask) -> _Kept:
        key = (question.namespace, question.name)
        kept = self._kept.get(key)
        if kept is None:
            kept = self._kept[key] = _Kept(told=_explained(scheduler, question, None))
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return kept

    def of(self, namespace: str, name: str) -> Explanation | None:
        """The last decision on a pod, in words; None where none is kept."""
        kept = self._kept.get((namespace, name))
        if kept is None:
            return None
        rows = {row.node: row for row in (*kept.refused, *kept.scored)}
        told = [kept.wording.verdict(row) for row in rows.values()]
        told.sort(key=lambda each: (bool(each.refusal), -each.score, each.node))
        return msgspec.structs.replace(kept.told, nodes=[_node(verdict) for verdict in told])


def _explained(scheduler: str, question: ask.Ask, decision: decide.Decision | None) -> Explanation:
    gang = decision.gang if decision else _NO_GANG
    plan = decision.plan if decision else planner.NOTHING
    leaves = dict.fromkeys((*(leaf for leaf, mates in gang.mates.items() if mates and leaf), *plan.leaves))
    return Explanation(
        pod=question.key,
        scheduler=scheduler,
        fabric=question.fabric_name,
        gang=question.gang,
        gang_size=decision.gang_size if decision else 0,
        remaining=gang.remaining,
        needs=[f"{need.label}: {need.amount // resources.UNIT} {need.resource}" for need in question.needs],
        leaves_planned=[topology.name_of(leaf) for leaf in plan.leaves[:LEAVES_SHOWN]],
        leaves_used=len(leaves),
        leaves_least=plan.least,
        bandwidth=round(plan.bandwidth, 3),
        bound=round(plan.bound, 3),
        exact=plan.exact,
        complete=plan.complete,
        nodes_judged=len(question.nodes),
        nodes=(),
    )


def _node(verdict: verdicts.Verdict) -> dict[str, Any]:
    row: dict[str, Any] = {"node": verdict.node, "score": round(verdict.score, 1)}
    if not verdict.known:
        return {**row, "reason": "not in the cache yet: kept, scored 0"}
    if verdict.refusal:
        row["refused"] = verdict.refusal
    short = [rail for rail in verdict.rails if not rail.sufficient]
    if short:
        row["rails"] = [
            f"{rail.need.label} has {max(0, rail.free) // resources.UNIT} of {rail.allocatable // resources.UNIT} free"
            + _held(rail.holders)
            for rail in short
        ]
    if verdict.terms:
        row["terms"] = {name: {"value": round(value, 3), "reason": why} for name, (value, why) in verdict.terms.items()}
    return row


def _held(holders: Sequence[str]) -> str:
    if not holders:
        return ""
    more = " and others" if len(holders) > verdicts.HOLDERS_NAMED else ""
    return f", held by {', '.join(holders[: verdicts.HOLDERS_NAMED])}{more}"
