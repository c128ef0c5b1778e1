"""List and watch of one kind: the state machine that keeps a sink equal to the cluster.

A watch that ends is resumed if possible, and replaced by a new list if necessary (410, an unknown error in the
stream). If the API server is unreachable, retries are delayed with exponential, jittered pauses; the sink keeps its
objects. Lists are paged; if pages expire, the list is read in one request, as client-go does. WatchList is not used:
API servers before Kubernetes 1.34 reject it by default, and all support pages. A list after the first is applied as
differences, in slices, so that other tasks of the event loop can run in between.
"""

import asyncio
import contextlib
import logging
import random
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, TypeVar

import msgspec

from railwright.cluster import client as clients
from railwright.cluster import errors, failures, resources, sinks, watch_wire

_ARRAY = resources.MAX_POD_VALUES  # bytes of pods that are decoded at once: none of them has too many values
PAGE = 500  # objects per list page: bounds memory here and in the API server
# page size while requests are served: a page is decoded in one go, 350 kB of pods in about a millisecond
LATER_PAGE = 50
WATCH_SECONDS = 240.0  # timeout of a watch, extended by up to half
QUIET_SECONDS = 70.0  # bookmarks arrive every 60 s: longer silence is a dead connection
ABSENT_SECONDS = 30.0  # polling interval for an absent CRD
_SHORTEST_WATCH_SECONDS = 1.0  # a shorter watch without events counts as failed
_UNAUTHORIZED, _NOT_FOUND = 401, 404
SLICE = 10  # objects decoded between two iterations of the event loop: 0.1 ms for pods of 7 kB, 0.3 ms if all changed
_FIRST_SLICE = 50  # the same in a first list, while no request is served: 1 to 5 ms
_OLDER_LISTS = 5  # consecutive lists older than the known state: the cluster was restored from a backup
T = TypeVar("T")


class _InStreamError(Exception):
    """The server ended the watch with an ERROR event; the watch cannot be resumed."""

    def __init__(self, cause: errors.ApiError) -> None:
        super().__init__(str(cause))
        self.cause = cause


class _OlderError(Exception):
    """A list is older than the known state, because its server is behind. It is not applied."""


class Reflector:
    """Keeps one sink equal to one kind of one cluster."""

    def __init__(  # noqa: PLR0913 - parameters that tests vary are given by name
        self,
        client: clients.Client,
        kind: resources.Kind,
        sink: sinks.Sink[Any],
        *,
        clock: Callable[[], float] = time.monotonic,
        chance: random.Random | None = None,
        restarted: Callable[[str, str], None] = lambda _kind, _reason: None,
        skipped: Callable[[str], None] = lambda _kind: None,
        excerpt: Callable[[Any], Any] = lambda obj: obj,
        gradual: bool = False,
        quiet_seconds: float = QUIET_SECONDS,
        watch_seconds: float = WATCH_SECONDS,
        absent_seconds: float = ABSENT_SECONDS,
        longest_pause_seconds: float = clients.LONGEST_PAUSE_SECONDS,
    ) -> None:
        """`skipped` is called with the kind for every object that could not be decoded, or only in part.

        `excerpt` returns the part of an object that the sink needs, which bounds memory while a list is read; it must
        keep metadata. `gradual`: the sink accepts a part of the first list, and gets it page by page.
        """
        self.kind = kind
        self.synced = asyncio.Event()
        self.failure: errors.ClusterError | None = None  # the current failure; None if the last request succeeded
        self._client, self._sink, self._clock, self._restarted = client, sink, clock, restarted
        self._skipped, self._excerpt, self._gradual = skipped, excerpt, gradual
        self._known: dict[watch_wire.Key, watch_wire.Identity] = {}
        self._newest = 0  # the highest resourceVersion seen
        self._older = 0  # consecutive lists that were older
        self._chance = chance or random.Random()  # noqa: S311 - jitter, not secrecy
        self._backoff = clients.Backoff(longest_pause_seconds, self._chance)
        self._failure_log = FailureLog(kind)
        self._quiet, self._absent = quiet_seconds, absent_seconds
        self._watch_seconds = watch_seconds
        self._last_contact = clock()
        self._decode = msgspec.json.Decoder(kind.view).decode
        self._decode_several = msgspec.json.Decoder(list[kind.view]).decode  # type: ignore[name-defined]  # a value
        self._decode_brief = msgspec.json.Decoder(kind.brief).decode if kind.brief is not None else None

    @property
    def objects(self) -> int:
        """The number of objects in the sink."""
        return len(self._known)

    def get_age_seconds(self) -> float:
        """Return the seconds since the last contact with the API server for this kind."""
        return self._clock() - self._last_contact

    async def run(self) -> None:
        """Run until cancelled."""
        version = ""
        while True:
            try:
                if not version:
                    version = await self._list()
                version = await self._watch(version)
            except _InStreamError as error:  # the events after it need not follow those before
                version = ""
                await self._handle_api_error(error.cause)
            except errors.ApiError as error:
                if error.status in (watch_wire.GONE, _NOT_FOUND):
                    version = ""
                await self._handle_api_error(error)
            except errors.UnreachableError as error:  # of a list; the watch handles its own
                await self._handle_failure(error, "unreachable")
            except errors.ConfigurationError as error:  # a token file that is being replaced, a failing exec plugin
                await self._handle_failure(error, "credentials")
            except _OlderError as error:
                await self._handle_failure(error, "older")
            except (errors.ForeignError, *watch_wire.UNREADABLE) as error:
                version = ""
                await self._handle_failure(error, "unread")

    async def _handle_api_error(self, error: errors.ApiError) -> None:
        if error.status == _NOT_FOUND and self.kind.optional:
            await self._handle_absent_crd()
        elif error.status == watch_wire.GONE:
            self._restarted(self.kind.name, "gone")
            await self._backoff.pause()
        else:
            if error.status == _UNAUTHORIZED and (unusable := await self._renew_credentials()):
                await self._handle_failure(unusable, "credentials")
                return
            await self._handle_failure(error, str(error.status), error.retry_after)

    async def _renew_credentials(self) -> errors.ConfigurationError | None:
        """Reload the credentials; return the error if this fails."""
        try:
            await self._client.renew()
        except errors.ConfigurationError as error:
            return error
        return None

    async def _list(self) -> str:
        """List, feed the sink, and return the version to watch from."""
        # A later list is applied as differences, in slices: to replace all objects at once would delay requests, and
        # drop what is cached of objects that have not changed.
        read = self._apply_differences if self.synced.is_set() or self._gradual else self._replace_all
        try:
            return await read(paged=True)
        except errors.ApiError as error:
            if error.status != watch_wire.GONE:
                raise
        # the pages took longer than the API server keeps a version, and would again
        self._restarted(self.kind.name, "gone")
        return await read(paged=False)

    async def _replace_all(self, *, paged: bool) -> str:
        """Give the sink the complete list at once."""
        objects: list[Any] = []
        known: dict[watch_wire.Key, watch_wire.Identity] = {}
        list_version = ""
        async for list_version, part in self._iterate_list(paged=paged):  # noqa: B007 - the last one counts
            for raw in part:
                if (obj := self._read(raw)) is not None:
                    identity = _identify(obj)
                    known[identity.key] = identity
                    objects.append(obj)
        self._sink.replace(objects)
        self._known = known
        self._complete(list_version)
        return list_version

    async def _apply_differences(self, *, paged: bool) -> str:
        """Apply the differences between a list and the known objects, slice by slice, deletions last."""
        left = dict(self._known)
        list_version = ""
        async for list_version, part in self._iterate_list(paged=paged):  # noqa: B007 - the last one counts
            for item in part:
                before = None
                if left:  # not in the first list, of which each object would be read twice
                    identity = watch_wire.decode_identified(item).metadata
                    before = left.pop(identity.key, None)
                    if before == identity:
                        continue
                if (obj := self._read(item) if isinstance(item, msgspec.Raw) else item) is None:
                    continue  # an object that cannot be decoded keeps its last state
                if before is not None and before.uid != obj.metadata.uid:
                    self._forget(before)
                self._take(obj)
        for gone in _slice_objects(list(left.values())):
            await asyncio.sleep(0)
            for identity in gone:
                self._forget(identity)
        self._complete(list_version)
        return list_version

    async def _iterate_list(self, *, paged: bool) -> AsyncIterator[tuple[str, Sequence[Any]]]:
        """Yield all objects in slices, each with the list's version; other tasks run between two slices.

        Those of a first list that is applied gradually are decoded, if they can be decoded together. All others are
        texts. An empty list yields one empty slice. Raises _OlderError before the first slice.
        """
        limit = {"limit": str(LATER_PAGE if self.synced.is_set() else PAGE)} if paged else {}
        is_first = True
        decode_page = watch_wire.open_page if self._gradual and not self._known else watch_wire.decode_list
        pages = watch_wire.read_pages(self._client, self.kind.path, self._build_query(**limit), decode_page)
        async with contextlib.aclosing(pages):
            async for page in pages:
                if is_first:
                    self._accept(page.metadata.resource_version)
                is_first = False
                async for part in self._slice_page(page):
                    yield page.metadata.resource_version, part
                    await asyncio.sleep(0)

    async def _slice_page(self, page: watch_wire.List | watch_wire.Text) -> AsyncIterator[Sequence[Any]]:
        """Yield the objects of a page in slices: decoded if the page is a text, as raw values once that fails."""
        count = 0
        if isinstance(page, watch_wire.Text):
            try:
                part: list[Any] = []
                for array in page.split(_ARRAY):
                    part += self._read_several(array)
                    if len(part) >= _FIRST_SLICE:
                        yield part
                        count += len(part)
                        part = []
                yield part
            except watch_wire.UNREADABLE:
                page = await watch_wire.read_page(self._client, self.kind.path, page.text, watch_wire.decode_list)
            else:
                return
        for raws in _slice_objects((page.items or ())[count:]):
            yield raws

    def _read_several(self, array: bytes) -> list[Any]:
        """Return the objects of an array. Raises UNREADABLE, also if one may have too many values."""
        most = self.kind.max_values
        if most is not None and len(array) > most and array.count(b",") > most:
            raise msgspec.ValidationError
        return [self._excerpt(obj) for obj in self._decode_several(array)]

    def _accept(self, version: str) -> None:
        """Raise _OlderError for a list that would revert objects to an older state."""
        if watch_wire.parse_version(version) < self._newest and self._older < _OLDER_LISTS:
            self._older += 1
            raise _OlderError(
                f"{self.kind.path}: the list has version {version}, older than the known version {self._newest}"
            )
        self._older, self._newest = 0, watch_wire.parse_version(version)

    def _read(self, raw: msgspec.Raw) -> Any:
        """Return the decoded object, or None if it cannot be decoded.

        An object with too many values is decoded by the kind's brief view, and without one not at all. What is not read
        is logged.
        """
        try:
            excess = _describe_excess(raw, self.kind.max_values)
            if not excess:
                obj = self._excerpt(self._decode(raw))
                self._failure_log.forget_unread((obj.metadata.namespace, obj.metadata.name))
                return obj
            if self._decode_brief is None:
                raise msgspec.ValidationError(excess)
            obj = self._excerpt(self._decode_brief(raw))
        except watch_wire.UNREADABLE as error:
            self._skipped(self.kind.name)
            identity = watch_wire.decode_identified(raw).metadata
            self._failure_log.log_unread(identity, f"{type(error).__name__}: {error}", _SKIPPED)
            return None
        self._skipped(self.kind.name)
        self._failure_log.log_unread(_identify(obj), excess, _READ_IN_PART)
        return obj

    async def _watch(self, version: str) -> str:
        """Apply events until the stream ends; return the version to resume from."""
        seconds = self._watch_seconds * (1 + self._chance.random() / 2)
        query = self._build_query(
            watch="true", allowWatchBookmarks="true", resourceVersion=version, timeoutSeconds=str(int(seconds))
        )
        began, event_count = self._clock(), 0
        try:
            async with contextlib.aclosing(
                self._client.stream(self.kind.path, query, self._quiet, opened=self._record_contact)
            ) as lines:
                async for line in lines:
                    if line.strip():
                        version, event_count = await self._apply_event(line), event_count + 1
                        if event_count % SLICE == 0:
                            # lines that arrived together are yielded without giving other tasks a turn
                            await asyncio.sleep(0)
        except errors.SilentError:
            # silence without events is no failure; the next request shows whether the server is reachable
            return version
        except errors.UnreachableError as error:
            await self._handle_failure(
                error, "unreachable"
            )  # keeps the version, so applied events are not listed again
            return version
        if event_count or self._clock() - began >= _SHORTEST_WATCH_SECONDS:
            self._reset_backoff()
        else:
            await self._backoff.pause()  # a server that closes connections at once must not be polled in a tight loop
        return version

    async def _apply_event(self, line: bytes) -> str:
        """Apply one event to the sink; return its resource version."""
        event = await watch_wire.decode(watch_wire.decode_event, line)
        if event.type == "ERROR":
            raise _InStreamError(watch_wire.build_stream_error(clients.decode_status(event.object), self.kind.path))
        self._record_contact()
        self._reset_backoff()
        identity = watch_wire.decode_identified(event.object).metadata
        self._newest = max(self._newest, watch_wire.parse_version(identity.resource_version))
        if event.type == "DELETED":
            self._forget(self._known.get(identity.key, identity))
        elif event.type != "BOOKMARK" and (obj := self._read(event.object)) is not None:
            self._take(obj)
        return identity.resource_version

    def _take(self, obj: Any) -> None:
        identity = _identify(obj)
        self._known[identity.key] = identity
        self._sink.upsert(obj)

    def _forget(self, gone: watch_wire.Identity) -> None:
        """Remove an object from the sink, which identifies it by name: the full object is not kept for that."""
        self._known.pop(gone.key, None)
        self._failure_log.forget_unread(gone.key)
        self._sink.remove(self._decode(msgspec.json.encode(watch_wire.Identified(gone))))

    def _complete(self, version: str) -> None:
        self._newest = max(self._newest, watch_wire.parse_version(version))
        self._record_contact()
        self.synced.set()

    def _record_contact(self) -> None:
        """Record contact with the API server for this kind: a list, an event, or an accepted watch."""
        self._last_contact = self._clock()
        self.failure = None

    async def _handle_absent_crd(self) -> None:
        """Handle an absent CRD: there are no such objects until it is installed."""
        self._sink.replace([])
        self._known.clear()
        self._newest = 0  # after a new installation, versions may start over
        self._complete("")
        self._reset_backoff()
        await asyncio.sleep(self._absent * (1 + self._chance.random() / 2))

    def _build_query(self, **parameters: str) -> dict[str, str]:
        return {**parameters, **({"fieldSelector": self.kind.field_selector} if self.kind.field_selector else {})}

    def _reset_backoff(self) -> None:
        """Reset the backoff. Only a working watch does: successive relists would be a storm, so their pauses grow."""
        self._backoff.reset()
        self._failure_log.forget_failure()

    async def _handle_failure(self, error: Exception, reason: str, retry_after: float = 0.0) -> None:
        self.failure = (
            error
            if isinstance(error, errors.ClusterError)
            else failures.build_foreign(self._client.host, self.kind.path)
        )
        self._failure_log.log_failure(error)
        self._restarted(self.kind.name, reason)
        await self._backoff.pause(retry_after)


def _describe_excess(raw: msgspec.Raw, most: int | None) -> str:
    """Return a sentence if an object has more list entries and keys than are read, otherwise "".

    Most objects have fewer bytes than that, and need no count.
    """
    if most is None or len(raw) <= most or (count := bytes(raw).count(b",")) <= most:
        return ""
    return f"it has about {count} list entries and keys; at most {most} are read"


def _identify(obj: Any) -> watch_wire.Identity:
    """Return the identity of an object with the strings of `obj`, so that each string is stored once."""
    meta = obj.metadata
    return watch_wire.Identity(sys.intern(meta.namespace), meta.name, meta.uid, meta.resource_version)


def _slice_objects(objects: Sequence[T]) -> list[Sequence[T]]:
    """Return slices in order; one empty slice for an empty sequence."""
    return [objects[start : start + SLICE] for start in range(0, max(1, len(objects)), SLICE)]


_MAX_LOGGED = 1000  # objects that are not read, or in part, and are remembered to log each once
_SKIPPED = "object skipped: it cannot be decoded; its last known state stays"
_READ_IN_PART = "object read in part: shorten its lists and texts"
_log = logging.getLogger("railwright.cluster")


class FailureLog:
    """The failures of the watch of one kind that were logged."""

    def __init__(self, kind: resources.Kind) -> None:
        self._kind = kind
        self._last_logged = ""
        self._unread: dict[watch_wire.Key, str] = {}  # the logged errors by object

    def log_failure(self, error: Exception) -> None:
        """Log a failure once, until it changes or the watch works again."""
        text = str(error)
        if text == self._last_logged:
            return
        self._last_logged = text
        fields = {"kind": self._kind.name, "error": text, "fix": _suggest_fix(error, self._kind)}
        _log.warning("watch failed", extra={"fields": fields})

    def forget_failure(self) -> None:
        """Log the next failure also if it is the same: the watch has worked in between."""
        self._last_logged = ""

    def log_unread(self, identity: watch_wire.Identity, error: str, message: str) -> None:
        """Log an object that is not read, or in part, once for each error."""
        if self._unread.get(identity.key) == error or len(self._unread) >= _MAX_LOGGED:
            return
        self._unread[identity.key] = error
        fields = {"kind": self._kind.name, "object": str(identity), "error": error}
        _log.warning(message, extra={"fields": fields})

    def forget_unread(self, key: watch_wire.Key) -> None:
        """Forget the error of an object that can be read again or is gone."""
        self._unread.pop(key, None)


def _suggest_fix(error: Exception, kind: resources.Kind) -> str:
    status = error.status if isinstance(error, errors.ApiError) else 0
    resource = kind.path.rpartition("/")[2]
    role = (
        f"the account needs the verbs list and watch on {resource} ({kind.path}): apply the roles and bindings of the "
        "installation again"
    )
    return {
        401: "the account's credentials are not accepted: check the kubeconfig or the service account token",
        403: role,
        404: f"the API server does not know {kind.path}: check the server's version, and that the kubeconfig is for it",
    }.get(status, "the cache keeps its objects and the watch is retried")
