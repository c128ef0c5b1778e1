"""Writes Kubernetes Events, as shown by `kubectl describe`, in the background. Their rate is limited."""

import asyncio
import datetime as dt
import hashlib
import logging
import re
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence

import msgspec

from railwright.cluster import client as clients
from railwright.cluster import errors

WRITTEN, HELD_BACK, DROPPED, FAILED = "written", "held_back", "dropped", "failed"  # results of a note
_POLL_SECONDS = 0.25  # polling interval while notes wait
_LONGEST_MESSAGE = 1024  # characters, core/v1 Event
_NOT_FOUND, _EXISTS = 404, 409
_CLUSTER_SCOPED = frozenset({"DeviceClass"})
_LONGEST_NAME = 320  # characters of each part of a reference: a group of 253, "/" and a version
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")  # checked, because it becomes part of a URL path
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")  # of an Event; the name of an owner is arbitrary text
_log = logging.getLogger("railwright.events")
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
    """The token buckets of one limit. The least recently used one is dropped first: a new one is full."""

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


class Events:
    """Posts Events for one component."""

    def __init__(
        self,
        client: clients.Client,
        component: str,
        *,
        now: Callable[[], dt.datetime],
        on_result: Callable[[str, int], None] = lambda _result, _count: None,
    ) -> None:
        """`on_result` is called with WRITTEN, HELD_BACK, DROPPED or FAILED and the number of notes."""
        self._client, self._component, self._now, self._on_result = client, component, now, on_result
        self._correlator = EventCorrelator()
        self._queued = asyncio.Event()
        self._dropped = 0

    def post(self, involved: Involved, *, warning: bool, reason: str, message: str) -> None:
        """Queue an Event; returns at once and never raises."""
        note = EventNote(involved, "Warning" if warning else "Normal", reason, message[:_LONGEST_MESSAGE])
        if _is_valid_reference(involved) and self._correlator.add(note):
            self._queued.set()
        else:
            self._dropped += 1
            self._on_result(DROPPED, 1)

    async def run(self) -> None:
        """Post queued Events until cancelled. An Event that cannot be posted is logged and dropped."""
        while True:
            write = self._correlator.next_write(self._now())
            self._report_losses()
            if write is None:
                await self._wait()
                continue
            try:
                await self._write(write)
                self._on_result(WRITTEN, 1)
            except errors.ClusterError as error:
                self._on_result(FAILED, 1)
                _log.warning("Event not posted", extra={"fields": {"reason": write.note.reason, "error": str(error)}})

    def _report_losses(self) -> None:
        if self._correlator.suppressed:
            self._on_result(HELD_BACK, self._correlator.suppressed)
            self._correlator.suppressed = 0
        if self._dropped:
            _log.warning("Events dropped", extra={"fields": {"count": self._dropped}})
            self._dropped = 0

    async def _wait(self) -> None:
        if len(self._correlator):
            await asyncio.sleep(_POLL_SECONDS)
            return
        self._queued.clear()
        await self._queued.wait()

    async def _write(self, write: Write) -> None:
        now = self._now()
        name = write.name
        if not name or not await self._update_count(write, now):
            name = await self._create_event(write, now)
        self._correlator.record_write(write, name, now)

    async def _update_count(self, write: Write, now: dt.datetime) -> bool:
        """Update the count of an Event; return False if it is gone. The API server keeps Events for about an hour."""
        change = {"count": write.count, "lastTimestamp": _format_time(now)}
        path = f"{_build_path(write.note.involved)}/{write.name}"
        try:
            await self._client.patch(path, msgspec.json.encode(change), "application/merge-patch+json")
        except errors.ApiError as error:
            if error.status != _NOT_FOUND:
                raise
            self._correlator.forget(write.note)
            return False
        return True

    async def _create_event(self, write: Write, now: dt.datetime) -> str:
        note = write.note
        name = _build_name(note, now)
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": _get_namespace(note.involved)},
            "involvedObject": note.involved,
            "type": note.kind,
            "reason": note.reason,
            "message": note.message,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "firstTimestamp": _format_time(now),
            "lastTimestamp": _format_time(now),
            "count": write.count,
        }
        try:
            await self._client.post(_build_path(note.involved), msgspec.json.encode(event))
        except errors.ApiError as error:
            if error.status != _EXISTS:
                raise
            # Posted by another replica, which has counted it at least once.
            shared = msgspec.structs.replace(write, name=name, count=write.count + 1)
            await self._update_count(shared, now)
        return name


def _is_valid_reference(involved: Involved) -> bool:
    """True if the namespace and all lengths are valid. The reference may come from a pod that was not validated yet."""
    parts = msgspec.structs.astuple(involved)
    return _NAMESPACE.fullmatch(_get_namespace(involved)) is not None and all(
        len(part) <= _LONGEST_NAME for part in parts
    )


def _build_path(involved: Involved) -> str:
    return f"/api/v1/namespaces/{_get_namespace(involved)}/events"


def _get_namespace(involved: Involved) -> str:
    """Return the namespace of Events about an object: `default` for a DeviceClass (core/v1, ValidateEventCreate)."""
    return "default" if involved.kind in _CLUSTER_SCOPED else involved.namespace


def _build_name(note: EventNote, now: dt.datetime) -> str:
    """Return the name of an Event, the same from all replicas within REPEAT_SECONDS, so that they write one."""
    period = now.timestamp() // REPEAT_SECONDS
    digest = hashlib.sha256(f"{note}{period}".encode(errors="replace")).hexdigest()[:16]
    stem = note.involved.name[:200].rstrip("-.")
    return f"{stem if _NAME.fullmatch(stem) else 'railwright'}.{digest}"


def _format_time(now: dt.datetime) -> str:
    return now.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
