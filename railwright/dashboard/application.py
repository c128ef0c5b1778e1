"""The dashboard's routes: the page for anybody, its data for authorized readers.

They are read-only. The page itself contains nothing about the cluster; data needs the guard's permission, again each
time a stream reconnects. On loopback the Host header must be loopback too, so that no web site can reach the port under
its own name (DNS rebinding).
"""

import contextlib
import hashlib
import ipaddress
import pathlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

import msgspec

from railwright.dashboard import feed
from railwright.serving import connections, dispatch, limits, routes, settings

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


def build_routes(views: feed.Views, guard: Guard, streams: feed.Streams, *, loopback: bool) -> Sequence[routes.Route]:
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

    def __init__(self, views: feed.Views, guard: Guard, streams: feed.Streams) -> None:
        self._views, self._guard, self._streams = views, guard, streams
        self._explain_bucket = limits.TokenBucket(_EXPLAIN_RATE, _EXPLAIN_BURST)

    async def send_stream(self, call: routes.Call) -> routes.Reply:
        """Handle GET /api/stream."""
        await self._check_permission(call)
        events = self._streams.send(self._choose(call), call.headers.get("last-event-id", ""))
        try:
            beginning = await anext(events)
        except feed.CrowdedError as error:
            raise routes.HttpError(503, str(error), {"Retry-After": "5"}) from None
        return routes.Reply(beginning, content_type="text/event-stream", headers=feed.STREAM_HEADERS, stream=events)

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


_TIMES = feed.Times()
_BOUNDS = limits.Limits(max_body=0, connections=128, keepalive_seconds=60.0, backlog=64, finish_seconds=2.0)


@contextlib.asynccontextmanager
async def open_port(
    at: settings.Address,
    views: feed.Views,
    guard: Guard,
    context: ssl.SSLContext | None = None,
    *,
    times: feed.Times = _TIMES,
) -> AsyncIterator[settings.Address]:
    """Serve the dashboard at `at` during a `with` block; yields the actual address. Raises connections.ListenError."""
    streams = feed.Streams(views, times)
    table = build_routes(views, guard, streams, loopback=at.is_loopback)
    dispatcher = dispatch.Dispatcher(table, _BOUNDS, None, headers=HEADERS)
    async with connections.open_port(at, dispatcher, context) as address:
        try:
            yield address
        finally:
            streams.close()
