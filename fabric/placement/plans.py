"""Plans that still hold: while a gang is placed as planned and nothing else changes, what remains of its plan is best.

Owns the proof of that, not the plan: the fewest leaves for what remains are those not yet filled, as every choice for
the remainder was one for the whole. Anything that happens elsewhere in the fleet ends it, and the planner solves anew.
"""

from collections import OrderedDict
from collections.abc import Hashable

import msgspec

from fabric import topology, workload
from fabric.placement import board, crew, fleet, ledger, planner

_KEPT = 64  # gangs; schedulers place one after the other


class _Standing(msgspec.Struct, frozen=True):
    plan: planner.Plan
    remaining: int
    leaves: frozenset[topology.Domain]  # of the plan and of the mates placed then
    seen: tuple[int, int]  # positions in the journals


class Plans:
    """The last plans of the gangs asked about lately."""

    def __init__(self, state: fleet.Fleet, book: ledger.Ledger) -> None:
        self._journals = (state.journal, book.journal)
        self._kept: OrderedDict[Hashable, _Standing] = OrderedDict()
        self._reached: OrderedDict[workload.GangKey, planner.Value] = OrderedDict()

    def reached(self, gang: workload.GangKey, members: crew.Crew) -> planner.Value:
        """The bandwidth that the placed mates were planned at; 1 where none is placed or none was planned here."""
        return self._reached.get(gang, 1.0) if members.placed else 1.0

    def planned(self, gang: workload.GangKey, plan: planner.Plan) -> None:
        """Remember what a plan reaches."""
        if gang and plan.complete:
            self._reached[gang] = plan.bandwidth
            self._reached.move_to_end(gang)
            if len(self._reached) > _KEPT:
                self._reached.popitem(last=False)

    def keep(self, gang: workload.GangKey, current: board.Board, members: crew.Crew, plan: planner.Plan) -> None:
        """Remember a plan just made."""
        if not gang or not plan.complete or (not plan.rails and any(grade.grade.rails for grade in current.standings)):
            return
        mates = {current.leaves.get(node, topology.NOWHERE) for _, _, node in members.placed}
        key = (gang, current.profile.key)
        self._kept[key] = _Standing(
            plan=plan,
            remaining=members.remaining,
            leaves=frozenset({*plan.leaves, *mates}),
            seen=(self._journals[0].position, self._journals[1].position),
        )
        self._kept.move_to_end(key)
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)

    def of(
        self, gang: workload.GangKey, current: board.Board, members: crew.Crew, supply: planner.Supply
    ) -> planner.Plan | None:
        """What remains of the gang's plan; None where it has to be made anew."""
        last = self._kept.get((gang, current.profile.key))
        if last is None or members.remaining > last.remaining:
            return None
        for journal, position in zip(self._journals, last.seen, strict=True):
            touched = journal.since(position)
            if touched is None or any(current.leaves.get(name) not in last.leaves for name in touched):
                return None
        rooms = {}
        for leaf in last.plan.leaves:
            kinds = supply.leaves.get(leaf, {})
            room = sum(
                nodes * planner.members(supply.grades[kind], last.plan.rails, last.plan.bandwidth)
                for kind, nodes in kinds.items()
            )
            if room:
                rooms[leaf] = room
        if sum(rooms.values()) < members.remaining:
            return None
        return msgspec.structs.replace(last.plan, leaves=tuple(rooms), rooms=rooms)
