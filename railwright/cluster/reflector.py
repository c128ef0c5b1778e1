"""Lists and watches one kind, to keep a sink equal to the cluster.

    list --> watch --> (the stream ends) --> watch again from the last version, without a list
      ^        |
      +--------+  the version is lost: 410, an ERROR event, or an answer that cannot be read

What happens after each failure, while the sink keeps its objects:

    no connection, silence        resume the watch: nothing was missed, because versions continue
    an untrusted certificate      the client reads its CA again with the next request
    401, 403, 429, 5xx            the same request again, after a pause; after a 401 with new credentials
    404 of a CRD                  there are no such objects; look again in half a minute
    410, ERROR event              list again: events may be missing
    an object that is unreadable  its last readable state stays; other objects are updated

Pauses grow with jitter, and only a working watch makes them short again, to prevent endless relists. A request for a
list states no resourceVersion, so the answer is the newest state. Lists are read in pages and not by WatchList, which
API servers before Kubernetes 1.34 reject by default. A list after the first is applied as differences, in slices, so
that other tasks of the event loop can run in between.

Readiness reads four values: `synced` (the first list is complete), `get_age_seconds` (time since the last list, event,
bookmark or accepted watch), `failure` (the present error) and `is_denied` (the right is missing).
"""

import asyncio
import contextlib
import logging
import random
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from railwright.cluster import client as clients
from railwright.cluster import errors, resources, sinks, watch_wire
from railwright.fabric.policy import model

_PAGE = 500  # objects per list page: bounds memory here and in the API server
_FORBIDDEN, _NOT_FOUND = 403, 404
_FIRST_PAUSE_SECONDS = 0.1
SLICE = 10  # objects decoded between two iterations of the event loop: 0.1 ms for pods of 7 kB, 0.3 ms if all changed
_MAX_LOGGED = 1000  # objects that are not read and are remembered to log each once
_SKIPPED = "object skipped: its last known state stays"
# Why a watch starts again, in the metric railwright_watch_failures_total; otherwise the status, or "unread"
_REASONS: Mapping[type[errors.ClusterError], str] = {
    errors.UnreachableError: "unreachable",
    errors.ConfigurationError: "credentials",  # a token file that is being replaced, a failing credential plugin
}
_log = logging.getLogger("railwright.cluster")


class _StreamError(errors.ApiError):
    """Raised if the server ends the watch with an ERROR event. Events may be missing then."""


CountFailure = Callable[[str, str], None]
"""Called with (kind, reason) when a watch starts again, and with (kind, "skipped") for an object that is unreadable."""


class WatchSpec(msgspec.Struct, frozen=True):
    """A kind whose objects are put into a sink, from a watch or from a snapshot.

    `excerpt` returns the part of an object that the sink needs, with its metadata; the rest is freed before the next
    object is decoded. `gradual`: the sink gets the first list object by object, while it is read. `is_needed`
    tells whether a policy needs the kind, which is watched only then; None: always. `grant` names the setting that
    grants the right to watch the kind, if not every installation has this right; the server is ready without it.
    """

    kind: resources.Kind
    sink: sinks.Sink[Any]
    excerpt: Callable[[Any], Any] = lambda obj: obj
    gradual: bool = False
    is_needed: Callable[[model.PolicyDocument], bool] | None = None
    grant: str = ""


class Reflector:
    """Keeps a sink equal to the objects of one kind in a cluster."""

    watch_seconds = 240.0  # timeout of a watch, extended by up to half
    quiet_seconds = 70.0  # bookmarks arrive every 60 s: longer silence is a dead connection
    absent_seconds = 30.0  # polling interval for an absent CRD
    longest_pause_seconds = 30.0

    def __init__(
        self,
        client: clients.Client,
        spec: WatchSpec,
        count_failure: CountFailure = lambda _kind, _reason: None,
    ) -> None:
        self.kind = spec.kind
        self.synced = asyncio.Event()
        self.failure: errors.ClusterError | None = None  # the current failure; None if the last request succeeded
        self.is_denied = False  # True from a 403 until a request succeeds: other errors in between grant no right
        self._client, self._spec, self._sink, self._count_failure = client, spec, spec.sink, count_failure
        self._version = ""  # of the newest event or list that was applied; "" if a watch cannot continue from it
        # What the sink has, by which a list is compared with it. Objects themselves are not kept: sinks keep parts.
        self._known: dict[watch_wire.Key, watch_wire.Identity] = {}
        self._logged: dict[watch_wire.Key | None, str] = {}  # errors of objects, and of the watch (None)
        self._next_pause = _FIRST_PAUSE_SECONDS  # the longest; doubled by each until the watch works
        self._last_contact = time.monotonic()
        self._decode = msgspec.json.Decoder(spec.kind.view).decode

    @property
    def object_count(self) -> int:
        """Return the number of objects in the sink."""
        return len(self._known)

    def get_age_seconds(self) -> float:
        """Return the seconds since the last contact with the API server for this kind."""
        return time.monotonic() - self._last_contact

    async def run(self) -> None:
        """List and watch the kind until cancelled."""
        while True:
            try:
                if not self._version:
                    await self._list_objects()
                await self._watch()
            except (errors.ClusterError, *watch_wire.UNREADABLE) as error:
                await self._recover(error)

    async def _recover(self, error: Exception) -> None:
        """Decide whether the watch can continue from its version, record the failure, and wait before the next attempt.

        A version stays valid after a lost connection. A new list is needed if the server has forgotten the version,
        ends the stream with an ERROR event, or sends unreadable data, because events may be missing then.
        """
        failure = error
        if not isinstance(failure, errors.ClusterError):
            failure = errors.build_foreign_error(self._client.host, self.kind.path)
        is_lost = isinstance(failure, _StreamError | errors.ForeignError)
        if is_lost or failure.status in (watch_wire.GONE, _NOT_FOUND):
            self._version = ""
        if failure.status == watch_wire.GONE:  # usual after a long interruption; the list that follows repairs it
            self._count_failure(self.kind.name, "gone")
        elif failure.status == _NOT_FOUND and self.kind.optional:
            await self._wait_for_crd()
            return
        else:
            self.failure = failure
            self.is_denied = self.is_denied or failure.status == _FORBIDDEN
            message = "watch failed; the cache keeps its objects"
            fix = self._spec.grant if self._spec.grant and failure.status == _FORBIDDEN else failure.sentence
            self._log_once(None, str(failure), message, fix=fix)
            self._count_failure(self.kind.name, str(failure.status or _REASONS.get(type(failure), "unread")))
        await self._pause()

    async def _wait_for_crd(self) -> None:
        """Empty the sink, because an absent CRD has no objects, and wait: it may be installed at any time."""
        self._sink.replace([])
        self._known.clear()
        self._record_contact()
        self.synced.set()
        self._reset_backoff()
        await asyncio.sleep(self.absent_seconds * _draw_jitter())

    # --- lists ----------------------------------------------------------------------------------------------

    async def _list_objects(self) -> None:
        """List the objects, pass the changes to the sink, slice by slice, deletions last, and set the version to watch.

        The sink gets the first list in one call, unless it is `gradual`. Later lists are not passed in one call, which
        would delay requests, and drop what caches know of unchanged objects.
        """
        at_once: list[Any] | None = None
        if not self.synced.is_set() and not self._spec.gradual:
            at_once, self._known = [], {}  # also after a list that failed half way
        gone, version = dict(self._known), ""
        async for page in watch_wire.read_pages(self._client, self.kind.path, self._build_query(limit=str(_PAGE))):
            version = page.metadata.resource_version
            for number, raw in enumerate(page.items or ()):
                if number % SLICE == 0:
                    await asyncio.sleep(0)
                if (obj := self._read_change(raw, gone)) is None:
                    continue
                if at_once is None:
                    self._upsert(obj)
                else:
                    at_once.append(obj)
                    self._store_identity(obj)
        for number, identity in enumerate(gone.values()):
            if number % SLICE == 0:
                await asyncio.sleep(0)
            self._remove(identity)
        if at_once is not None:
            self._sink.replace(at_once)
        self._record_contact()
        self.synced.set()
        self._version = version

    def _read_change(self, raw: msgspec.Raw, gone: dict[watch_wire.Key, watch_wire.Identity]) -> Any:
        """Return an object of a list if it is new or changed; None if it is unchanged, or cannot be decoded.

        Removes the object from `gone`, in which deleted objects remain after the whole list.
        """
        before = None
        if gone:  # not in the first list, of which each object would be read twice
            identity = watch_wire.decode_identified(raw).metadata
            before = gone.pop(identity.key, None)
            if before == identity:
                return None
        obj = self._decode_object(raw)
        if obj is not None and before is not None and before.uid != obj.metadata.uid:
            self._remove(before)
        return obj

    def _decode_object(self, raw: msgspec.Raw) -> Any:
        """Return the decoded object. If it cannot be decoded or has too many values, log that and return None."""
        try:
            if excess := _describe_excess(raw, self.kind.max_values):
                raise msgspec.ValidationError(excess)
            obj = self._spec.excerpt(self._decode(raw))
        except watch_wire.UNREADABLE as error:
            self._count_failure(self.kind.name, "skipped")
            identity = watch_wire.decode_identified(raw).metadata
            self._log_once(identity.key, f"{type(error).__name__}: {error}", _SKIPPED, object=str(identity))
            return None
        self._logged.pop((obj.metadata.namespace, obj.metadata.name), None)
        return obj

    # --- watches --------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Watch, and apply events to the sink until the stream ends."""
        query = self._build_query(
            watch="true",
            allowWatchBookmarks="true",
            resourceVersion=self._version,
            timeoutSeconds=str(int(self.watch_seconds * _draw_jitter())),  # so watches of replicas end one by one
        )
        event_count = 0
        stream = self._client.stream_lines(self.kind.path, query, self.quiet_seconds, opened=self._record_contact)
        async with contextlib.aclosing(stream) as lines:
            async for line in lines:
                if not line.strip():
                    continue
                await self._apply_event(line)
                event_count += 1
                if event_count % SLICE == 0:
                    await asyncio.sleep(0)  # lines that arrived together are yielded without a turn for other tasks
        if not event_count:  # not even a bookmark: a server that closes connections at once is not polled in a loop
            await self._pause()

    async def _apply_event(self, line: bytes) -> None:
        """Apply one event to the sink, then store its version, so that the next watch repeats an event that failed."""
        event = await watch_wire.decode(watch_wire.decode_event, line)
        if event.type == "ERROR":
            status = clients.decode_status(event.object)
            raise _StreamError(status.code, status.reason, status.message, self.kind.path)
        identity = watch_wire.decode_identified(event.object).metadata
        self._record_contact()
        self._reset_backoff()
        if event.type == "DELETED":
            self._remove(self._known.get(identity.key, identity))
        elif event.type != "BOOKMARK" and (obj := self._decode_object(event.object)) is not None:
            self._upsert(obj)
        self._version = identity.resource_version

    # --- the sink, and what is known of it ------------------------------------------------------------------

    def _upsert(self, obj: Any) -> None:
        self._store_identity(obj)
        self._sink.upsert(obj)

    def _store_identity(self, obj: Any) -> None:
        """Store the identity of an object. It shares the object's strings, so that no string is in memory twice."""
        meta = obj.metadata
        identity = watch_wire.Identity(sys.intern(meta.namespace), meta.name, meta.uid, meta.resource_version)
        self._known[identity.key] = identity

    def _remove(self, gone: watch_wire.Identity) -> None:
        """Remove an object from the sink, which gets only its identity: the whole object is not kept."""
        self._known.pop(gone.key, None)
        self._logged.pop(gone.key, None)
        self._sink.remove(self._decode(msgspec.json.encode(watch_wire.IdentifiedObject(gone))))

    def _record_contact(self) -> None:
        """Record contact with the API server for this kind: a list, an event, or an accepted watch."""
        self._last_contact = time.monotonic()
        self.failure, self.is_denied = None, False

    def _build_query(self, **parameters: str) -> dict[str, str]:
        return {**parameters, **({"fieldSelector": self.kind.field_selector} if self.kind.field_selector else {})}

    def _reset_backoff(self) -> None:
        """Make pauses short again, and log the next failure even if it equals the last one."""
        self._next_pause = _FIRST_PAUSE_SECONDS
        self._logged.pop(None, None)

    async def _pause(self) -> None:
        """Sleep for a random time of at most `_next_pause`, and double that, up to `longest_pause_seconds`."""
        longest, self._next_pause = self._next_pause, min(2 * self._next_pause, self.longest_pause_seconds)
        await asyncio.sleep(random.uniform(0, longest))  # noqa: S311 - jitter

    def _log_once(self, key: watch_wire.Key | None, error: str, message: str, **fields: str) -> None:
        """Log an error of the object `key` (None: of the watch) once, until it changes or ends."""
        if self._logged.get(key) != error and (key is None or len(self._logged) < _MAX_LOGGED):
            self._logged[key] = error
            _log.warning(message, extra={"fields": {"kind": self.kind.name, "error": error, **fields}})


def _draw_jitter() -> float:
    """Return a random factor from 1 to 1.5, so that periodic requests of replicas do not coincide."""
    return 1 + random.random() / 2  # noqa: S311 - jitter, not secrecy


def _describe_excess(raw: msgspec.Raw, most: int | None) -> str:
    """Return a sentence if an object has more than `most` list entries and keys, otherwise "".

    Counts commas. An object with fewer bytes than `most` cannot have that many, and is not searched.
    """
    if most is None or len(raw) <= most or (count := bytes(raw).count(b",")) <= most:
        return ""
    return f"it has about {count} list entries and keys; the limit is {most}: shorten its lists and texts"
