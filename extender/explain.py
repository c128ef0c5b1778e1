"""The last decisions and why: what `/explain` shows, bounded in number and size."""

import heapq
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import msgspec

from fabric import resources, topology
from fabric.placement import ask, decide, standing

KEPT = 1000  # decisions; with NODES_SHOWN about 60 MB at most
NODES_SHOWN = 50  # best nodes and refused nodes kept of one decision, each; leaves of its plan


class Explanation(msgspec.Struct, frozen=True):
    """One decision as shown to people and machines."""

    pod: str
    scheduler: str
    fabric: str
    gang: str
    gang_size: int
    remaining: int
    needs: Sequence[str]
    leaves_planned: Sequence[str]
    nodes_judged: int
    nodes: Sequence[dict[str, Any]]


class _Kept(msgspec.Struct, frozen=True):
    """What stays of a decision: neither the offer nor the pod, which may be megabytes."""

    told: Explanation  # but for the nodes
    verdicts: Sequence[decide.Verdict]


class Explanations:
    """The last KEPT decisions by pod; a pod's newer one replaces its older one."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str], _Kept] = OrderedDict()

    def keep(self, scheduler: str, question: ask.Ask, decision: decide.Decision) -> None:
        """Remember a decision; its nodes are put in words when somebody asks."""
        key = (question.namespace, question.name)
        self._kept.pop(key, None)
        self._kept[key] = _Kept(told=_explained(scheduler, question, decision), verdicts=_shown(decision))
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)

    def of(self, namespace: str, name: str) -> Explanation | None:
        """The last decision on a pod, in words; None where none is kept."""
        kept = self._kept.get((namespace, name))
        if kept is None:
            return None
        verdicts = sorted(kept.verdicts, key=lambda each: (bool(each.refusal), -each.score, each.node))
        return msgspec.structs.replace(kept.told, nodes=[_node(verdict) for verdict in verdicts])


def _shown(decision: decide.Decision) -> Sequence[decide.Verdict]:
    """The best nodes and as many refused ones; of rails only those that fall short, as only they are told."""
    shown = list(decision.verdicts.values())
    if len(shown) > 2 * NODES_SHOWN:
        fitting = [verdict for verdict in shown if not verdict.refusal]
        best = heapq.nsmallest(NODES_SHOWN, fitting, key=lambda verdict: -verdict.score)
        refused = [verdict for verdict in shown if verdict.refusal]
        shown = [*best, *refused[: 2 * NODES_SHOWN - len(best)]]
    return [
        msgspec.structs.replace(verdict, rails=tuple(rail for rail in verdict.rails if not rail.sufficient))
        for verdict in shown
    ]


def _explained(scheduler: str, question: ask.Ask, decision: decide.Decision) -> Explanation:
    return Explanation(
        pod=f"{question.namespace}/{question.name}",
        scheduler=scheduler,
        fabric=question.fabric_name,
        gang=question.gang,
        gang_size=decision.gang_size,
        remaining=decision.gang.remaining,
        needs=[f"{need.label}: {need.amount // resources.UNIT} {need.resource}" for need in question.needs],
        leaves_planned=[topology.name_of(leaf) for leaf in decision.gang.plan[:NODES_SHOWN]],
        nodes_judged=len(question.candidates),
        nodes=(),
    )


def _node(verdict: decide.Verdict) -> dict[str, Any]:
    row: dict[str, Any] = {"node": verdict.node, "score": round(verdict.score, 1)}
    if not verdict.known:
        return {**row, "reason": "not in the cache yet: kept, scored 0"}
    if verdict.refusal:
        row["refused"] = verdict.refusal
    if verdict.rails:
        row["rails"] = [
            f"{rail.need.label} has {max(0, rail.free) // resources.UNIT} of {rail.allocatable // resources.UNIT} free"
            + _held(rail.holders)
            for rail in verdict.rails
        ]
    if verdict.terms:
        row["terms"] = {name: {"value": round(value, 3), "reason": why} for name, (value, why) in verdict.terms.items()}
    return row


def _held(holders: Sequence[str]) -> str:
    if not holders:
        return ""
    more = " and others" if len(holders) > standing.HOLDERS_NAMED else ""
    return f", held by {', '.join(holders[: standing.HOLDERS_NAMED])}{more}"
