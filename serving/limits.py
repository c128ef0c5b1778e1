"""Bounds on what a caller may send, and an answer to everything it sends: never a traceback, never a hang.

aiohttp has no deadline for a request's head or body (a slow caller would hold a connection for ever); `Guard` and the
deadline round the body give it one.
"""

import asyncio
import logging
import weakref
from collections.abc import Awaitable, Callable, Sequence
from typing import cast

from aiohttp import web

from serving import metrics, routes

HEAD_SECONDS = 10.0  # from connection or first byte to a whole head; callers are schedulers and API servers
BODY_SECONDS = 30.0  # the longest any of them would wait for the answer itself
MOST_CONNECTIONS = 4096  # an API server keeps 25 idle ones, Volcano opens 16 at a time

_log = logging.getLogger("railwright.serving")
_guards: "weakref.WeakKeyDictionary[asyncio.BaseTransport, Guard]" = weakref.WeakKeyDictionary()


class Guard(asyncio.Protocol):
    """Stands before aiohttp's protocol and hangs up on a connection that does not finish its head in time."""

    def __init__(self, inner: asyncio.Protocol, live: set["Guard"]) -> None:
        self._inner = inner
        self._live = live
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._in_request = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A caller has connected; over TLS, after the handshake."""
        self._transport = cast("asyncio.Transport", transport)
        if len(self._live) >= MOST_CONNECTIONS:
            self._transport.abort()
            return
        self._live.add(self)
        _guards[transport] = self
        self._watch()
        self._inner.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._unwatch()
        if self in self._live:
            self._live.discard(self)
            self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes of a head, or of a body already being read."""
        if self._deadline is None and not self._in_request:
            self._watch()
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        """The caller has sent its last byte."""
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        """The caller reads too slowly."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """It has caught up."""
        self._inner.resume_writing()

    def head_read(self) -> None:
        """A whole head has arrived: the body has a deadline of its own."""
        self._in_request = True
        self._unwatch()

    def answered(self) -> None:
        """The connection is idle again, for as long as the caller likes to keep it."""
        self._in_request = False

    def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(HEAD_SECONDS, self._late)

    def _unwatch(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _late(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def application(
    offered: Sequence[routes.Route], *, max_body: int, counters: metrics.Metrics, is_draining: Callable[[], bool]
) -> web.Application:
    """An aiohttp application that offers these routes and answers all else with JSON."""
    app = web.Application(middlewares=[_answering(counters, is_draining)], client_max_size=max_body)
    for route in offered:
        app.router.add_route(route.method, route.path, _handler(route, max_body))
    return app


def _handler(route: routes.Route, max_body: int) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(request: web.Request) -> web.Response:
        body = await _body(request, max_body) if route.method == "POST" else b""
        call = routes.Call(body=body, parameters=request.match_info, headers=request.headers, peer=request.remote or "")
        try:
            outcome = route.handle(call)
            reply = outcome if isinstance(outcome, routes.Reply) else await outcome
        except route.malformed as error:
            raise routes.RefusedError(400, str(error)) from error
        return web.Response(body=reply.body, status=reply.status, content_type=routes.JSON)

    return handle


async def _body(request: web.Request, max_body: int) -> bytes:
    """The whole body, of the right type, not compressed, in time and within bounds."""
    if request.content_type != routes.JSON:
        raise routes.RefusedError(415, f"Content-Type {request.content_type!r} is not {routes.JSON}")
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise routes.RefusedError(415, "Content-Encoding is not supported; send the body as it is")
    if (request.content_length or 0) > max_body:
        raise _too_large(max_body)
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await request.read()
    except web.HTTPRequestEntityTooLarge as error:
        raise _too_large(max_body) from error
    except TimeoutError as error:
        raise routes.RefusedError(408, f"the body did not arrive within {BODY_SECONDS:.0f} s") from error


def _too_large(max_body: int) -> routes.RefusedError:
    # the connection is closed, so that the rest of the body is not read
    return routes.RefusedError(413, f"the body has more than {max_body} bytes", {"Connection": "close"})


Next = Callable[[web.Request], Awaitable[web.StreamResponse]]
Middleware = Callable[[web.Request, Next], Awaitable[web.StreamResponse]]


def _answering(counters: metrics.Metrics, is_draining: Callable[[], bool]) -> Middleware:
    @web.middleware
    async def middleware(request: web.Request, handler: Next) -> web.StreamResponse:
        guard = _guards.get(request.transport) if request.transport else None
        if guard is not None:
            guard.head_read()
        try:
            response = await _answered(request, handler, counters)
        finally:
            if guard is not None:
                guard.answered()
        if is_draining():
            response.force_close()  # pooled connections of the API server move to another replica
        return response

    return middleware


async def _answered(request: web.Request, handler: Next, counters: metrics.Metrics) -> web.StreamResponse:
    try:
        return await handler(request)
    except routes.RefusedError as error:
        refused = error
    except web.HTTPMethodNotAllowed as error:
        allow = ", ".join(sorted(error.allowed_methods))
        refused = routes.RefusedError(405, f"{request.method} is not allowed here; use {allow}", {"Allow": allow})
    except web.HTTPException as error:
        refused = routes.RefusedError(error.status, _REASONS.get(error.status, error.reason))
    except (asyncio.CancelledError, ConnectionError):
        raise
    except Exception:  # noqa: BLE001 - whatever a handler does, the caller gets an answer and the server goes on
        _log.exception("a handler failed", extra={"fields": {"path": request.path}})
        refused = routes.RefusedError(500, "internal error; the server's log says more")
    counters.count("http_rejected", str(refused.status))
    response = web.Response(
        body=routes.error_body(refused.status, refused.reason), status=refused.status, content_type=routes.JSON
    )
    response.headers.update(refused.headers)
    if refused.headers.get("Connection") == "close":
        response.force_close()
    return response


_REASONS = {404: "no such path; the API is /mutate/..., /validate/..., /scheduler/..., /volcano/..., /explain/..."}
