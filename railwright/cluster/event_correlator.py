"""Correlates and rate-limits Events: counts repeats, limits storms, bounds memory. Pure functions of the given time."""

import datetime as dt
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence

import msgspec

QUEUE = 1000  # queued notes; more is a storm, and its first notes are sufficient
KNOWN = 1000  # Events with counted repeats, and buckets per limit
REPEAT_SECONDS = 600.0  # equal notes within this time are one Event with a count, as in client-go
COUNT_SECONDS = 10.0  # minimum interval between two updates of a count


class Involved(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The object that an Event is about."""

    kind: str
    api_version: str
    namespace: str
    name: str
    uid: str = ""


class EventNote(msgspec.Struct, frozen=True):
    """Content of an Event; equal notes become one Event."""

    involved: Involved
    kind: str  # Normal or Warning
    reason: str
    message: str


class Write(msgspec.Struct, frozen=True):
    """One request to make: a new Event if `name` is "", otherwise the new count of the Event with that name."""

    note: EventNote
    name: str
    count: int


class Limit(msgspec.Struct, frozen=True):
    """A token bucket for every key: `burst` writes at once, then one every `1 / rate` seconds."""

    key: Callable[[EventNote], Hashable]
    burst: int
    rate: float  # writes per second


# Pods name their owners themselves, so a limit by owner alone could be bypassed.
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
    """The buckets of one limit. The least recently used one is dropped first, which only refills it."""

    def __init__(self, limit: Limit) -> None:
        self._limit = limit
        self._left: OrderedDict[Hashable, tuple[float, dt.datetime]] = OrderedDict()

    def has(self, note: EventNote, now: dt.datetime) -> bool:
        return self._count_tokens(note, now) >= 1

    def take(self, note: EventNote, now: dt.datetime) -> None:
        key = self._limit.key(note)
        self._left[key] = (self._count_tokens(note, now) - 1, now)
        self._left.move_to_end(key)
        if len(self._left) > KNOWN:
            self._left.popitem(last=False)

    def _count_tokens(self, note: EventNote, now: dt.datetime) -> float:
        left, since = self._left.get(self._limit.key(note), (float(self._limit.burst), now))
        return min(float(self._limit.burst), left + max(0.0, (now - since).total_seconds()) * self._limit.rate)


class EventCorrelator:
    """Correlates notes and decides on writes. Owned by one event loop."""

    def __init__(self, limits: Sequence[Limit] = LIMITS, everything: Limit = EVERYTHING) -> None:
        self.suppressed = 0  # notes suppressed by a per-object or per-namespace limit
        self._own = [_Buckets(limit) for limit in limits]
        self._all = _Buckets(everything)
        self._waiting: OrderedDict[EventNote, int] = OrderedDict()
        self._posted: OrderedDict[EventNote, _Posted] = OrderedDict()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, note: EventNote) -> bool:
        """Queue a note; equal ones are merged. False if the queue is full and the note is dropped."""
        if note not in self._waiting and len(self._waiting) >= QUEUE:
            return False
        self._waiting[note] = self._waiting.get(note, 0) + 1
        return True

    def next_write(self, now: dt.datetime) -> Write | None:
        """Return the next write; None if nothing is queued, or everything must wait."""
        for note, times in list(self._waiting.items()):
            posted_event = self._find_posted(note, now)
            if posted_event is not None and (now - posted_event.at).total_seconds() < COUNT_SECONDS:
                continue
            if not self._all.has(note, now):
                return None
            del self._waiting[note]
            if not all(buckets.has(note, now) for buckets in self._own):
                self._suppress(posted_event, times)
                continue
            for buckets in (self._all, *self._own):
                buckets.take(note, now)
            return Write(
                note, posted_event.name if posted_event else "", times + (posted_event.count if posted_event else 0)
            )
        return None

    def record_write(self, write: Write, name: str, now: dt.datetime) -> None:
        """Record a completed write and the name of its Event."""
        posted_event = self._posted.get(write.note)
        since = posted_event.since if posted_event is not None and posted_event.name == name else now
        self._posted[write.note] = _Posted(name=name, since=since, at=now, count=write.count)
        self._posted.move_to_end(write.note)
        if len(self._posted) > KNOWN:
            self._posted.popitem(last=False)

    def forget(self, note: EventNote) -> None:
        """Forget the Event of a note, because it was deleted: the next equal note creates a new one."""
        self._posted.pop(note, None)

    def _find_posted(self, note: EventNote, now: dt.datetime) -> _Posted | None:
        posted_event = self._posted.get(note)
        return (
            posted_event
            if posted_event is not None and (now - posted_event.since).total_seconds() < REPEAT_SECONDS
            else None
        )

    def _suppress(self, posted_event: _Posted | None, times: int) -> None:
        if posted_event is None:
            self.suppressed += times
        else:
            posted_event.count += times  # included in the next count
