"""One node's outcome in words, found only when somebody asks.

Owns what is shown of a node: its score, the terms with their reasons, rails that fall short and who holds them. A row
keeps only what was true when the decision fell, and nothing of the request.
"""

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import NamedTuple

import msgspec

from railwright.fabric import topology
from railwright.fabric.placement import fleet, ledger, planner, rails, standing
from railwright.fabric.placement.terms import locality

HOLDERS_NAMED = 5  # of a shared pool's holders, of whom a node may have a hundred

Holder = fleet.FleetPod | ledger.Entry
"""A pod that takes something of a node, bound or announced."""


class Row(NamedTuple):
    """One node as a decision saw it."""

    node: str
    score: float
    stands: standing.Standing | None  # None: the cache has not seen the node
    leaf: topology.Domain
    holders: tuple[Holder, ...]  # pods of the node, where a rail falls short


class HeldRail(msgspec.Struct, frozen=True):
    """One pool the pod needs, on one node. Amounts in milli-units."""

    need: rails.Need
    free: int
    allocatable: int
    sufficient: bool
    holders: tuple[str, ...]  # namespace/name, where it falls short; one more than named: there are more


class Verdict(msgspec.Struct, frozen=True):
    """One node's outcome."""

    node: str
    known: bool  # False: the cache has not seen the node; it stays and scores 0 (ruling 23)
    score: float  # 0..100
    refusal: str  # "" where it fits: the sentence shown to the user
    unresolvable: bool  # True: no pod leaving this node would help
    terms: Mapping[str, tuple[float, str]]  # term -> (value 0..1, reason)
    rails: tuple[HeldRail, ...]


class Wording(msgspec.Struct, frozen=True):
    """What the words of one decision need besides the node."""

    plan: planner.Plan
    gang: locality.GangStanding
    terms: Sequence[ModuleType]  # the terms that count but locality

    def verdict(self, row: Row) -> Verdict:
        """The node in words."""
        stands = row.stands
        if stands is None:
            return Verdict(row.node, known=False, score=0.0, refusal="", unresolvable=False, terms={}, rails=())
        return Verdict(
            node=row.node,
            known=True,
            score=row.score,
            refusal=stands.refusal,
            unresolvable=stands.unresolvable,
            terms={} if stands.refusal else self._terms(row.leaf, stands),
            rails=held_rails(row),
        )

    def _terms(self, leaf: topology.Domain, stands: standing.Standing) -> dict[str, tuple[float, str]]:
        terms = {}
        if self.gang.located:
            terms[locality.NAME] = locality.told(
                leaf,
                self.gang,
                worth=not self.gang.counted or self.plan.worth(stands.grade),
                shape=None if not self.gang.counted or self.plan.is_of_shape(stands.grade) else self.plan.shape,
                reserve=stands.grade.reserve,
            )
        return terms | {term.NAME: term.value(stands) for term in self.terms}


def held_rails(row: Row) -> tuple[HeldRail, ...]:
    """The pools of a row, with who holds what falls short."""
    return tuple(
        HeldRail(
            need=rail.need,
            free=rail.free,
            allocatable=rail.allocatable,
            sufficient=rail.sufficient,
            holders=() if rail.sufficient else _holding(row.holders, rail.need.resource),
        )
        for rail in (row.stands.rails if row.stands else ())
    )


def _holding(holders: Sequence[Holder], resource: str) -> tuple[str, ...]:
    named = dict.fromkeys(holder.key for holder in holders if holder.requests.get(resource, 0) > 0)
    return tuple(named)[: HOLDERS_NAMED + 1]
