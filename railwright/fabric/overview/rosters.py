"""Who is in each gang and in which order: the ranks as people count them, and the colours gangs are known by.

Owns the numbering of ranks and the choice of colours. Knows no bandwidth and no node but its name.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from railwright.fabric import workload
from railwright.fabric.overview import members, model
from railwright.fabric.placement import fleet, ledger

KEPT = 1000  # gangs shown; a cluster of 5,000 nodes runs some hundreds
_NO_INDEX = 1 << 30  # as workload gives to a pod without a number


class Member(msgspec.Struct, frozen=True):
    """One pod of a gang."""

    uid: str
    key: str  # namespace/name
    number: int  # its rank as people count, from 0
    node: str  # "" until bound or announced
    announced: bool


class Roster(msgspec.Struct, frozen=True):
    """One gang."""

    key: workload.GangKey
    size: int
    members: tuple[Member, ...]  # in order of rank

    @property
    def placed(self) -> int:
        """Members with a node."""
        return sum(1 for each in self.members if each.node)

    @property
    def state(self) -> str:
        """One of model.PLACED, STARTING, WAITING."""
        placed = self.placed
        if placed >= self.size:
            return model.PLACED
        return model.STARTING if placed else model.WAITING


class Rosters:
    """All gangs of opted-in pods. Of more than KEPT the first by name are kept."""

    def __init__(self, state: fleet.Fleet, book: ledger.Ledger, known: members.Members) -> None:
        self._state, self._book, self._known = state, book, known
        self._seen: tuple[int, int, int] = (-1, -1, -1)
        self.of: dict[workload.GangKey, Roster] = {}
        self.colours: dict[workload.GangKey, int] = {}
        self.numbers: dict[str, tuple[workload.GangKey, int]] = {}  # pod uid -> gang and rank
        self.total = 0

    def refresh(self) -> Collection[workload.GangKey]:
        """Look again; the gangs that came, changed or went."""
        seen = (self._state.generation, self._book.journal.position, self._known.generation)
        if seen == self._seen:
            return ()
        self._seen = seen
        self.total = len(self._known.gangs)
        keys = sorted(self._known.gangs)[:KEPT]
        fresh = {key: found for key in keys if (found := _roster(key, self._state, self._book)).members}
        changed = [key for key in {**self.of, **fresh} if self.of.get(key) != fresh.get(key)]
        for key in changed:
            for each in self.of[key].members if key in self.of else ():
                self.numbers.pop(each.uid, None)
        for key in changed:
            for each in fresh[key].members if key in fresh else ():
                self.numbers[each.uid] = (key, each.number)
        self.of = fresh
        self.colours = _coloured(self.colours, fresh)
        return changed


def _roster(key: workload.GangKey, state: fleet.Fleet, book: ledger.Ledger) -> Roster:
    pods = sorted(state.gang(key).values(), key=lambda pod: pod.rank)
    announced = {entry.uid: entry.node for entry in book.of_gang(key)}
    found = tuple(
        Member(
            uid=pod.uid,
            key=pod.key,
            number=number,
            node=pod.node or announced.get(pod.uid, ""),
            announced=not pod.node and pod.uid in announced,
        )
        for number, pod in zip(_numbers(pods), pods, strict=True)
    )
    return Roster(key=key, size=state.gang_size(key, seen=len(found)), members=found)


def _numbers(pods: Sequence[fleet.FleetPod]) -> Iterable[int]:
    """The frameworks' own indices where they tell all members apart, so that a late one moves nobody; else places."""
    indices = [pod.rank.index for pod in pods]
    own = len(set(indices)) == len(indices) and _NO_INDEX not in indices and len({pod.rank.role for pod in pods}) == 1
    return indices if own else range(len(pods))


def _coloured(
    old: Mapping[workload.GangKey, int], gangs: Mapping[workload.GangKey, Roster]
) -> dict[workload.GangKey, int]:
    """A colour for each gang: its own of before, or the lowest that is free."""
    kept = {key: old[key] for key in gangs if key in old}
    taken = set(kept.values())
    free = (colour for colour in range(len(gangs) + 1) if colour not in taken)
    for key in gangs:
        if key not in kept:
            kept[key] = next(free)
    return kept
