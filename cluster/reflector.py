"""List and watch of one kind, for ever: the state machine that keeps a sink equal to the cluster.

Owns every way a watch can end: resumed where it can be, listed anew where it must be (410, an unknown error in the
stream), waited out with growing, jittered pauses where the API server is away. The sink keeps what it has meanwhile.
"""

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from cluster import client as clients
from cluster import errors, resources, sinks

PAGE = 500  # objects a list page: bounded memory here and in the API server
WATCH_SECONDS = 240.0  # a watch ends by itself after this and up to half as much again
QUIET_SECONDS = 70.0  # bookmarks come each 60 s: longer silence is a dead connection
ABSENT_SECONDS = 30.0  # how often to look whether an absent CRD has come
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 30.0
LONGEST_ASKED_SECONDS = 300.0  # a server that asks for a longer pause than this is not believed
_SHORTEST_WATCH_SECONDS = 1.0  # a watch that ended sooner, and brought nothing, did not work
_MOST_DOUBLINGS = 16  # more makes no difference under the cap, and would overflow in the end
_UNAUTHORIZED, _NOT_FOUND, _GONE = 401, 404, 410
_log = logging.getLogger("railwright.cluster")
T = TypeVar("T")


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct, Generic[T]):
    items: list[T] | None = None
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Versioned(msgspec.Struct):
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)


class _Details(msgspec.Struct, rename="camel"):
    retry_after_seconds: float = 0.0


class _Status(msgspec.Struct):
    code: int = 0
    reason: str = ""
    message: str = ""
    details: _Details | None = None


class _InStreamError(Exception):
    """The server ended the watch with an ERROR event: it cannot be resumed, whatever the reason."""

    def __init__(self, cause: errors.ApiError) -> None:
        super().__init__(str(cause))
        self.cause = cause


_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)  # the last: an object nested without end
_decode_event = msgspec.json.Decoder(_Event).decode
_decode_versioned = msgspec.json.Decoder(_Versioned).decode
_decode_status = msgspec.json.Decoder(_Status).decode


class Reflector:
    """One kind of one cluster, kept in one sink."""

    def __init__(  # noqa: PLR0913 - what tests vary comes by name
        self,
        client: clients.Client,
        kind: resources.Kind,
        sink: sinks.Sink[Any],
        *,
        clock: Callable[[], float] = time.monotonic,
        chance: random.Random | None = None,
        restarted: Callable[[str, str], None] = lambda _kind, _reason: None,
        quiet_seconds: float = QUIET_SECONDS,
        absent_seconds: float = ABSENT_SECONDS,
        longest_pause_seconds: float = LONGEST_PAUSE_SECONDS,
    ) -> None:
        self.kind = kind
        self.synced = asyncio.Event()
        self.objects = 0
        self._client, self._sink, self._clock, self._restarted = client, sink, clock, restarted
        self._chance = chance or random.Random()  # noqa: S311 - jitter, not secrecy
        self._quiet, self._absent, self._longest = quiet_seconds, absent_seconds, longest_pause_seconds
        self._heard = clock()
        self._failures = 0
        self._told = ""
        listed: Any = _List[kind.view]  # type: ignore[name-defined]  # a type made from a value
        self._decode_list = msgspec.json.Decoder(listed).decode
        self._decode = msgspec.json.Decoder(kind.view).decode

    def age_seconds(self) -> float:
        """Seconds since the API server was last heard of for this kind."""
        return self._clock() - self._heard

    async def run(self) -> None:
        """For ever; ends by cancellation only."""
        version = ""
        while True:
            try:
                if not version:
                    version = await self._list()
                version = await self._watch(version)
            except _InStreamError as error:  # the server's own words for: what follows is not what preceded
                version = ""
                await self._refused(error.cause)
            except errors.ApiError as error:
                if error.status in (_GONE, _NOT_FOUND):
                    version = ""
                await self._refused(error)
            except errors.UnreachableError as error:  # of the list; the watch handles its own
                await self._failed(error, "unreachable")
            except errors.ConfigurationError as error:  # a token file that is being replaced, a failing exec plugin
                await self._failed(error, "credentials")
            except _UNREADABLE as error:
                version = ""
                await self._failed(error, "unread")

    async def _refused(self, error: errors.ApiError) -> None:
        if error.status == _NOT_FOUND and self.kind.optional:
            await self._none_there()
        elif error.status == _GONE:
            self._restarted(self.kind.name, "gone")
            await self._pause()
        else:
            if error.status == _UNAUTHORIZED and (unusable := await self._renewed()):
                await self._failed(unusable, "credentials")
                return
            await self._failed(error, str(error.status), error.retry_after)

    async def _renewed(self) -> errors.ConfigurationError | None:
        """Has the credentials read anew; what is wrong with them, if that cannot be done now."""
        try:
            await self._client.renew()
        except errors.ConfigurationError as error:
            return error
        return None

    async def _list(self) -> str:
        """Lists page by page and gives the sink all at once; the version to watch from."""
        found: list[Any] = []
        following = ""
        while True:
            query = self._query(limit=str(PAGE), **({"continue": following} if following else {}))
            page = self._decode_list(await self._client.get(self.kind.path, query))
            found.extend(page.items or ())
            following = page.metadata.continue_
            if not following:
                break
            await asyncio.sleep(0)  # others get the loop between two pages
        self._all(found)
        return str(page.metadata.resource_version)

    async def _watch(self, version: str) -> str:
        """Feeds events until the stream ends; the version to resume from."""
        seconds = WATCH_SECONDS * (1 + self._chance.random() / 2)
        query = self._query(
            watch="true", allowWatchBookmarks="true", resourceVersion=version, timeoutSeconds=str(int(seconds))
        )
        began, fed = self._clock(), False
        try:
            async with contextlib.aclosing(self._client.stream(self.kind.path, query, self._quiet)) as lines:
                async for line in lines:
                    if line.strip():
                        version, fed = self._fed(line), True
        except errors.UnreachableError as error:
            await self._failed(error, "unreachable")  # the version reached is kept: what was fed is not listed again
            return version
        if fed or self._clock() - began >= _SHORTEST_WATCH_SECONDS:
            self._works()
        else:
            await self._pause()  # a server that hangs up at once must not be asked in a tight loop
        return version

    def _fed(self, line: bytes) -> str:
        """One event into the sink; its resource version."""
        event = _decode_event(line)
        if event.type == "ERROR":
            raise _InStreamError(_told_in_stream(_decode_status(event.object), self.kind.path))
        self._heard = self._clock()
        self._works()
        if event.type == "BOOKMARK":
            return _decode_versioned(event.object).metadata.resource_version
        obj = self._decode(event.object)
        if event.type == "DELETED":
            self._sink.remove(obj)
            self.objects -= 1
        else:
            self._sink.upsert(obj)
            self.objects += event.type == "ADDED"
        return str(obj.metadata.resource_version)

    def _all(self, found: list[Any]) -> None:
        self._sink.replace(found)
        self.objects = len(found)
        self._heard = self._clock()
        self.synced.set()

    async def _none_there(self) -> None:
        """The CRD is absent: there are no such objects, until it comes."""
        self._all([])
        self._works()
        await asyncio.sleep(self._absent * (1 + self._chance.random() / 2))

    def _query(self, **given: str) -> dict[str, str]:
        return {**given, **({"fieldSelector": self.kind.field_selector} if self.kind.field_selector else {})}

    def _works(self) -> None:
        """The watch itself works. A list alone does not count: one relist after another is a storm, so pauses grow."""
        self._failures = 0
        self._told = ""

    async def _failed(self, error: Exception, reason: str, asked: float = 0.0) -> None:
        self._tell(error)
        self._restarted(self.kind.name, reason)
        await self._pause(asked)

    async def _pause(self, asked: float = 0.0) -> None:
        """Exponential with full jitter, capped; on top of what the server asks for, so that not all come at once."""
        longest = min(self._longest, FIRST_PAUSE_SECONDS * 2**self._failures)
        self._failures = min(self._failures + 1, _MOST_DOUBLINGS)
        await asyncio.sleep(min(asked, LONGEST_ASKED_SECONDS) + self._chance.uniform(0, longest))

    def _tell(self, error: Exception) -> None:
        """Logs a failure once, until it changes or the watch has worked again."""
        text = str(error)
        if text == self._told:
            return
        self._told = text
        fields = {"kind": self.kind.name, "error": text, "fix": _fix(error, self.kind)}
        _log.warning("watch failed", extra={"fields": fields})


def _told_in_stream(status: _Status, path: str) -> errors.ApiError:
    asked = status.details.retry_after_seconds if status.details else 0.0
    return errors.ApiError(status.code, status.reason, status.message, path, retry_after=asked)


def _fix(error: Exception, kind: resources.Kind) -> str:
    status = error.status if isinstance(error, errors.ApiError) else 0
    resource = kind.path.rpartition("/")[2]
    role = f"the account needs the verbs list and watch on {resource} ({kind.path}): apply the roles of manifests/base"
    return {
        401: "the account's credentials are not accepted: check the kubeconfig or the service account token",
        403: role,
        404: f"the API server does not know {kind.path}: check the server's version, and that the kubeconfig is for it",
    }.get(status, "the cache keeps what it has and the watch is tried again")
