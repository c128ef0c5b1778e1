"""Serves the dashboard: its page to anybody, the overview to authorized readers.

The routes are read-only. The page itself contains nothing about the cluster; each request for data needs the guard's
permission. On loopback the Host header must be loopback too, so that no web site can reach the port under its own name
(DNS rebinding).

The page asks for the overview every two seconds. The overview is one JSON, computed when a reader asks, at most once a
second and in small steps. A reader that already has it gets no body: its ETag is the same from every replica.
"""

import asyncio
import hashlib
import pathlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec
from aiohttp import hdrs, typedefs, web

from railwright.fabric.overview import overview_builder
from railwright.serving import application, settings

_PACE_SECONDS = 1.0  # between two refreshes; faster updates are of no use to a person
_SLOWEST_SECONDS = 5.0  # with thousands of nodes, whose refresh takes longer
_MAX_CPU_SHARE = 0.1  # of the time that refreshes take: the extender has schedulers to answer


class Feed:
    """Keeps the overview as JSON, and refreshes it. Owned by one event loop."""

    def __init__(
        self,
        builder: overview_builder.OverviewBuilder,
        *,
        source: str,
        list_problems: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        """`source`: the cluster or file, as the header shows it. `list_problems` returns the problems of the source."""
        self.builder = builder
        self._source, self._list_problems = source, list_problems
        self._body = b""
        self._due_at = 0.0  # of the next refresh, by the monotonic clock
        self._refreshing: asyncio.Task[None] | None = None

    async def read_overview(self) -> bytes:
        """Return the overview, after a refresh if one is due. Concurrent readers wait for the same refresh."""
        if self._refreshing is None and time.monotonic() >= self._due_at:
            self._refreshing = asyncio.create_task(self._refresh())
        if self._refreshing is not None:
            await asyncio.shield(self._refreshing)  # goes on if this reader hangs up: half a refresh is none
        return self._body

    async def _refresh(self) -> None:
        began = time.monotonic()
        try:
            for _ in self.builder.refresh():
                await asyncio.sleep(0)  # yield to the server's real work
            overview = self.builder.build_overview(source=self._source, problems=self._list_problems())
            self._body = msgspec.json.encode(overview)
            pause = min((time.monotonic() - began) / _MAX_CPU_SHARE, _SLOWEST_SECONDS)
            self._due_at = time.monotonic() + max(_PACE_SECONDS, pause)
        finally:
            self._refreshing = None


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
_PAGE = {path.name: path.read_bytes() for path in pathlib.Path(__file__).with_name("page").iterdir()}  # by name
_MEDIA_TYPES = {"css": "text/css", "html": "text/html", "js": "text/javascript", "svg": "image/svg+xml"}  # by suffix

Guard = Callable[[str, str], Awaitable[tuple[int, str] | None]]
"""(Authorization header, peer) -> None if the client may read, otherwise (status, reason)."""


_FEED = web.AppKey("feed", Feed)
_GUARD = web.AppKey[Guard]("guard")


def build_application(feed: Feed, guard: Guard, *, loopback: bool) -> web.Application:
    """Return the dashboard. With `loopback`, it refuses requests whose Host header names another machine."""
    app = application.build_application(
        application.Rules(max_body=0),
        [
            web.get("/", send_file),
            web.get("/page/{name}", send_file),
            web.get("/api/overview", send_overview),
            web.get("/api/why", send_explanation),
        ],
        *([require_loopback] if loopback else []),
    )
    app.on_response_prepare.append(add_headers)
    app[_FEED], app[_GUARD] = feed, guard
    return app


async def add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    """Add the security headers to every response."""
    response.headers[hdrs.SERVER] = "railwright"
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)


@web.middleware
async def require_loopback(request: web.Request, handler: typedefs.Handler) -> web.StreamResponse:
    """Refuse a request unless its Host header is a loopback name, such as 127.0.0.1:8080, localhost or [::1]:8080."""
    host, _, port = request.host.rpartition(":")
    name = (host if port.isdigit() else request.host).removeprefix("[").removesuffix("]")
    if not settings.Address(name.lower(), 0).is_loopback:
        reason = "the Host header does not name this machine: open the URL that the command printed"
        raise application.HttpError(421, reason)
    return await handler(request)


async def send_overview(request: web.Request) -> web.Response:
    """Answer GET /api/overview with the overview as JSON; with 304 if the reader already has it."""
    await _check_permission(request)
    body = await request.app[_FEED].read_overview()
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    is_known = request.headers.get(hdrs.IF_NONE_MATCH) == etag
    response = web.Response(status=304) if is_known else application.build_response(body)
    response.headers[hdrs.ETAG] = etag
    return response


async def send_explanation(request: web.Request) -> web.Response:
    """Answer GET /api/why with the reasons why a gang or a pod is, or is not, on a node."""
    await _check_permission(request)
    query, builder = request.query, request.app[_FEED].builder
    explanation = builder.explain_node_score(query.get("gang") or query.get("pod", ""), query.get("node", ""))
    if explanation is None:
        raise application.HttpError(404, "no such gang, pod or node: it may have been deleted")
    return application.build_response(msgspec.json.encode(explanation))


async def _check_permission(request: web.Request) -> None:
    """Raise HttpError if the guard denies the client."""
    denial = await request.app[_GUARD](request.headers.get(hdrs.AUTHORIZATION, ""), request.remote or "")
    if denial is not None:
        status, reason = denial
        raise application.HttpError(status, reason, **({"WWW_Authenticate": "Bearer"} if status == 401 else {}))


async def send_file(request: web.Request) -> web.Response:
    """Answer GET / and GET /page/NAME with a file of the page."""
    name = request.match_info.get("name", "index.html")
    if name not in _PAGE:
        raise application.HttpError(404, "no such path")
    media_type = _MEDIA_TYPES[name.rpartition(".")[2]]
    return application.build_response(_PAGE[name], content_type=f"{media_type}; charset=utf-8")
