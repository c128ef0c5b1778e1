"""Explains the result of one node: score, terms with their reasons, missing rails, and the pods that use them.

Explanations are formatted on demand from rows. A row stores the node's state at the time of the decision, and nothing
of the request.
"""

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import NamedTuple

import msgspec

from railwright.fabric import topology
from railwright.fabric.placement import fleet, ledger, planner, rails, standing
from railwright.fabric.placement.terms import locality

HOLDERS_NAMED = 5  # a node may have a hundred pods that use a shared pool

Holder = fleet.FleetPod | ledger.Entry
"""A bound or assumed pod on a node."""


class Row(NamedTuple):
    """The state of one node at the time of a decision."""

    node: str
    score: float
    stands: standing.Standing | None  # None: the cache does not contain the node
    leaf: topology.Domain
    holders: tuple[Holder, ...]  # pods of the node, if it has too few free devices of a rail


class HeldRail(msgspec.Struct, frozen=True):
    """Usage of one device pool on a node. Amounts in milli-units."""

    need: rails.Need
    free: int
    allocatable: int
    sufficient: bool
    holders: tuple[str, ...]  # namespace/name of pods that use it, if not sufficient; at most HOLDERS_NAMED + 1


class Verdict(msgspec.Struct, frozen=True):
    """The explanation of one node."""

    node: str
    known: bool  # False: the cache does not contain the node; it is feasible and scores 0 (docs/interface.md 7.5)
    score: float  # 0..100
    refusal: str  # message for the user if the node is filtered; "" if the pod fits
    unresolvable: bool  # the pod would not fit even if all other pods left the node
    terms: Mapping[str, tuple[float, str]]  # term -> (value 0..1, reason)
    rails: tuple[HeldRail, ...]


class Wording(msgspec.Struct, frozen=True):
    """Builds the explanations of one decision."""

    plan: planner.Plan
    gang: locality.GangStanding
    terms: Sequence[ModuleType]  # the weighted terms except locality

    def verdict(self, row: Row) -> Verdict:
        """Return the explanation of a node."""
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
    """Return the device pools of a row, with the pods that use the insufficient ones."""
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
