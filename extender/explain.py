"""The last decisions and why: what `/explain` shows, bounded in number and size."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import msgspec

from fabric import resources, topology
from fabric.placement import ask, decide

KEPT = 1000  # decisions; with NODES_SHOWN about 40 MB at most
NODES_SHOWN = 100  # best nodes and refused nodes kept of one decision, each


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


class Explanations:
    """The last KEPT decisions by pod; a pod's newer one replaces its older one."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str], tuple[str, ask.Ask, decide.Decision]] = OrderedDict()

    def keep(self, scheduler: str, question: ask.Ask, decision: decide.Decision) -> None:
        """Remember a decision as it is; it is put in words when somebody asks."""
        key = (question.namespace, question.name)
        self._kept.pop(key, None)
        self._kept[key] = (scheduler, question, _trimmed(decision))
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)

    def of(self, namespace: str, name: str) -> Explanation | None:
        """The last decision on a pod, in words; None where none is kept."""
        kept = self._kept.get((namespace, name))
        return _explained(*kept) if kept else None


def _trimmed(decision: decide.Decision) -> decide.Decision:
    if len(decision.verdicts) <= 2 * NODES_SHOWN:
        return decision
    ranked = sorted(decision.verdicts.values(), key=lambda verdict: (bool(verdict.refusal), -verdict.score))
    shown = ranked[:NODES_SHOWN] + [verdict for verdict in ranked[NODES_SHOWN:] if verdict.refusal][:NODES_SHOWN]
    return msgspec.structs.replace(decision, verdicts={verdict.node: verdict for verdict in shown})


def _explained(scheduler: str, question: ask.Ask, decision: decide.Decision) -> Explanation:
    verdicts = sorted(decision.verdicts.values(), key=lambda each: (bool(each.refusal), -each.score, each.node))
    return Explanation(
        pod=f"{question.namespace}/{question.name}",
        scheduler=scheduler,
        fabric=question.fabric_name,
        gang=question.gang,
        gang_size=decision.gang_size,
        remaining=decision.gang.remaining,
        needs=[f"{need.label}: {need.amount // resources.UNIT} {need.resource}" for need in question.needs],
        leaves_planned=[topology.name_of(leaf) for leaf in decision.gang.plan],
        nodes_judged=len(question.candidates),
        nodes=[_node(verdict) for verdict in verdicts],
    )


def _node(verdict: decide.Verdict) -> dict[str, Any]:
    row: dict[str, Any] = {"node": verdict.node, "score": round(verdict.score, 1)}
    if not verdict.known:
        return {**row, "reason": "not in the cache yet: kept, scored 0"}
    if verdict.refusal:
        row["refused"] = verdict.refusal
    short = [rail for rail in verdict.rails if not rail.sufficient]
    if short:
        row["rails"] = [
            f"{rail.need.label} has {max(0, rail.free) // resources.UNIT} of {rail.allocatable // resources.UNIT} free"
            + (f", held by {', '.join(rail.holders)}" if rail.holders else "")
            for rail in short
        ]
    if verdict.terms:
        row["terms"] = {name: {"value": round(value, 3), "reason": why} for name, (value, why) in verdict.terms.items()}
    return row
