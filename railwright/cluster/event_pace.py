"""When an Event may be written: repeats are counted, storms are held back, memory is bounded. Pure, given the time.

Owns the numbers. Refuses to know the API server and how an Event looks; whoever calls says what time it is.
"""

import datetime as dt
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence

import msgspec

QUEUE = 1000  # notes waiting; more is a storm, and the first of it tells enough
KNOWN = 1000  # Events whose repeats are counted, and buckets of each kind
REPEAT_SECONDS = 600.0  # the same words on one object within this are one Event with a count; client-go's interval
COUNT_SECONDS = 10.0  # a count is written this often at most, however often the words are repeated


class Involved(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The object an Event is about."""

    kind: str
    api_version: str
    namespace: str
    name: str
    uid: str = ""


class Note(msgspec.Struct, frozen=True):
    """What an Event says of an object; equal notes are one Event."""

    involved: Involved
    kind: str  # Normal or Warning
    reason: str
    message: str


class Write(msgspec.Struct, frozen=True):
    """One call to make: a new Event where `name` is "", else the new count of the one of that name."""

    note: Note
    name: str
    count: int


class Limit(msgspec.Struct, frozen=True):
    """A token bucket for every key: `burst` writes at once, then one each `1 / rate` seconds."""

    key: Callable[[Note], Hashable]
    burst: int
    rate: float  # writes a second


# Owners are what a pod's author says they are, so a limit by owner alone could be walked around.
LIMITS = (
    Limit(lambda note: note.involved, 25, 1 / 300),  # client-go, tools/record: defaultSpamBurst, defaultSpamQPS
    Limit(lambda note: note.involved.namespace, 100, 1.0),
)
EVERYTHING = Limit(lambda _: None, 200, 10.0)


class _Posted(msgspec.Struct):
    name: str
    since: dt.datetime
    at: dt.datetime
    count: int


class _Buckets:
    """The buckets of one limit; the one unused for longest goes first, which only refills it."""

    def __init__(self, limit: Limit) -> None:
        self._limit = limit
        self._left: OrderedDict[Hashable, tuple[float, dt.datetime]] = OrderedDict()

    def has(self, note: Note, now: dt.datetime) -> bool:
        return self._tokens(note, now) >= 1

    def take(self, note: Note, now: dt.datetime) -> None:
        key = self._limit.key(note)
        self._left[key] = (self._tokens(note, now) - 1, now)
        self._left.move_to_end(key)
        if len(self._left) > KNOWN:
            self._left.popitem(last=False)

    def _tokens(self, note: Note, now: dt.datetime) -> float:
        left, since = self._left.get(self._limit.key(note), (float(self._limit.burst), now))
        return min(float(self._limit.burst), left + max(0.0, (now - since).total_seconds()) * self._limit.rate)


class Pace:
    """Notes in, writes out. One event loop owns it."""

    def __init__(self, limits: Sequence[Limit] = LIMITS, everything: Limit = EVERYTHING) -> None:
        self.held_back = 0  # notes that became no Event because their object or namespace had its share
        self._own = [_Buckets(limit) for limit in limits]
        self._all = _Buckets(everything)
        self._waiting: OrderedDict[Note, int] = OrderedDict()
        self._posted: OrderedDict[Note, _Posted] = OrderedDict()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, note: Note) -> bool:
        """Take a note; equal ones wait as one. False where the queue is full and the note is lost."""
        if note not in self._waiting and len(self._waiting) >= QUEUE:
            return False
        self._waiting[note] = self._waiting.get(note, 0) + 1
        return True

    def next(self, now: dt.datetime) -> Write | None:
        """What to write now; None while nothing waits, or while it has to wait longer."""
        for note, times in list(self._waiting.items()):
            known = self._known(note, now)
            if known is not None and (now - known.at).total_seconds() < COUNT_SECONDS:
                continue
            if not self._all.has(note, now):
                return None
            del self._waiting[note]
            if not all(buckets.has(note, now) for buckets in self._own):
                self._hold_back(known, times)
                continue
            for buckets in (self._all, *self._own):
                buckets.take(note, now)
            return Write(note, known.name if known else "", times + (known.count if known else 0))
        return None

    def written(self, write: Write, name: str, now: dt.datetime) -> None:
        """The write has been made; the Event is called `name`."""
        known = self._posted.get(write.note)
        since = known.since if known is not None and known.name == name else now
        self._posted[write.note] = _Posted(name=name, since=since, at=now, count=write.count)
        self._posted.move_to_end(write.note)
        if len(self._posted) > KNOWN:
            self._posted.popitem(last=False)

    def forget(self, note: Note) -> None:
        """Its Event is gone: the next equal note is a new one."""
        self._posted.pop(note, None)

    def _known(self, note: Note, now: dt.datetime) -> _Posted | None:
        known = self._posted.get(note)
        return known if known is not None and (now - known.since).total_seconds() < REPEAT_SECONDS else None

    def _hold_back(self, known: _Posted | None, times: int) -> None:
        if known is None:
            self.held_back += times
        else:
            known.count += times  # the next count that is written holds them
