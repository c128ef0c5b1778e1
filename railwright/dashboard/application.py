"""Serves the dashboard: its page to anybody, the overview to authorized readers.

The routes are read-only. The page itself contains nothing about the cluster; data needs the guard's permission, again
each time a stream reconnects. On loopback the Host header must be loopback too, so that no web site can reach the port
under its own name (DNS rebinding).

A feed computes the overview while it has readers, at most once a second, in small steps. A reader gets the whole
overview as one JSON, and again when it has changed. The id of the event is the JSON's hash: a reader that has it
already, of this server or of another replica, waits for the next change. A slow reader queues nothing; it receives
several changes as one. A stream has heartbeats, and an end after which the reader reconnects.
"""

import asyncio
import contextlib
import hashlib
import ipaddress
import pathlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence

import msgspec
from aiohttp import hdrs, typedefs, web

from railwright.fabric.overview import overview_builder
from railwright.serving import application, ports, settings, tls

# --- readers --------------------------------------------------------------------------------------------------

PACE_SECONDS = 1.0  # between two refreshes; faster updates are of no use to a person
_MAX_SLOWDOWN = 5  # with thousands of nodes, whose refresh takes longer
_MAX_CPU_SHARE = 0.1  # of the time that refreshes take: the extender has schedulers to answer
READERS = 32  # concurrent readers; each gets the complete overview, half a megabyte for a thousand nodes


class CrowdedError(Exception):
    """Raised if the maximum number of readers is connected."""


class Feed:
    """The overview and its readers. Owned by one event loop."""

    def __init__(
        self,
        builder: overview_builder.OverviewBuilder,
        *,
        source: str,
        list_problems: Callable[[], Sequence[str]] = tuple,
        pace_seconds: float = PACE_SECONDS,
    ) -> None:
        """`source`: the cluster or file, as the header shows it. `list_problems` returns the problems with its data."""
        self.builder = builder
        self.readers = 0
        self.is_closed = False
        self.source = source
        self.body, self.body_id = b"", ""  # the JSON of the overview and its hash; "" before the first refresh
        self._list_problems, self._pace = list_problems, pace_seconds
        self._changed, self._has_readers = asyncio.Event(), asyncio.Event()

    @contextlib.contextmanager
    def count_reader(self) -> Iterator[None]:
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

    async def wait_for_change(self, body_id: str, seconds: float) -> bool:
        """Wait for an overview with another id. Returns False after `seconds` and when the feed is closed."""
        if self.body_id in ("", body_id):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._changed.wait()
        return self.body_id not in ("", body_id)

    def close(self) -> None:
        """End all streams; their readers reconnect, possibly to another replica."""
        self.is_closed = True
        self._changed.set()

    async def run(self) -> None:
        """Refresh until cancelled, while there are readers."""
        while True:
            await self._has_readers.wait()
            began = time.monotonic()
            for _ in self.builder.refresh():
                await asyncio.sleep(0)  # yield to the server's real work
            overview = self.builder.build_overview(source=self.source, problems=self._list_problems())
            body = msgspec.json.encode(overview)
            if body != self.body:
                self.body, self.body_id = body, hashlib.sha256(body).hexdigest()[:32]
                self._changed.set()
                self._changed = asyncio.Event()
            elapsed = time.monotonic() - began
            await asyncio.sleep(max(self._pace, min(elapsed / _MAX_CPU_SHARE, _MAX_SLOWDOWN * self._pace)))


# --- server-sent events ---------------------------------------------------------------------------------------

_HEARTBEAT = b"event: beat\ndata: {}\n\n"
STREAM_HEADERS: Mapping[str, str] = {"X-Accel-Buffering": "no"}  # otherwise nginx buffers events


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """Timing of a stream in seconds; tests shorten it."""

    beat: float = 5.0  # heartbeat interval: the page shows itself as stale after two and a half intervals
    renew: float = 600.0  # then the stream ends and the reader is authorized again


async def list_events(feed: Feed, last_id: str, times: Times) -> AsyncGenerator[bytes, None]:
    """Yield each new overview until the reader has to be authorized again. Raises CrowdedError first."""
    end = time.monotonic() + times.renew
    with feed.count_reader():
        yield b"retry: 1000\n\n"
        while not feed.is_closed and time.monotonic() < end:
            if await feed.wait_for_change(last_id, times.beat):
                last_id = feed.body_id
                yield b"id: %s\nevent: change\ndata: %s\n\n" % (last_id.encode(), feed.body)
            elif not feed.is_closed:
                yield _HEARTBEAT
        yield b"event: again\ndata: {}\n\n"


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

Guard = Callable[[str, str], Awaitable[tuple[int, str] | None]]
"""(Authorization header, peer) -> None if the client may read, otherwise (status, reason)."""


_FEED = web.AppKey("feed", Feed)
_GUARD = web.AppKey[Guard]("guard")
_TIMES_OF = web.AppKey("times", Times)
_FILES = web.AppKey[Mapping[str, tuple[bytes, Mapping[str, str]]]]("files")


def build_application(feed: Feed, guard: Guard, times: Times, *, loopback: bool) -> web.Application:
    """Return the application. `loopback`: refuse requests whose Host header is another machine's."""
    app = application.build(
        application.Rules(max_body=0),
        [
            web.get("/", send_page),
            web.get("/page/{name}", send_file),
            web.get("/api/stream", send_stream, allow_head=False),
            web.get("/api/why", explain),
        ],
        *([require_loopback] if loopback else []),
    )
    app.on_response_prepare.append(add_headers)
    app[_FEED], app[_GUARD], app[_TIMES_OF] = feed, guard, times
    app[_FILES] = {path.name: _read_file(path) for path in _PAGE.iterdir()}
    return app


async def add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    """Add the security headers to every response."""
    response.headers[hdrs.SERVER] = "railwright"
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)


@web.middleware
async def require_loopback(request: web.Request, handler: typedefs.Handler) -> web.StreamResponse:
    """Refuse a request whose Host header names another machine."""
    if not is_loopback_host(request.host):
        reason = "the Host header does not name this machine: open the URL that the command printed"
        raise application.HttpError(421, reason)
    return await handler(request)


async def send_stream(request: web.Request) -> web.StreamResponse:
    """Handle GET /api/stream. A reader that takes nothing for _STREAM_SECONDS is disconnected."""
    await _check_permission(request)
    last_id = request.headers.get("Last-Event-ID", "")
    async with contextlib.aclosing(list_events(request.app[_FEED], last_id, request.app[_TIMES_OF])) as events:
        try:
            part = await anext(events)
        except CrowdedError as error:
            raise application.HttpError(503, str(error), Retry_After="5") from None
        response = web.StreamResponse(headers={**STREAM_HEADERS, hdrs.CONTENT_TYPE: "text/event-stream"})
        response.force_close()
        deadline, loop = request[application.DEADLINE], asyncio.get_running_loop()
        await response.prepare(request)
        while part:
            deadline.reschedule(loop.time() + _STREAM_SECONDS)
            await response.write(part)
            deadline.reschedule(None)
            part = await anext(events, b"")
    return response


async def explain(request: web.Request) -> web.Response:
    """Handle GET /api/why: why a gang or a pod is, or is not, on a node."""
    await _check_permission(request)
    query, builder = request.query, request.app[_FEED].builder
    explanation = builder.explain(query.get("gang") or query.get("pod", ""), query.get("node", ""))
    if explanation is None:
        raise application.HttpError(404, "no such gang, pod or node: it may have been deleted")
    return application.reply(msgspec.json.encode(explanation))


async def _check_permission(request: web.Request) -> None:
    """Raise HttpError if the client may not read."""
    denial = await request.app[_GUARD](request.headers.get(hdrs.AUTHORIZATION, ""), request.remote or "")
    if denial is not None:
        status, reason = denial
        raise application.HttpError(status, reason, **({"WWW_Authenticate": "Bearer"} if status == 401 else {}))


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


def _read_file(path: pathlib.Path) -> tuple[bytes, Mapping[str, str]]:
    """Return a file of the page with its headers. Browsers revalidate it before each use."""
    body = path.read_bytes()
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    return body, {hdrs.ETAG: etag, hdrs.CACHE_CONTROL: "no-cache", hdrs.CONTENT_TYPE: _MEDIA_TYPES[path.suffix]}


async def send_page(request: web.Request) -> web.Response:
    """Handle GET /."""
    return _send(request, "index.html")


async def send_file(request: web.Request) -> web.Response:
    """Handle GET /page/NAME."""
    return _send(request, request.match_info["name"])


def _send(request: web.Request, name: str) -> web.Response:
    file = request.app[_FILES].get(name)
    if file is None:
        raise application.HttpError(404, "no such path")
    body, headers = file
    if request.headers.get(hdrs.IF_NONE_MATCH) == headers[hdrs.ETAG]:
        return web.Response(status=304, headers=headers)
    return web.Response(body=body, headers=headers)


_TIMES = Times()
_STREAM_SECONDS = 20.0


@contextlib.asynccontextmanager
async def open_port(
    at: settings.Address,
    feed: Feed,
    guard: Guard,
    certificate: tls.Certificate | None = None,
    *,
    times: Times = _TIMES,
) -> AsyncIterator[settings.Address]:
    """Serve the dashboard at `at` during a `with` block; yields the actual address. Raises ports.ListenError."""
    app = build_application(feed, guard, times, loopback=at.is_loopback)
    async with ports.open_port(at, app, certificate) as port:
        try:
            yield port.address
        finally:
            feed.close()
