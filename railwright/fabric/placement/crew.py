"""How a gang stands while it is being placed: which mates sit where, which are to come, and which leaf each is due.

Owns the order of ranks over the leaves of a plan. Knows nothing of scores; what a leaf is worth is the planner's.
"""

import bisect
import operator
from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

from railwright.fabric import resources, topology, workload
from railwright.fabric.placement import ask, fleet, ledger

_Waiting = tuple[workload.Rank, resources.Amounts]
Mate = tuple[workload.Rank, str, str]
"""(rank, uid, node) of a placed mate."""


class Crew(msgspec.Struct, frozen=True):
    """The gang of an ask. Of members still to come only those that take devices count, unless none does."""

    size: int
    placed: Sequence[Mate]  # by rank
    waiting: Sequence[workload.Rank]  # of each place for pods to come that have been seen, the first rank, in order
    unseen: int  # members to come of whom nothing is known yet: workers, behind the others
    pods: int  # to come, the asking one and those unseen too; smaller ones may have one place together
    member: resources.Amounts  # what the gang is planned by: a place is what one of these takes
    ring: Sequence[Mate]  # of those placed, the ones that take devices, as launchers do not; all of a gang without any
    asked: frozenset[str] = frozenset()  # of those to come, who may be announced, but in vain: the asking pod, and more

    @property
    def remaining(self) -> int:
        """Places that the plan has to hold."""
        return len(self.waiting) + self.unseen

    def place_of(self, rank: workload.Rank) -> workload.Rank:
        """The first rank of the place that a rank has a part of; the first place for a pod that has none."""
        at = bisect.bisect_right(self.waiting, rank) - 1
        return self.waiting[max(0, at)]


def of(question: ask.Ask, state: fleet.Fleet, book: ledger.Ledger) -> Crew:
    """The crew of the asking pod; a crew of one where it has no gang.

    A launcher takes next to nothing: counted by its size every hole would hold the whole gang, and counted among the
    workers it would ask for a node too many. Mates not seen yet are taken for workers.
    """
    asked = book.uncommitted(question.uid)
    placed = _placed(question, state, book, asked)
    settled = {question.uid, *(uid for _, uid, _ in placed)}
    waiting = [mate for uid, mate in state.gang(question.gang).items() if uid not in settled]
    size = state.gang_size(question.gang, seen=len(settled) + len(waiting)) if question.gang else 1
    devices = {*question.accelerators, *(rail.resource for rail in question.fabric.rails if rail.resource)}
    workers = [mate for mate in waiting if not devices.isdisjoint(mate.requests)]
    unseen = max(0, size - len(placed) - len(waiting) - 1)
    takers = _takers(placed, devices, state, book)

    def crew_of(pods: Sequence[_Waiting], member: resources.Amounts) -> Crew:
        return Crew(
            size=size,
            placed=placed,
            waiting=_places(pods, member),
            unseen=unseen,
            pods=len(pods) + unseen,
            member=member,
            ring=placed if not takers and devices.isdisjoint(member) else takers,
            asked=asked,
        )

    if not devices.isdisjoint(question.requests):
        own = (question.rank, question.requests)
        return crew_of([own, *((mate.rank, mate.requests) for mate in workers)], _member(question, workers))
    if not workers:
        alike = [(mate.rank, question.requests) for mate in waiting]
        return crew_of([(question.rank, question.requests), *alike], question.requests)
    largest = max(workers, key=lambda mate: sum(mate.requests.get(name, 0) for name in devices))
    return crew_of([(mate.rank, mate.requests) for mate in workers], largest.requests)


def _places(pods: Sequence[_Waiting], member: resources.Amounts) -> Sequence[workload.Rank]:
    """The first rank of each place: pods that follow each other share one that is as large as the largest pod's.

    What they ask for together is compared, so that pods whose rails nobody may share do not share a place either.
    """
    kinds = {id(requests): requests for _, requests in pods}
    if all(requests == member for requests in kinds.values()):
        return sorted(rank for rank, _ in pods)
    places: list[workload.Rank] = []
    left: dict[str, int] = {}
    for rank, requests in sorted(pods, key=operator.itemgetter(0)):
        asked = [(name, amount) for name, amount in requests.items() if name != resources.PODS]
        if not places or any(left.get(name, 0) < amount for name, amount in asked):
            places.append(rank)
            left = dict(member)
        for name, amount in asked:
            left[name] = left.get(name, 0) - amount
    return places


def _takers(
    placed: Sequence[Mate], devices: Collection[str], state: fleet.Fleet, book: ledger.Ledger
) -> Sequence[Mate]:
    """The placed mates that take devices; pods alike share their amounts (Fleet), and a gang has thousands."""
    pods = state.pods
    known: dict[int, bool] = {}
    takers = []
    for mate in placed:
        it = pods.get(mate[1]) or book.entry(mate[1])
        if it is None:
            continue
        key = id(it.requests)
        if key not in known:
            known[key] = any(name in devices for name in it.requests)
        if known[key]:
            takers.append(mate)
    return takers


def _member(question: ask.Ask, workers: Sequence[fleet.FleetPod]) -> resources.Amounts:
    """The requests of the member with the most accelerators: counted by a smaller one, a leaf would hold too many."""

    def size(requests: resources.Amounts) -> int:
        return sum([requests.get(name, 0) for name in question.accelerators])

    alike = {id(mate.requests): mate.requests for mate in workers}  # pods alike share their amounts (Fleet)
    largest = max(alike.values(), key=size, default=question.requests)
    return largest if size(largest) > size(question.requests) else question.requests


def unplaced(gang: workload.GangKey, state: fleet.Fleet, book: ledger.Ledger) -> Iterator[fleet.FleetPod]:
    """The pods of a gang that have been seen and are neither bound nor announced."""
    announced = {entry.uid for entry in book.of_gang(gang)}
    return (pod for uid, pod in state.gang(gang).items() if not pod.node and uid not in announced)


def is_alone(question: ask.Ask, state: fleet.Fleet) -> bool:
    """True for a job of one pod, as far as anybody can see."""
    mates = state.gang(question.gang)
    seen = len(mates) + (question.uid not in mates)
    return not question.gang or state.gang_size(question.gang, seen=seen) == 1


def _placed(question: ask.Ask, state: fleet.Fleet, book: ledger.Ledger, asked: frozenset[str]) -> list[Mate]:
    """Every mate that is bound or announced; what the cluster shows beats what was announced."""
    placed = {
        pod.uid: (pod.rank, pod.uid, pod.node)
        for pod in state.gang(question.gang).values()
        if pod.node and pod.uid != question.uid
    }
    for entry in book.of_gang(question.gang):
        if entry.uid not in asked:
            placed.setdefault(entry.uid, (entry.rank, entry.uid, entry.node))
    return sorted(placed.values())


def nearest(
    rank: workload.Rank, crew: Crew, leaf_of: Mapping[str, topology.Domain]
) -> tuple[list[topology.Domain], topology.Domain | None]:
    """Leaves of the placed mates, once each, and that of the one who follows this rank; None where nobody does.

    The mate before this rank comes first, then the one after it, then the others going back from it. After the last
    rank comes the first, where all members are known; a first rank belongs to those after it all the same.
    """
    before = [node for other, _, node in reversed(crew.ring) if other < rank]
    after = [node for other, _, node in crew.ring if not other < rank]
    behind, ahead = before[:1], after[:1]
    if not crew.unseen:
        ahead = ahead or before[-1:]
    found = (leaf_of.get(node, topology.NOWHERE) for node in (*behind, *ahead, *before, *after))
    following = leaf_of.get(ahead[0], topology.NOWHERE) if ahead else topology.NOWHERE
    return [leaf for leaf in dict.fromkeys(found) if leaf != topology.NOWHERE], following or None


def due(
    rank: workload.Rank,
    crew: Crew,
    order: Sequence[topology.Domain],
    rooms: Mapping[topology.Domain, int],
    leaf_of: Mapping[str, topology.Domain],
) -> topology.Domain | None:
    """The leaf of this rank when the plan's leaves are filled by rank; None where they hold no more.

    A stretch of ranks between two placed mates begins in the leaf of the one before it and ends in the leaf of the
    one after it, as far as those have room; after the last rank comes the first. Stretches that one leaf can hold
    whole are filled first, the short ones before the long: the others change leaves anyway and may do so anywhere.
    """
    free = dict(rooms)
    stretches = _closed(list(_stretches(crew, leaf_of)), crew, leaf_of)
    for ranks, behind, ahead in sorted(stretches, key=lambda each: _urgency(each[0], each[1], each[2], rooms)):
        filled = _filled(len(ranks), behind, ahead, order, free)
        if rank in ranks:
            return filled[ranks.index(rank)]
    return next((leaf for leaf in order if free.get(leaf, 0) > 0), None)


_Stretch = tuple[Sequence[workload.Rank], topology.Domain | None, topology.Domain | None]
"""Ranks to be placed, the leaf of the mate before them, the leaf of the mate behind them."""


def _closed(stretches: list[_Stretch], crew: Crew, leaf_of: Mapping[str, topology.Domain]) -> Sequence[_Stretch]:
    """The stretches as parts of a ring: the last one ends beside the first rank, if that and all others are known.

    Where the first rank is still to be placed it belongs to those after it, so that ranks count up from leaf to leaf.
    """
    if crew.ring and stretches and not crew.unseen and stretches[0][1] is not None and stretches[-1][2] is None:
        ranks, behind, _ = stretches.pop()
        stretches.append((ranks, behind, leaf_of.get(crew.ring[0][2], topology.NOWHERE)))
    return stretches


def _stretches(crew: Crew, leaf_of: Mapping[str, topology.Domain]) -> Iterator[_Stretch]:
    """The stretches from the first rank to the last, in order."""
    begin, behind = 0, None
    for mate, _, node in crew.ring:
        end = bisect.bisect_left(crew.waiting, mate, lo=begin)
        ahead = leaf_of.get(node, topology.NOWHERE)
        if end > begin:
            yield crew.waiting[begin:end], behind, ahead
        begin, behind = end, ahead
    if begin < len(crew.waiting):
        yield crew.waiting[begin:], behind, None


def _urgency(
    ranks: Sequence[workload.Rank],
    behind: topology.Domain | None,
    ahead: topology.Domain | None,
    rooms: Mapping[topology.Domain, int],
) -> tuple[bool, int]:
    beside = {leaf for leaf in (behind, ahead) if leaf is not None}
    whole = len(beside) == 1 and len(ranks) <= rooms.get(min(beside), 0)
    return not whole, len(ranks)


def _filled(
    count: int,
    behind: topology.Domain | None,
    ahead: topology.Domain | None,
    order: Sequence[topology.Domain],
    free: dict[topology.Domain, int],
) -> list[topology.Domain | None]:
    """The leaves of one stretch, taken out of `free`."""
    front = _take(behind, count, free)
    back = _take(ahead, count - len(front), free)
    middle: list[topology.Domain | None] = []
    for leaf in order:
        middle += _take(leaf, count - len(front) - len(middle) - len(back), free)
    missing = count - len(front) - len(middle) - len(back)
    return [*front, *middle, *([None] * missing), *back]


def _take(leaf: topology.Domain | None, count: int, free: dict[topology.Domain, int]) -> list[topology.Domain | None]:
    taken = min(max(0, count), max(0, free.get(leaf, 0))) if leaf is not None else 0
    if leaf is not None and taken:
        free[leaf] -= taken
    return [leaf] * taken
