"""How a gang stands while it is being placed: which mates sit where, which are to come, and which leaf each is due.

Owns the order of ranks over the leaves of a plan. Knows nothing of scores; what a leaf is worth is the planner's.
"""

import bisect
from collections.abc import Mapping, Sequence

import msgspec

from fabric import resources, topology, workload
from fabric.placement import ask, fleet, ledger

Mate = tuple[workload.Rank, str, str]
"""(rank, uid, node) of a placed mate."""


class Crew(msgspec.Struct, frozen=True):
    """The gang of an ask. Of members still to come only those that take devices count, unless none does."""

    size: int
    placed: Sequence[Mate]  # by rank
    waiting: Sequence[workload.Rank]  # ranks still to be placed that have been seen, the asking pod's too, in order
    unseen: int  # members to come of whom nothing is known yet: workers, behind the others
    member: resources.Amounts  # what the gang is planned by

    @property
    def remaining(self) -> int:
        """Members that the plan has to hold."""
        return len(self.waiting) + self.unseen


def of(question: ask.Ask, state: fleet.Fleet, book: ledger.Ledger) -> Crew:
    """The crew of the asking pod; a crew of one where it has no gang.

    A launcher takes next to nothing: counted by its size every hole would hold the whole gang, and counted among the
    workers it would ask for a node too many. Mates not seen yet are taken for workers.
    """
    placed = _placed(question, state, book)
    settled = {question.uid, *(uid for _, uid, _ in placed)}
    waiting = [mate for uid, mate in state.gang(question.gang).items() if uid not in settled]
    size = state.gang_size(question.gang, seen=len(settled) + len(waiting)) if question.gang else 1
    devices = {*question.accelerators, *(rail.resource for rail in question.fabric.rails if rail.resource)}
    workers = [mate for mate in waiting if not devices.isdisjoint(mate.requests)]
    unseen = max(0, size - len(placed) - len(waiting) - 1)
    if not devices.isdisjoint(question.requests):
        ranks = sorted([question.rank, *(mate.rank for mate in workers)])
        return Crew(size=size, placed=placed, waiting=ranks, unseen=unseen, member=question.requests)
    if not workers:
        ranks = sorted([question.rank, *(mate.rank for mate in waiting)])
        return Crew(size=size, placed=placed, waiting=ranks, unseen=unseen, member=question.requests)
    largest = max(workers, key=lambda mate: sum(mate.requests.get(name, 0) for name in devices))
    ranks = sorted(mate.rank for mate in workers)
    return Crew(size=size, placed=placed, waiting=ranks, unseen=unseen, member=largest.requests)


def is_alone(question: ask.Ask, state: fleet.Fleet) -> bool:
    """True for a job of one pod, as far as anybody can see."""
    mates = state.gang(question.gang)
    seen = len(mates) + (question.uid not in mates)
    return not question.gang or state.gang_size(question.gang, seen=seen) == 1


def _placed(question: ask.Ask, state: fleet.Fleet, book: ledger.Ledger) -> list[Mate]:
    """Every mate that is bound or announced; what the cluster shows beats what was announced."""
    placed = {
        pod.uid: (pod.rank, pod.uid, pod.node)
        for pod in state.gang(question.gang).values()
        if pod.node and pod.uid != question.uid
    }
    for entry in book.of_gang(question.gang):
        if entry.uid != question.uid:
            placed.setdefault(entry.uid, (entry.rank, entry.uid, entry.node))
    return sorted(placed.values())


def nearest(
    rank: workload.Rank, placed: Sequence[Mate], leaf_of: Mapping[str, topology.Domain]
) -> list[topology.Domain]:
    """Leaves of the placed mates, once each: of those just before this rank first, then of the ones after it."""
    before = [node for other, _, node in reversed(placed) if other < rank]
    after = [node for other, _, node in placed if not other < rank]
    found = (leaf_of.get(node, topology.NOWHERE) for node in (*before, *after))
    return [leaf for leaf in dict.fromkeys(found) if leaf != topology.NOWHERE]


def due(
    rank: workload.Rank,
    crew: Crew,
    order: Sequence[topology.Domain],
    rooms: Mapping[topology.Domain, int],
    leaf_of: Mapping[str, topology.Domain],
) -> topology.Domain | None:
    """The leaf of this rank when the plan's leaves are filled by rank; None where they hold no more.

    Ranks follow the rank before them; just before placed mates they join those, as far as their leaf holds the gap.
    """
    free = dict(rooms)
    if crew.waiting and rank == crew.waiting[0]:  # ranks mostly come in order
        return _first_due(rank, crew, order, free, leaf_of)
    places: list[tuple[workload.Rank, topology.Domain | None]] = [
        *((each, leaf_of.get(node, topology.NOWHERE)) for each, _, node in crew.placed),
        *((each, None) for each in crew.waiting),
    ]
    places.sort(key=lambda each: each[0])
    gaps = _gaps(places)
    last: topology.Domain | None = None
    for index, (each, leaf) in enumerate(places):
        if leaf is not None:
            last = leaf
            continue
        chosen = last if last is not None and free.get(last, 0) > 0 else None
        if chosen is None:
            gap, ahead = gaps[index]
            if ahead is not None and free.get(ahead, 0) >= gap:
                chosen = ahead
        if chosen is None:
            chosen = next((leaf for leaf in order if free.get(leaf, 0) > 0), None)
        if each == rank:
            return chosen
        if chosen is not None:
            free[chosen] -= 1
            last = chosen
    return next((leaf for leaf in order if free.get(leaf, 0) > 0), None)


def _first_due(
    rank: workload.Rank,
    crew: Crew,
    order: Sequence[topology.Domain],
    free: Mapping[topology.Domain, int],
    leaf_of: Mapping[str, topology.Domain],
) -> topology.Domain | None:
    """The same for the first rank to be placed, without walking through all that come after it."""
    position = bisect.bisect_left(crew.placed, (rank, "", ""))
    if position:
        behind = leaf_of.get(crew.placed[position - 1][2], topology.NOWHERE)
        if free.get(behind, 0) > 0:
            return behind
    if position < len(crew.placed):
        ahead = leaf_of.get(crew.placed[position][2], topology.NOWHERE)
        gap = bisect.bisect_left(crew.waiting, crew.placed[position][0])
        if free.get(ahead, 0) >= gap:
            return ahead
    return next((leaf for leaf in order if free.get(leaf, 0) > 0), None)


def _gaps(
    places: Sequence[tuple[workload.Rank, topology.Domain | None]],
) -> dict[int, tuple[int, topology.Domain | None]]:
    """For each member to be placed: (members from it to the next placed mate, that mate's leaf)."""
    gaps: dict[int, tuple[int, topology.Domain | None]] = {}
    count, ahead = 0, None
    for index in range(len(places) - 1, -1, -1):
        leaf = places[index][1]
        if leaf is not None:
            count, ahead = 0, leaf
        else:
            count += 1
            gaps[index] = (count, ahead)
    return gaps
