"""The dashboard's aiohttp application: the page for anybody, its data for authorized readers.

The application is read-only: GET and HEAD. The page itself contains nothing about the cluster; data needs the guard's
permission, again each time a stream reconnects. On loopback the Host header must be loopback too, so that no web site
can reach the port under its own name (DNS rebinding).
"""

import contextlib
import pathlib
from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import web

from railwright.dashboard import feed, protection, stream
from railwright.serving import routes, token_bucket

PATH = "/dashboard"  # the nonResourceURL on which a reader's account needs the verb get
_PAGE = pathlib.Path(__file__).with_name("page")  # plain HTML, CSS and ES modules, which need no other network
_EXPLAIN_RATE, _EXPLAIN_BURST = 5, 10  # each is a decision over all nodes, which takes milliseconds of the event loop
_MAX_QUERY = 2048

Guard = Callable[[str, str], Awaitable[tuple[int, str] | None]]
"""(Authorization header, peer) -> None if the client may read, otherwise (status, reason)."""


def build(views: feed.Views, guard: Guard, streams: stream.Streams, *, loopback: bool) -> web.Application:
    """Return the application. `loopback`: refuse requests whose Host header is another machine's."""
    data = _Data(views, guard, streams)
    application = web.Application(middlewares=[protection.answer_errors, protection.build_filter(loopback=loopback)])
    application.on_response_prepare.append(protection.add_headers)
    application.router.add_get("/", _send_page)
    application.router.add_static("/page", _PAGE)
    application.router.add_get("/api/stream", data.send_stream, allow_head=False)
    application.router.add_get("/api/why", data.explain, allow_head=False)
    return application


async def _send_page(_request: web.Request) -> web.FileResponse:
    return web.FileResponse(_PAGE / "index.html")


class _Data:
    """The handlers that need permission."""

    def __init__(self, views: feed.Views, guard: Guard, streams: stream.Streams) -> None:
        self._views, self._guard, self._streams = views, guard, streams
        self._explain_bucket = token_bucket.TokenBucket(_EXPLAIN_RATE, _EXPLAIN_BURST)

    async def send_stream(self, request: web.Request) -> web.StreamResponse:
        """Handle GET /api/stream."""
        await self._check_permission(request)
        view = self._streams.choose(request)
        try:
            with contextlib.ExitStack() as stack:
                for source in self._views.values():  # also of the others, whose means are shown beside this one's
                    stack.enter_context(source.reading())
                return await self._streams.send(request, view)
        except feed.CrowdedError as error:
            raise routes.HttpError(503, str(error), {"Retry-After": "5"}) from None

    async def explain(self, request: web.Request) -> web.Response:
        """Handle GET /api/why: why a gang or a pod is, or is not, on a node."""
        await self._check_permission(request)
        if len(request.query_string) > _MAX_QUERY:
            raise routes.HttpError(414, f"the query has more than {_MAX_QUERY} characters")
        if not self._explain_bucket.take():
            raise routes.HttpError(429, "too many requests at once: retry in a second", {"Retry-After": "1"})
        query, builder = request.query, self._views[self._streams.choose(request)].builder
        explanation = builder.explain(query.get("gang") or query.get("pod", ""), query.get("node", ""))
        if explanation is None:
            raise routes.HttpError(404, "no such gang, pod or node: it may have been deleted")
        return web.Response(body=msgspec.json.encode(explanation), content_type=routes.JSON)

    async def _check_permission(self, request: web.Request) -> None:
        """Raise HttpError if the client may not read."""
        denial = await self._guard(request.headers.get("Authorization", ""), request.remote or "")
        if denial is not None:
            status, reason = denial
            raise routes.HttpError(status, reason, {"WWW-Authenticate": "Bearer"} if status == 401 else None)
