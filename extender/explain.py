"""The last decisions and why: what `/explain` shows, bounded in number and size.

Owns what is kept of a decision and its form as JSON. The words are found when somebody asks: of the nodes by
`verdicts`, of the gang by `account` and `landing`.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import msgspec

from extender import gangs
from railwright.fabric import resources, topology, workload
from railwright.fabric.overview import reasons
from railwright.fabric.placement import ask, decide, landing, planner, rails, standing, verdicts
from railwright.fabric.placement.terms import locality

KEPT = 1000  # pods; their rows of decide.ROWS nodes each refer to standings that are there anyway
LEAVES_SHOWN = 50
PLACEABLE = "placeable"  # the outcome of a gang that is not whole yet, and of a pod without one

_NO_GANG = locality.GangStanding(due=None, plan=(), rooms={}, mates={}, remaining=0, located=False)
_NO_PLAN = verdicts.Wording(plan=planner.NOTHING, gang=_NO_GANG, terms=())


class Explanation(msgspec.Struct, frozen=True):
    """What was decided on a pod, as shown to people and machines. Bandwidths are modelled, 0..1."""

    pod: str
    scheduler: str
    fabric: str
    gang: str
    gang_size: int
    remaining: int
    needs: Sequence[str]
    outcome: str  # placeable | unplaceable | compact | spread | degraded
    why: Sequence[str]  # the plan is no better, or the gang does not fit
    leaves_planned: Sequence[str]
    leaves_used: int
    leaves_least: int
    bandwidth: float
    bound: float
    exact: bool
    complete: bool
    landed: dict[str, Any] | None  # where the whole gang is, once it is
    nodes_judged: int
    nodes: Sequence[dict[str, Any]]


class _Kept(msgspec.Struct):
    """What stays of the decisions on one pod: neither the offers nor the pod, which may be megabytes."""

    pod: str
    scheduler: str
    fabric: str
    gang: workload.GangKey
    needs: Sequence[rails.Need]
    judged: int
    size: int = 0
    decided: bool = False
    fitting: Sequence[str] = ()  # some of the nodes that were not refused
    wording: verdicts.Wording = _NO_PLAN
    scored: Sequence[verdicts.Row] = ()
    refused: Sequence[verdicts.Row] = ()  # by a filter or predicate before


class Explanations:
    """The decisions on the last KEPT pods; a pod's newer one replaces its older one."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    def decided(self, scheduler: str, question: ask.Ask, decision: decide.Decision) -> None:
        """Remember a decision; it is put in words when somebody asks."""
        kept = self._of(scheduler, question)
        kept.decided, kept.size, kept.judged = True, decision.gang_size, len(question.nodes)
        kept.wording, kept.scored = decision.wording, decision.rows(decide.ROWS)

    def screened(self, scheduler: str, question: ask.Ask, screening: decide.Screening) -> None:
        """Remember what was refused; volcano asks node by node, so that those rows add up."""
        kept = self._of(scheduler, question)
        asked_alone = len(question.nodes) == 1  # Volcano's predicate: one call a node
        kept.fitting = (*screening.kept[: decide.ROWS], *(kept.fitting if asked_alone else ()))[: decide.ROWS]
        if not kept.decided:
            kept.judged = len(question.nodes)
        gone = screening.busy.keys() | screening.never.keys()
        if gone and kept.decided:  # an older decision says nothing of a node that is refused by now
            kept.scored = [row for row in kept.scored if row.node not in gone]
            kept.decided = bool(kept.scored)
        if gone:
            kept.fitting = [name for name in kept.fitting if name not in gone]
        fresh = {row.node: row for row in screening.rows}
        judged = set(question.nodes)
        older = [row for row in kept.refused if row.node not in judged]
        kept.refused = (*fresh.values(), *older)[: decide.ROWS]

    def standing(self, pod: str, node: str) -> standing.Standing | None:
        """How a node stood to a pod (namespace/name) when it was last decided on; None where that is not kept."""
        kept = self._kept.get(pod)
        return next((row.stands for row in kept.scored if row.node == node), None) if kept else None

    def of(self, namespace: str, name: str, known: gangs.Gangs | None = None) -> Explanation | None:
        """The last decision on a pod, in words; None where none is kept."""
        kept = self._kept.get(f"{namespace}/{name}")
        if kept is None:
            return None
        rows = {row.node: row for row in (*kept.refused, *kept.scored)}
        unscored = [] if kept.decided else [name for name in dict.fromkeys(kept.fitting) if name not in rows]
        told = [(kept.wording.verdict(row), row) for row in rows.values()]
        told.sort(key=lambda each: (bool(each[0].refusal), -each[0].score, each[0].node))
        gang = known.of(kept.gang, kept.pod) if known is not None else None
        return _explained(kept, gang, [*map(_fitting, unscored), *(reasons.of_node(*each) for each in told)])

    def _of(self, scheduler: str, question: ask.Ask) -> _Kept:
        kept = self._kept.get(question.key)
        if kept is None:
            kept = self._kept[question.key] = _Kept(
                pod=question.key,
                scheduler=scheduler,
                fabric=question.fabric_name,
                gang=question.gang,
                needs=question.needs,
                judged=len(question.nodes),
            )
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        kept.scheduler, kept.fabric = scheduler, question.fabric_name
        kept.gang, kept.needs = question.gang, question.needs
        self._kept.move_to_end(question.key)
        return kept


def _explained(kept: _Kept, known: gangs.Kept | None, nodes: Sequence[dict[str, Any]]) -> Explanation:
    plan, gang = kept.wording.plan, kept.wording.gang
    leaves = dict.fromkeys((*(leaf for leaf, mates in gang.mates.items() if mates and leaf), *plan.leaves))
    return Explanation(
        pod=kept.pod,
        scheduler=kept.scheduler,
        fabric=kept.fabric,
        gang=kept.gang,
        gang_size=kept.size,
        remaining=gang.remaining,
        needs=[f"{need.label}: {need.amount // resources.UNIT} {need.resource}" for need in kept.needs],
        outcome=_outcome(kept, known),
        why=_why(kept, known),
        leaves_planned=[topology.name_of(leaf) for leaf in plan.leaves[:LEAVES_SHOWN]],
        leaves_used=len(leaves),
        leaves_least=plan.least_with_mates,
        bandwidth=round(plan.bandwidth, 3),
        bound=round(plan.bound, 3),
        exact=plan.exact,
        complete=plan.complete,
        landed=_landed(known),
        nodes_judged=kept.judged,
        nodes=nodes,
    )


def _outcome(kept: _Kept, known: gangs.Kept | None) -> str:
    if not kept.decided and not kept.fitting:
        return gangs.UNPLACEABLE
    if known is not None and known.outcome is not None and known.outcome.word != gangs.UNPLACEABLE:
        return known.outcome.word
    fits = known.reasons.fits if known is not None else kept.wording.plan.complete
    return PLACEABLE if fits or not kept.decided or not kept.wording.gang.located else gangs.UNPLACEABLE


def _why(kept: _Kept, known: gangs.Kept | None) -> Sequence[str]:
    if not kept.decided and not kept.fitting:
        return ("every node that was asked about was refused, each for the reason beside it",)
    if known is None:
        return ()
    return (known.mixed, *known.reasons.why) if known.mixed else known.reasons.why


def _landed(known: gangs.Kept | None) -> dict[str, Any] | None:
    if known is None or known.outcome is None or known.outcome.landed is None or known.promise is None:
        return None
    landed, promise = known.outcome.landed, known.promise
    return {
        "members": landed.members,
        "leaves": {topology.name_of(leaf): count for leaf, count in [*landed.leaves.items()][:LEAVES_SHOWN]},
        "leaves_used": len(landed.leaves),
        "leaves_possible": len(promise.leaves),
        "bandwidth": round(landed.bandwidth, 3),
        "bandwidth_possible": round(promise.bandwidth, 3),
        "why": landed.why,
        "outside_plan": landed.outside[:LEAVES_SHOWN],
        "told": landing.sentence(landed, promise),
    }


def _fitting(name: str) -> dict[str, Any]:
    """A node that a filter let pass and nobody asked the score of: a scheduler with one choice does not."""
    return {"node": name, "reason": "not refused; no score was asked for"}
