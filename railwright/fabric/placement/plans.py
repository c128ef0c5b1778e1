"""Reuses a gang's plan while its pods are placed as planned and nothing else in the cluster has changed.

The unfilled leaves of the plan are then optimal for the unplaced pods, because every choice for these was also a choice
for the whole gang. The planner runs again after a change of any node outside the plan's leaves, if slots in these
leaves increase, if a change allows more bandwidth, or if the gang's size changes.
"""

from collections import OrderedDict
from collections.abc import Hashable, Mapping

import msgspec

from railwright.fabric import topology, workload
from railwright.fabric.placement import board, crew, fleet, ledger, planner

_KEPT = 64  # cached gangs; schedulers place one gang after the other


class _Standing(msgspec.Struct, frozen=True):
    plan: planner.Plan
    size: int  # of the gang
    remaining: int
    rooms: Mapping[topology.Domain, int]  # slots of the plan's leaves and of the leaves of the peers
    seen: tuple[int, int]  # positions in the change logs


class _Reached(msgspec.Struct, frozen=True):
    placed: int  # number of peers placed when the last plan was made
    value: planner.Value  # planned bandwidth of these peers
    planned: planner.Value  # planned bandwidth of the others


class Plans:
    """The latest plans of the most recently used gangs."""

    def __init__(self, state: fleet.Fleet, book: ledger.Ledger) -> None:
        self._journals = (state.journal, book.journal)
        self._kept: OrderedDict[Hashable, _Standing] = OrderedDict()
        self._reached: OrderedDict[workload.GangKey, _Reached] = OrderedDict()

    def reached(self, gang: workload.GangKey, members: crew.Crew) -> planner.Value:
        """Return the planned bandwidth of the placed peers; 1 if none is placed or their plan is unknown."""
        last = self._reached.get(gang)
        if last is None or not members.placed:
            return 1.0
        return min(last.value, last.planned) if len(members.placed) > last.placed else last.value

    def planned(self, gang: workload.GangKey, members: crew.Crew, plan: planner.Plan) -> None:
        """Record a plan's bandwidth. It limits the gang only after a pod has been placed by this plan."""
        if gang and plan.complete:
            value = self.reached(gang, members)
            self._reached[gang] = _Reached(placed=len(members.placed), value=value, planned=plan.bandwidth)
            self._reached.move_to_end(gang)
            if len(self._reached) > _KEPT:
                self._reached.popitem(last=False)

    def keep(
        self,
        gang: workload.GangKey,
        current: board.Board,
        members: crew.Crew,
        supply: planner.Supply,
        plan: planner.Plan,
    ) -> None:
        """Cache a new plan."""
        if not gang or not plan.complete or (not plan.rails and any(grade.grade.rails for grade in current.standings)):
            return
        mates = {current.leaves.get(node, topology.NOWHERE) for _, _, node in members.placed}
        key = (gang, current.profile.key)
        self._kept[key] = _Standing(
            plan=plan,
            size=members.size,
            remaining=members.remaining,
            rooms={leaf: _room(supply, leaf, plan) for leaf in {*plan.leaves, *mates}},
            seen=(self._journals[0].position, self._journals[1].position),
        )
        self._kept.move_to_end(key)
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)

    def of(
        self, gang: workload.GangKey, current: board.Board, members: crew.Crew, supply: planner.Supply
    ) -> planner.Plan | None:
        """Return the unfilled part of the gang's plan, or None if the planner has to run again."""
        last = self._kept.get((gang, current.profile.key))
        if last is None or members.size != last.size or members.remaining > last.remaining:
            return None
        changed = False
        for journal, position in zip(self._journals, last.seen, strict=True):
            touched = journal.since(position)
            if touched is None or any(current.leaves.get(name) not in last.rooms for name in touched):
                return None
            changed = changed or bool(touched)
        if changed and last.plan.bandwidth < self.reached(gang, members):
            return None
        rooms = {leaf: _room(supply, leaf, last.plan) for leaf in last.rooms}
        if any(room > last.rooms[leaf] for leaf, room in rooms.items()):
            return None
        left = {leaf: rooms[leaf] for leaf in last.plan.leaves if rooms[leaf]}
        if sum(left.values()) < members.remaining:
            return None
        return msgspec.structs.replace(last.plan, leaves=tuple(left), rooms=left)


def _room(supply: planner.Supply, leaf: topology.Domain, plan: planner.Plan) -> int:
    """Return the slots of a leaf at a plan's bandwidth."""
    kinds = supply.leaves.get(leaf, {})
    return sum(nodes * plan.holds(supply.grades[kind]) for kind, nodes in kinds.items())
