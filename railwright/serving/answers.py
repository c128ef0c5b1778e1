"""Answers requests: finds the route, checks limits, calls the handler, maps exceptions to a status, and counts.

The slow path is aiohttp's. The fast path (`at_once`, `awaits`, `completed`) answers plain requests without a task of
their own. A synchronous handler's request is answered without an await between the body's last byte and the response.
"""

import email.utils
import functools
import http as http_status
import logging
import time
import urllib.parse
from collections.abc import Awaitable, Mapping, Sequence

from aiohttp import HttpVersion11, http, streams, web

from railwright.serving import limits as bounds
from railwright.serving import memory as memories
from railwright.serving import metrics as counters
from railwright.serving import routes, turns

_LOG = logging.getLogger(__name__)
_SERVER = "railwright"


class Answers:
    """Answers the requests of one port. While `closing` is True, every response asks the client to reconnect."""

    def __init__(
        self,
        table: Sequence[routes.Route],
        limits: bounds.Limits,
        metrics: counters.Metrics | None,
        memory: memories.Memory | None = None,
    ) -> None:
        self._routes = routes.Table(table)
        self._immediate = routes.Table([route for route in table if route.immediate and route.method == "POST"])
        self._limits = limits
        self._turn = turns.Turn(limits.turn_seconds)
        self._memory = memory or memories.Memory()
        self._metrics = metrics  # None: probes and metrics are not counted as requests
        self.closing = False

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """Return the response. Raises only cancellation and errors of the connection."""
        try:
            route, call = await self._receive(request)
            start = time.perf_counter()
            if route.sheds and self._turn.late(start):
                raise self._too_many()
        except routes.HttpError as error:
            self.rejected(error.status)
            return self._build_error_response(error)
        reply = _call_handler(route, call)
        if not isinstance(reply, routes.Reply):
            reply = await _await_reply(route, reply)
        self._count(route, reply, start)
        response = _response(reply.body, reply.status, reply.content_type)
        response.headers.update(reply.headers)
        if self.closing:
            response.force_close()  # pooled connections of the API server then move to another replica
        return response

    def at_once(self, message: http.RawRequestMessage, payload: streams.StreamReader, peer: str) -> bytes | None:
        """Return the complete response on the fast path, or None if the slow path must handle the request.

        The slow path handles other methods, handlers that may wait, bodies that are encoded, incomplete or too long,
        requests with `Expect`, and everything while the server drains.
        """
        if self.closing or not _is_plain(message) or not payload.is_eof() or payload.exception() is not None:
            return None
        if payload.total_bytes > self._limits.max_body or (match := self._find_immediate(message)) is None:
            return None
        return self._answer_fast(match, message, payload.read_nowait(), peer)

    def awaits(self, message: http.RawRequestMessage) -> int | None:
        """Return the length of a body to collect for `completed`, or None if the slow path must handle the request."""
        if self.closing or not _is_plain(message) or "Transfer-Encoding" in message.headers:
            return None
        length = message.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > self._limits.max_body or self._find_immediate(message) is None:
            return None
        return int(length) if self._memory.has_room(int(length)) else None

    def promise(self, length: int) -> None:
        """Reserve memory for `length` more bytes of bodies; a negative `length` releases it."""
        self._memory.promised += length

    def completed(self, message: http.RawRequestMessage, body: bytes, peer: str) -> bytes:
        """Return the complete response to a request for which `awaits` returned a length."""
        match = self._find_immediate(message)
        if match is None:
            raise LookupError(f"no body was awaited for {message.path}")
        return self._answer_fast(match, message, body, peer)

    def late(self) -> bytes:
        """Return the complete response to a request whose body did not arrive in time."""
        self.rejected(408)
        return _serialize(_build_error_reply(408, bounds.late(self._limits), ""), close=True)

    def _find_immediate(self, message: http.RawRequestMessage) -> tuple[routes.Route, Mapping[str, str]] | None:
        path = message.path.partition("?")[0]
        if "%" in path:
            return None  # the slow path decodes it
        try:
            return self._immediate.find("POST", path)
        except routes.HttpError:
            return None

    def _answer_fast(
        self,
        match: tuple[routes.Route, Mapping[str, str]],
        message: http.RawRequestMessage,
        body: bytes,
        peer: str,
    ) -> bytes:
        route, parameters = match
        start = time.perf_counter()
        if route.sheds and self._turn.late(start):
            return self._shed()
        query = _parse_query(message.path.partition("?")[2])
        reply = _call_handler(route, routes.Call(body, parameters, query, message.headers, peer))
        if not isinstance(reply, routes.Reply):
            raise TypeError(f"the handler of {route.path} is declared immediate but returned {type(reply).__name__}")
        self._count(route, reply, start)
        return _serialize(reply, close=self.closing)

    def _shed(self) -> bytes:
        error = self._too_many()
        self.rejected(error.status)
        return _serialize(
            _build_error_reply(error.status, error.reason, "")._replace(headers=error.headers), close=self.closing
        )

    def _too_many(self) -> routes.HttpError:
        seconds = self._limits.retry_seconds
        reason = f"too many requests at once; try again in {seconds} s"
        return routes.HttpError(429, reason, {"Retry-After": str(seconds)})

    def rejected(self, status: int) -> None:
        """Count a request that reached no handler."""
        if self._metrics is not None:
            self._metrics.http_rejected.labels(str(status)).inc()

    async def _receive(self, request: web.BaseRequest) -> tuple[routes.Route, routes.Call]:
        route, parameters = self._routes.find(request.method, request.path)
        body = b""
        if route.method != "GET":
            bounds.check(request, self._limits.max_body)
            body = await bounds.read(request, self._limits, self._memory)
        query = request.query if request.query_string else routes.NOTHING
        return route, routes.Call(body, parameters, query, request.headers, request.remote or "")

    def _count(self, route: routes.Route, reply: routes.Reply, start: float) -> None:
        if self._metrics is not None:
            outcome = reply.outcome or ("ok" if reply.status < 400 else str(reply.status))
            self._metrics.answered(route.path, outcome, time.perf_counter() - start)

    def _build_error_response(self, error: routes.HttpError) -> web.Response:
        response = _response(routes.error_body(error.status, error.reason), error.status, routes.JSON)
        response.headers.update(error.headers)
        response.force_close()  # the body may not have been read completely
        return response


def _call_handler(route: routes.Route, call: routes.Call) -> routes.Reply | Awaitable[routes.Reply]:
    """Return the result of the handler, or the error response for its exception."""
    try:
        return route.handle(call)
    except Exception as error:  # noqa: BLE001 - the server must survive any error of a handler
        return _build_failure_reply(route, error)


_SEE_LOG = 'see "a handler failed" in this server\'s log, and report it'


async def _await_reply(route: routes.Route, waiting: Awaitable[routes.Reply]) -> routes.Reply:
    try:
        return await waiting
    except Exception as error:  # noqa: BLE001 - as above
        return _build_failure_reply(route, error)


def _build_failure_reply(route: routes.Route, error: Exception) -> routes.Reply:
    if isinstance(error, route.malformed):
        return _build_error_reply(400, str(error), "malformed")
    if isinstance(error, routes.HttpError):
        return _build_error_reply(error.status, error.reason, "")._replace(headers=error.headers)
    _LOG.error("a handler failed", exc_info=error, extra={"fields": {"path": route.path}})
    return _build_error_reply(500, f"{route.path} failed because of a bug in railwright; {_SEE_LOG}", "failed")


def _is_plain(message: http.RawRequestMessage) -> bool:
    """True for a POST of JSON as API servers and schedulers send it."""
    headers = message.headers
    return (
        message.method == "POST"
        and message.version == HttpVersion11
        and not message.should_close
        and not message.upgrade
        and headers.get("Content-Type") == routes.JSON
        and "Content-Encoding" not in headers
        and "Expect" not in headers
    )


_CLOSE = "Connection: close\r\n"
_REASONS = {status.value: status.phrase for status in http_status.HTTPStatus}


def _serialize(reply: routes.Reply, *, close: bool) -> bytes:
    """Return the response as bytes."""
    further = "".join([f"{name}: {value}\r\n" for name, value in reply.headers.items()]) if reply.headers else ""
    head = (
        f"HTTP/1.1 {reply.status} {_REASONS[reply.status]}\r\nContent-Type: {reply.content_type}\r\n"
        f"Server: {_SERVER}\r\nDate: {_format_date(int(time.time()))}\r\nContent-Length: {len(reply.body)}\r\n"
        f"{further}{_CLOSE if close else ''}\r\n"
    )
    return head.encode() + reply.body


@functools.lru_cache(maxsize=1)
def _format_date(second: int) -> str:
    return email.utils.formatdate(second, usegmt=True)


@functools.lru_cache(maxsize=64)  # few distinct values: an API server sends its timeout
def _parse_query(text: str) -> Mapping[str, str]:
    """Return the query parameters; the first of several equal names wins, as in aiohttp."""
    return dict(reversed(urllib.parse.parse_qsl(text, keep_blank_values=True))) if text else routes.NOTHING


def _response(body: bytes, status: int, content_type: str) -> web.Response:
    response = web.Response(body=body, status=status)
    response.headers["Content-Type"] = content_type
    response.headers["Server"] = _SERVER  # otherwise aiohttp sends its own version and Python's
    return response


def _build_error_reply(status: int, reason: str, outcome: str) -> routes.Reply:
    return routes.Reply(routes.error_body(status, reason), status=status, outcome=outcome)
