"""Allocations a scheduler has announced and the cluster does not show yet.

Keyed by pod uid, so that every event may come twice, late or without its twin: allocate upserts, deallocate
removes if present (ruling 24). Entries of one scheduler are one scope (ruling 25). Time is an argument; what the
cluster shows is confirmed by the caller. Nothing here survives a restart, and nothing has to: the next session's
requests and the pod watch show it all again.
"""

import enum
from collections.abc import Iterable, Iterator

import msgspec

from railwright.fabric import resources, workload
from railwright.fabric.placement import journal

DEFAULT_SCOPE = ""
KUBE_SCOPE = "/scheduler"  # of pods that kube-scheduler has very likely placed; no Volcano instance's name has a slash


class State(enum.StrEnum):
    """How firm an allocation is."""

    ALLOCATED = "allocated"  # the scheduler will bind it, or tell us it will not
    PIPELINED = "pipelined"  # promised to a pod once another has gone; void when the session closes
    UNCONFIRMED = "unconfirmed"  # its session has closed and no binding has been seen yet


class Entry(msgspec.Struct, gc=False, frozen=True):
    """One pod's announced place."""

    uid: str
    key: str  # namespace/name
    gang: workload.GangKey
    rank: workload.Rank
    node: str
    requests: resources.Amounts
    state: State
    since: float  # seconds on the caller's monotonic clock


class Ledger:
    """All scopes' entries, indexed by node and by gang."""

    def __init__(self, *, assume_seconds: float) -> None:
        self._assume_seconds = assume_seconds
        self._entries: dict[str, tuple[str, Entry]] = {}
        self._by_node: dict[str, dict[str, Entry]] = {}
        self._by_gang: dict[workload.GangKey, dict[str, Entry]] = {}
        self._by_scope: dict[str, dict[str, Entry]] = {}
        self.journal = journal.Journal()

    def allocate(self, entry: Entry, scope: str = DEFAULT_SCOPE) -> None:
        """The scheduler placed a pod; a repeat moves it."""
        self._drop(entry.uid)
        self._entries[entry.uid] = (scope, entry)
        self._by_node.setdefault(entry.node, {})[entry.uid] = entry
        self._by_gang.setdefault(entry.gang, {})[entry.uid] = entry
        self._by_scope.setdefault(scope, {})[entry.uid] = entry
        self.journal.touch(entry.node)

    def deallocate(self, uid: str) -> bool:
        """The scheduler took a placement back; True if there was one."""
        return self._drop(uid)

    def confirm(self, uid: str) -> bool:
        """The cluster shows the pod bound, or gone: the fleet counts it from here on."""
        return self._drop(uid)

    def close(self, scope: str, now: float) -> None:
        """A session of this scope ended: what was pipelined is void, the rest awaits the watch."""
        for entry_scope, entry in list(self._entries.values()):
            if entry_scope != scope:
                continue
            if entry.state is State.PIPELINED:
                self._drop(entry.uid)
            elif entry.state is State.ALLOCATED:
                self.allocate(msgspec.structs.replace(entry, state=State.UNCONFIRMED, since=now), scope)

    def expire(self, now: float) -> tuple[Entry, ...]:
        """Drop and return what was announced longer ago than `assume_seconds`."""
        late = tuple(entry for _, entry in self._entries.values() if now - entry.since > self._assume_seconds)
        for entry in late:
            self._drop(entry.uid)
        return late

    def entry(self, uid: str) -> Entry | None:
        """What was announced of a pod."""
        held = self._entries.get(uid)
        return held[1] if held else None

    def on_node(self, node: str) -> Iterable[Entry]:
        """Entries on a node."""
        return self._by_node.get(node, {}).values()

    def of_gang(self, gang: workload.GangKey) -> Iterable[Entry]:
        """Entries of a gang."""
        return self._by_gang.get(gang, {}).values() if gang else ()

    def scope_of(self, uid: str) -> str:
        """The scope that announced a pod; the default one where none did."""
        held = self._entries.get(uid)
        return held[0] if held else DEFAULT_SCOPE

    def of_others(self, scope: str) -> Iterator[Entry]:
        """Entries of all scopes but this one."""
        return (entry for other, held in self._by_scope.items() if other != scope for entry in held.values())

    def uncommitted(self, uid: str) -> frozenset[str]:
        """The pods announced in vain beside this one, itself among them, now that its scheduler asks for it again.

        Volcano commits what a session placed of a gang, or none of it, and its next session knows: it would not ask
        for a pod it is binding. Their places stay taken till they are announced anew, but are no mates' places.
        """
        old = self.entry(uid)
        if old is None or old.state is not State.UNCONFIRMED:
            return frozenset((uid,))
        beside = self.of_gang(old.gang)
        return frozenset((uid, *(e.uid for e in beside if e.state is State.UNCONFIRMED and e.since == old.since)))

    def count(self, state: State) -> int:
        """How many entries are in a state."""
        return sum(1 for _, entry in self._entries.values() if entry.state is state)

    def __iter__(self) -> Iterator[Entry]:
        return (entry for _, entry in self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def _drop(self, uid: str) -> bool:
        held = self._entries.pop(uid, None)
        if held is None:
            return False
        scope, entry = held
        for index, key in ((self._by_node, entry.node), (self._by_gang, entry.gang), (self._by_scope, scope)):
            index[key].pop(uid)  # type: ignore[index]  # each key belongs to its own index
            if not index[key]:  # type: ignore[index]
                del index[key]  # type: ignore[arg-type]
        self.journal.touch(entry.node)
        return True
