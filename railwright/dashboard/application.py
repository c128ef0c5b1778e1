"""The dashboard: its page for anybody, its data for authorized readers, and the changes of an overview as events.

The routes are read-only. The page itself contains nothing about the cluster; data needs the guard's permission, again
each time a stream reconnects. On loopback the Host header must be loopback too, so that no web site can reach the port
under its own name (DNS rebinding).

A feed keeps an overview up to date while it has readers, at most twice a second, in small steps. The overview is
sections, each with its version. A reader at version N needs the sections newer than N and the names of sections removed
since; it waits if there are none. A reader from before a restart of the server (another epoch), or with a version too
old, needs all sections. A slow reader queues nothing; it receives several changes as one. A stream has heartbeats, and
an end after which the reader reconnects.
"""

import asyncio
import contextlib
import datetime as dt
import hashlib
import ipaddress
import pathlib
import secrets
import ssl
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from railwright.cluster import sources
from railwright.fabric.overview import overview_builder, overview_types
from railwright.serving import connections, dispatch, limits, routes, settings

# --- what changed ---------------------------------------------------------------------------------------------

_MAX_REMOVED = 4096  # names of removed sections that are remembered

_encode = msgspec.json.Encoder().encode


class Delta(msgspec.Struct, frozen=True):
    """The changes for one reader; `sections` and `removed` are JSON."""

    version: int
    full: bool  # True: `sections` replaces everything that the reader has
    sections: Mapping[str, bytes]
    removed: tuple[str, ...]

    @property
    def body(self) -> bytes:
        """Return the delta as a JSON object on one line."""
        parts = [_encode(key) + b":" + value for key, value in self.sections.items()]
        head = b'{"version":%d,"full":%s,"removed":%s,"sections":{' % (
            self.version,
            b"true" if self.full else b"false",
            _encode(self.removed),
        )
        return head + b",".join(parts) + b"}}"


class Deltas:
    """The sections of an overview over time."""

    def __init__(self) -> None:
        self.version = 0
        self._oldest = 0  # readers with an older version need all sections
        self._sections: dict[str, tuple[int, Any, bytes]] = {}  # version, value, JSON
        self._removed: OrderedDict[str, int] = OrderedDict()

    def update(self, overview: overview_types.Overview) -> bool:
        """Store an overview; return True if it differs from the last one."""
        version = self.version + 1
        sections = dict(_list_sections(overview))
        changed = False
        for key, value in sections.items():
            old = self._sections.get(key)
            if old is not None and (old[1] is value or old[1] == value):
                continue
            self._sections[key] = (version, value, _encode(value))
            self._removed.pop(key, None)
            changed = True
        for key in [key for key in self._sections if key not in sections]:
            del self._sections[key]
            self._removed[key] = version
            changed = True
        while len(self._removed) > _MAX_REMOVED:
            self._oldest = self._removed.popitem(last=False)[1]
        self.version += changed
        return changed

    def compute_delta(self, version: int | None) -> Delta:
        """Return the changes since a version; all sections if it is None, too old, or from another epoch."""
        if version is None or not self._oldest <= version <= self.version:
            sections = {key: section[2] for key, section in self._sections.items()}
            return Delta(version=self.version, full=True, removed=(), sections=sections)
        return Delta(
            version=self.version,
            full=False,
            sections={key: section[2] for key, section in self._sections.items() if section[0] > version},
            removed=tuple(key for key, removed_at in self._removed.items() if removed_at > version),
        )


def _list_sections(overview: overview_types.Overview) -> Iterator[tuple[str, Any]]:
    yield "site", overview.site
    for fabric in overview.fabrics:
        yield f"fabric/{fabric.name}", fabric
    for key, leaf in overview.leaves.items():
        yield f"leaf/{key}", leaf
    for gang in overview.gangs:
        yield f"gang/{gang.key}", gang
    yield "admissions", overview.admissions
    yield "events", overview.events


# --- readers --------------------------------------------------------------------------------------------------

PACE_SECONDS = 0.5  # between two refreshes; faster updates are of no use to a person
READERS = 32  # concurrent readers; each may need the complete overview, half a megabyte for a thousand nodes


class CrowdedError(Exception):
    """The maximum number of readers is connected."""


class Feed:
    """One overview and its readers. Owned by one event loop."""

    def __init__(
        self,
        builder: overview_builder.OverviewBuilder,
        *,
        source: str,
        connection: Callable[[], overview_types.Connection] = overview_types.Connection,
        pace_seconds: float = PACE_SECONDS,
    ) -> None:
        """`source`: the cluster or file, as the header shows it. `connection`: how current its data is."""
        self.builder = builder
        self.readers = 0
        self.source = source
        self.mean_bandwidth: float | None = None  # of the placed gangs, modelled; None if there is none
        self._connection, self._pace = connection, pace_seconds
        self._deltas = Deltas()
        self._changed, self._has_readers = asyncio.Event(), asyncio.Event()

    @property
    def version(self) -> int:
        """Version of the newest change; 0 before the first refresh."""
        return self._deltas.version

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Count one more reader during the context. Raises CrowdedError."""
        if self.readers >= READERS:
            raise CrowdedError(f"{READERS} readers are connected already: close one of the dashboard's pages")
        self.readers += 1
        self._has_readers.set()
        try:
            yield
        finally:
            self.readers -= 1
            if not self.readers:
                self._has_readers.clear()

    async def after(self, version: int | None, seconds: float) -> Delta | None:
        """Return the change since `version` (None: everything), or None if there is none within `seconds`."""
        if self.version in (0, version):
            try:
                async with asyncio.timeout(seconds):
                    await self._changed.wait()
            except TimeoutError:
                return None
        return self._deltas.compute_delta(version)

    async def run(self) -> None:
        """Refresh until cancelled, while there are readers."""
        while True:
            await self._has_readers.wait()
            for _ in self.builder.refresh(time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())):
                await asyncio.sleep(0)  # yield to the server's real work
            overview = self.builder.build_overview(source=self.source, connection=self._connection())
            self.mean_bandwidth = _compute_mean(overview.gangs)
            if self._deltas.update(overview):
                self._changed.set()
                self._changed = asyncio.Event()
            await asyncio.sleep(self._pace)


def _compute_mean(gangs: Sequence[overview_types.Gang]) -> float | None:
    bandwidths = [gang.bandwidth for gang in gangs if gang.bandwidth is not None]
    return round(sum(bandwidths) / len(bandwidths), 2) if bandwidths else None


Views = Mapping[str, Feed]
"""Name -> feed of one overview; the page has a switch if there are several. The first is the default."""


# --- server-sent events ---------------------------------------------------------------------------------------

_MAX_VERSION_DIGITS = 18  # digits; Python refuses to parse numbers of thousands of digits
_HEARTBEAT = b"event: beat\ndata: {}\n\n"
STREAM_HEADERS: Mapping[str, str] = {"X-Accel-Buffering": "no"}  # otherwise nginx buffers events


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """Timing of a stream in seconds; tests shorten it."""

    beat: float = 5.0  # heartbeat interval: the page shows itself as stale after two and a half intervals
    renew: float = 600.0  # then the stream ends and the reader is authorized again


class Streams:
    """The streams of one port."""

    def __init__(self, views: Views, times: Times) -> None:
        self._views, self._times = views, times
        # an epoch invalidates versions of other views and from before a restart of the server
        self._epochs = {name: secrets.token_hex(4) for name in views}
        self._closing = asyncio.Event()

    def close(self) -> None:
        """End all streams; their readers reconnect, possibly to another replica."""
        self._closing.set()

    async def send(self, view: str, last_event_id: str) -> AsyncGenerator[bytes, None]:
        """Yield the changes of a view until the reader has to be authorized again. Raises CrowdedError first."""
        source, epoch = self._views[view], self._epochs[view]
        version = _parse_version(last_event_id, epoch)
        end = time.monotonic() + self._times.renew
        with contextlib.ExitStack() as stack:
            for other in self._views.values():  # also of the others, whose means are shown beside this one's
                stack.enter_context(other.reading())
            yield b"retry: 1000\n\n"
            views = b""
            while not self._closing.is_set() and time.monotonic() < end:
                delta = await self._wait_for_delta(source, version)
                previous_views, views = views, self._format_views()
                event = _HEARTBEAT if delta is None else _format_event(delta, epoch)
                yield event if views == previous_views else views + event
                version = version if delta is None else delta.version
            yield b"event: again\ndata: {}\n\n"

    async def _wait_for_delta(self, source: Feed, version: int | None) -> Delta | None:
        """Return the next change, or None if a heartbeat is due or the port closes."""
        change = asyncio.ensure_future(source.after(version, self._times.beat))
        closing = asyncio.ensure_future(self._closing.wait())
        try:
            await asyncio.wait((change, closing), return_when=asyncio.FIRST_COMPLETED)
            return change.result() if change.done() else None
        finally:
            change.cancel()
            closing.cancel()

    def _format_views(self) -> bytes:
        """Return an event with the views' names and mean bandwidths if there are several, so that they are compared."""
        if len(self._views) == 1:
            return b""
        means = {name: view.mean_bandwidth for name, view in self._views.items()}
        return b"event: views\ndata: " + msgspec.json.encode(means) + b"\n\n"


def _format_event(delta: Delta, epoch: str) -> bytes:
    return b"id: %s-%d\nevent: change\ndata: %s\n\n" % (epoch.encode(), delta.version, delta.body)


def _parse_version(event_id: str, current_epoch: str) -> int | None:
    """Return the version that the reader has, or None if it is unknown or belongs to another epoch."""
    epoch, _, number = event_id.partition("-")
    is_current = epoch == current_epoch and len(number) <= _MAX_VERSION_DIGITS
    return int(number) if is_current and number.isascii() and number.isdigit() else None


# --- how current the data is ----------------------------------------------------------------------------------

_STALE_SECONDS = 150.0  # an idle watch gets a bookmark each minute; more than two are missing


def describe_connection(
    origin: sources.Sources, *, poll_failure: str = "", policy: pathlib.Path | None = None
) -> overview_types.Connection:
    """Return the state of the sources. `poll_failure`: error of a poll of the API server. `policy`: its file."""
    away = origin.find_outage() or poll_failure
    return overview_types.Connection(
        problems=_list_problems(origin, away),
        away=away,
        is_refused=origin.is_refused(),
        reading=tuple(origin.list_unread()),
        policy_name=origin.policy_object.name if policy is None else policy.name,
        policy_at=origin.policy_object.created_at if policy is None else _read_modification_time(policy),
    )


def _list_problems(origin: sources.Sources, away: str) -> tuple[str, ...]:
    if away:  # the cause of all other problems
        return (away,)
    if origin.list_unread():  # the policy may be among them
        return tuple(origin.list_missing())
    problems = (origin.find_policy_problem(), *origin.list_missing(), *origin.list_late(_STALE_SECONDS))
    return tuple(filter(None, problems))


def _read_modification_time(path: pathlib.Path) -> str:
    try:
        modified = path.stat().st_mtime
    except OSError:
        return ""
    return dt.datetime.fromtimestamp(modified, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# --- routes -------------------------------------------------------------------------------------------------


PATH = "/dashboard"  # the nonResourceURL on which a reader's account needs the verb get
# Only our own files; no inline script or style, no markup from text (trusted types), no framing.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS: Mapping[str, str] = {  # of every response
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
_PAGE = pathlib.Path(__file__).with_name("page")  # plain HTML, CSS and ES modules, which need no other network
_MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_EXPLAIN_RATE, _EXPLAIN_BURST = 5, 10  # each is a decision over all nodes, which takes milliseconds of the event loop

Guard = Callable[[str, str], Awaitable[tuple[int, str] | None]]
"""(Authorization header, peer) -> None if the client may read, otherwise (status, reason)."""


def build_routes(views: Views, guard: Guard, streams: Streams, *, loopback: bool) -> Sequence[routes.Route]:
    """Return the routes. `loopback`: refuse requests whose Host header is another machine's."""
    data = _Data(views, guard, streams)
    files = {path.name: _read_file(path) for path in _PAGE.iterdir()}
    table: Mapping[str, routes.Handle] = {
        "/": lambda call: _send_file(files["index.html"], call),
        "/page/{name}": lambda call: _send_file(files.get(call.parameters["name"]), call),
        "/api/stream": data.send_stream,
        "/api/why": data.explain,
    }
    return [
        routes.Route(path, _require_loopback(handle) if loopback else handle, "GET") for path, handle in table.items()
    ]


class _Data:
    """The handlers that need permission."""

    def __init__(self, views: Views, guard: Guard, streams: Streams) -> None:
        self._views, self._guard, self._streams = views, guard, streams
        self._explain_bucket = limits.TokenBucket(_EXPLAIN_RATE, _EXPLAIN_BURST)

    async def send_stream(self, call: routes.Call) -> routes.Reply:
        """Handle GET /api/stream."""
        await self._check_permission(call)
        events = self._streams.send(self._choose(call), call.headers.get("last-event-id", ""))
        try:
            beginning = await anext(events)
        except CrowdedError as error:
            raise routes.HttpError(503, str(error), {"Retry-After": "5"}) from None
        return routes.Reply(beginning, content_type="text/event-stream", headers=STREAM_HEADERS, stream=events)

    async def explain(self, call: routes.Call) -> routes.Reply:
        """Handle GET /api/why: why a gang or a pod is, or is not, on a node."""
        await self._check_permission(call)
        if not self._explain_bucket.take():
            raise routes.HttpError(429, "too many requests at once: retry in a second", {"Retry-After": "1"})
        query, builder = call.query, self._views[self._choose(call)].builder
        explanation = builder.explain(query.get("gang") or query.get("pod", ""), query.get("node", ""))
        if explanation is None:
            raise routes.HttpError(404, "no such gang, pod or node: it may have been deleted")
        return routes.Reply(msgspec.json.encode(explanation))

    def _choose(self, call: routes.Call) -> str:
        """Return the name of the view that a request asks for; the first one by default. Raises HttpError."""
        name = call.query.get("view") or next(iter(self._views))
        if name not in self._views:
            raise routes.HttpError(404, f"no such view; there are: {', '.join(self._views)}")
        return name

    async def _check_permission(self, call: routes.Call) -> None:
        """Raise HttpError if the client may not read."""
        denial = await self._guard(call.headers.get("authorization", ""), call.peer)
        if denial is not None:
            status, reason = denial
            raise routes.HttpError(status, reason, {"WWW-Authenticate": "Bearer"} if status == 401 else None)


def is_loopback_host(header: str) -> bool:
    """True if a Host header names this machine: 127.0.0.1:8080, localhost, [::1]:8080."""
    host = header.rpartition(":")[0] if header.rpartition(":")[2].isdigit() else header
    host = host.removeprefix("[").removesuffix("]").lower()
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _require_loopback(handle: routes.Handle) -> routes.Handle:
    def check(call: routes.Call) -> routes.Reply | Awaitable[routes.Reply]:
        if not is_loopback_host(call.headers.get("host", "")):
            raise routes.HttpError(
                421, "the Host header does not name this machine: open the URL that the command printed"
            )
        return handle(call)

    return check


def _read_file(path: pathlib.Path) -> routes.Reply:
    """Return a file of the page. Browsers revalidate it before each use."""
    body = path.read_bytes()
    headers = {"ETag": f'"{hashlib.sha256(body).hexdigest()[:32]}"', "Cache-Control": "no-cache"}
    return routes.Reply(body, content_type=_MEDIA_TYPES[path.suffix], headers=headers)


def _send_file(file: routes.Reply | None, call: routes.Call) -> routes.Reply:
    if file is None:
        raise routes.HttpError(404, "no such path")
    is_current = call.headers.get("if-none-match") == file.headers["ETag"]
    return file._replace(body=b"", status=304) if is_current else file


_TIMES = Times()
_BOUNDS = limits.Limits(max_body=0, connections=128, keepalive_seconds=60.0, backlog=64, finish_seconds=2.0)


@contextlib.asynccontextmanager
async def open_port(
    at: settings.Address,
    views: Views,
    guard: Guard,
    context: ssl.SSLContext | None = None,
    *,
    times: Times = _TIMES,
) -> AsyncIterator[settings.Address]:
    """Serve the dashboard at `at` during a `with` block; yields the actual address. Raises connections.ListenError."""
    streams = Streams(views, times)
    table = build_routes(views, guard, streams, loopback=at.is_loopback)
    dispatcher = dispatch.Dispatcher(table, _BOUNDS, None, headers=HEADERS)
    async with connections.open_port(at, dispatcher, context) as address:
        try:
            yield address
        finally:
            streams.close()
