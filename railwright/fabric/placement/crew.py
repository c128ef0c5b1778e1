"""The scheduling state of a gang: placed peers, unplaced pods, and the target leaf of each rank.

Assigns ranks to the leaves of a plan in order. The planner chooses the leaves.
"""

import bisect
import operator
from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

from railwright.fabric import resources, topology, workload
from railwright.fabric.placement import ask, fleet, ledger

_Waiting = tuple[workload.Rank, resources.Amounts]
Mate = tuple[workload.Rank, str, str]
"""(rank, uid, node) of a placed peer."""


class Crew(msgspec.Struct, frozen=True):
    """The gang of a request. Unplaced pods count only if they request devices, unless no pod of the gang does.

    The plan has slots. A slot has the size of the largest pod; consecutive smaller pods may share one.
    """

    size: int
    placed: Sequence[Mate]  # by rank
    waiting: Sequence[workload.Rank]  # first rank of each slot of unplaced pods that exist, in order
    unseen: int  # pods that do not exist yet; they count as workers after all others
    pods: int  # unplaced pods, including the requesting one and those that do not exist yet
    member: resources.Amounts  # requests of the pod that the plan is based on: the size of a slot
    ring: Sequence[Mate]  # placed peers that request devices (launchers do not), or all if no pod of the gang does
    # UIDs whose earlier assumption is void because the scheduler is retrying them (includes the requesting pod)
    asked: frozenset[str] = frozenset()

    @property
    def remaining(self) -> int:
        """Return the number of slots that the plan needs."""
        return len(self.waiting) + self.unseen

    def place_of(self, rank: workload.Rank) -> workload.Rank:
        """Return the first rank of the slot that contains a rank; the first slot for a rank before all slots."""
        at = bisect.bisect_right(self.waiting, rank) - 1
        return self.waiting[max(0, at)]


def of(question: ask.Ask, state: fleet.Fleet, book: ledger.Ledger) -> Crew:
    """Return the state of the requesting pod's gang; a gang of one if the pod has none.

    Launchers are left out of the plan: they request almost nothing, so a plan based on one would fit anywhere, and a
    launcher counted as a worker would need a node too many. Pods that do not exist yet count as workers.
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
    """Return the first rank of each slot.

    Consecutive pods share a slot as long as their total request fits in `member`. The total includes rails, so pods
    that need exclusive rails never share a slot.
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
    """Return the placed peers that request devices. Equal pods share one requests object: results are cached by id."""
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
    """Return the requests of the pod with the most accelerators. A smaller pod would overestimate the slots."""

    def size(requests: resources.Amounts) -> int:
        return sum([requests.get(name, 0) for name in question.accelerators])

    alike = {id(mate.requests): mate.requests for mate in workers}  # equal pods share one requests object
    largest = max(alike.values(), key=size, default=question.requests)
    return largest if size(largest) > size(question.requests) else question.requests


def unplaced(gang: workload.GangKey, state: fleet.Fleet, book: ledger.Ledger) -> Iterator[fleet.FleetPod]:
    """Return the existing pods of a gang that are neither bound nor assumed."""
    announced = {entry.uid for entry in book.of_gang(gang)}
    return (pod for uid, pod in state.gang(gang).items() if not pod.node and uid not in announced)


def is_alone(question: ask.Ask, state: fleet.Fleet) -> bool:
    """True if the pod is the only pod of its job, by the declared size and the pods that exist."""
    mates = state.gang(question.gang)
    seen = len(mates) + (question.uid not in mates)
    return not question.gang or state.gang_size(question.gang, seen=seen) == 1


def _placed(question: ask.Ask, state: fleet.Fleet, book: ledger.Ledger, asked: frozenset[str]) -> list[Mate]:
    """Return the peers that are bound or assumed, by rank. An observed binding takes precedence over an assumption."""
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
    """Return the distinct leaves of the placed peers, and the leaf of the next peer in rank order or None.

    The leaf of the previous peer comes first, then that of the next, then those of lower ranks in descending order. The
    last rank is followed by the first if all pods exist.
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
    """Return the target leaf of a rank if the plan's leaves are filled by rank, or None if they are full.

    A run of ranks between two placed peers starts in the leaf of the previous peer and ends in the leaf of the next
    peer, as far as these have free slots; the last rank is followed by the first. Runs that fit on one leaf are filled
    first, short ones before long ones. Other runs span several leaves in any case.
    """
    free = dict(rooms)
    stretches = _closed(list(_stretches(crew, leaf_of)), crew, leaf_of)
    for ranks, behind, ahead in sorted(stretches, key=lambda each: _urgency(each[0], each[1], each[2], rooms)):
        filled = _filled(len(ranks), behind, ahead, order, free)
        if rank in ranks:
            return filled[ranks.index(rank)]
    return next((leaf for leaf in order if free.get(leaf, 0) > 0), None)


_Stretch = tuple[Sequence[workload.Rank], topology.Domain | None, topology.Domain | None]
"""Consecutive unplaced ranks, the leaf of the previous peer, the leaf of the next peer."""


def _closed(stretches: list[_Stretch], crew: Crew, leaf_of: Mapping[str, topology.Domain]) -> Sequence[_Stretch]:
    """Close the ring: the last run ends at the first rank's leaf, if all pods exist and the first rank is placed.

    An unplaced first rank stays in the run that follows it, so that ranks ascend from leaf to leaf.
    """
    if crew.ring and stretches and not crew.unseen and stretches[0][1] is not None and stretches[-1][2] is None:
        ranks, behind, _ = stretches.pop()
        stretches.append((ranks, behind, leaf_of.get(crew.ring[0][2], topology.NOWHERE)))
    return stretches


def _stretches(crew: Crew, leaf_of: Mapping[str, topology.Domain]) -> Iterator[_Stretch]:
    """Yield the runs of unplaced ranks in order."""
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
    """Return the leaf of each rank of one run, and subtract them from `free`."""
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
