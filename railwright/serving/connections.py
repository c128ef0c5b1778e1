"""Connections of a port: their limit, their deadlines, the fast path, and the response to an unreadable request.

Adds to aiohttp's low-level `web.Server` deadlines for clients that send nothing or too slowly, and a limit on the
number of connections.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from aiohttp import http, streams, web

from railwright.serving import bodies, extents, routes
from railwright.serving import limits as bounds

_LOG = logging.getLogger(__name__)

Handle = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
Rejected = Callable[[int], None]
"""Called with the status of every error response that no handler produced."""
Admits = Callable[[asyncio.BaseTransport], bool]
"""False for a client that must not use the port; called once, after the TLS handshake."""


class ShortWay(Protocol):
    """Complete responses to requests that wait for nothing but their body (answers.Answers)."""

    closing: bool

    def at_once(self, message: http.RawRequestMessage, payload: streams.StreamReader, peer: str) -> bytes | None:
        """Return the response to a completely received request, or None if the slow path must handle it."""

    def awaits(self, message: http.RawRequestMessage) -> int | None:
        """Return the length of a body to collect for `completed`, or None if the slow path must handle it."""

    def promise(self, length: int) -> None:
        """Reserve memory for `length` more bytes of bodies; a negative `length` releases it."""

    def completed(self, message: http.RawRequestMessage, body: bytes, peer: str) -> bytes:
        """Return the response to a request whose body was awaited."""

    def late(self) -> bytes:
        """Return the response to a request whose body did not arrive in time."""


class Connections(web.Server):
    """The connections of one port, created by the event loop's server and closed by `finish`."""

    def __init__(
        self,
        handle: Handle,
        short: ShortWay,
        limits: bounds.Limits,
        rejected: Rejected,
        admits: Admits = lambda _transport: True,
    ) -> None:
        super().__init__(self._start_request)
        self.admits = admits
        self._handle = handle
        self.short = short
        self.rooms = bodies.Rooms()
        self.limits = limits
        self.rejected = rejected

    def __call__(self) -> web.RequestHandler:
        """Return the protocol of a new connection."""
        return _Connection(self)

    async def finish(self, seconds: float) -> None:
        """Close idle connections, let requests in flight end within `seconds`, then close the rest."""
        self.pre_shutdown()
        await self.shutdown(seconds)

    def cut(self) -> None:
        """Close every connection now, with requests in flight."""
        for connection in self.connections:
            connection.force_close()

    async def _start_request(self, request: web.BaseRequest) -> web.StreamResponse:
        protocol = request.protocol
        if isinstance(protocol, _Connection):
            protocol.headers_arrived()
        return await self._handle(request)


class _Connection(web.RequestHandler):
    """aiohttp's protocol with deadlines for the first byte and for the headers of each request, and with a fast path.

    The fast path handles plain requests. aiohttp itself needs two task switches and three objects per request, which
    is half of its cost.
    """

    __slots__ = ("_awaited", "_deadline", "_extent", "_idle", "_owner", "_peer", "_rest")

    def __init__(self, owner: Connections) -> None:
        super().__init__(
            owner,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=owner.limits.keepalive_seconds,
            lingering_time=owner.limits.lingering_seconds,
            access_log=None,  # type: ignore[arg-type]  # documented: None disables it
            auto_decompress=False,  # a small compressed body can expand to gigabytes
        )
        self._owner = owner
        self._deadline: asyncio.TimerHandle | None = None
        self._idle = True  # True if no request of this connection is being read or answered
        self._extent = extents.Extent()
        self._peer = ""
        self._awaited = 0  # length of the awaited body
        self._rest: asyncio.Future[None] | None = None  # set while a body is awaited; done when it has arrived

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._peer = str((transport.get_extra_info("peername") or ("",))[0])
        if len(self._owner.connections) > self._owner.limits.connections:
            self._owner.rejected(503)
            self.force_close()
            return
        if not self._owner.admits(transport):
            self._owner.rejected(403)
            self.force_close()
            return
        self._arm(self._owner.limits.first_byte_seconds)

    def data_received(self, data: bytes) -> None:
        """Answer a completely received plain request here; leave any other to aiohttp's task."""
        waiter = self._waiter
        if not self._idle or waiter is None or waiter.done() or self._messages or self._paused:
            self._parse(data)
            return
        self._extent.reset()
        self._waiter = None  # nobody must be woken before the fast path has been tried
        self._parse(data)
        self._waiter = waiter
        if self._messages and len(self._messages) == 1 and (self._answer_fast() or self._start_awaiting_body()):
            return
        if data:
            self._idle = False
            self._arm(self._owner.limits.header_seconds)
        if self._messages:
            waiter.set_result(None)

    def _parse(self, data: bytes) -> None:
        """Let aiohttp parse a chunk, and record whether it contained a part of another request."""
        requests, size = self._request_count, self._extent.body_size()
        super().data_received(data)
        self._extent.add(data, size, self._request_count - requests, self._messages[-1] if self._messages else None)

    def _await_headers(self) -> None:
        """Start the deadline of a request whose first header bytes came with the previous request."""
        self._extent.reset()
        self._idle = False
        self._arm(self._owner.limits.header_seconds)

    def resume_reading(self, resume_parser: bool = True) -> None:  # noqa: FBT001, FBT002 - aiohttp's signature
        """Resume only if reading is paused: aiohttp calls this for each body and parses nothing each time."""
        if self._reading_paused:
            super().resume_reading(resume_parser)

    def _answer_fast(self) -> bool:
        """True if the single queued request has been answered."""
        message, payload = self._messages[0]
        if self.transport is None or not isinstance(message, http.RawRequestMessage):
            return False
        answer = self._owner.short.at_once(message, payload, self._peer)
        if answer is None:
            return False
        self._messages.popleft()
        if self._parser is not None:
            self._parser.message_consumed()
        self.transport.write(answer)
        self._disarm()
        self._keep_alive()
        if self._extent.exceeded:
            self._await_headers()
        return True

    def _start_awaiting_body(self) -> bool:
        """True if the single queued request will be answered when the rest of its body has arrived."""
        message, payload = self._messages[0]
        if self.transport is None or not isinstance(message, http.RawRequestMessage) or self._reading_paused:
            return False
        length = None if payload.is_eof() or payload.exception() else self._owner.short.awaits(message)
        if length is None:
            return False

        def whole(body: bytes) -> None:
            self._switch_reader(self)
            self._complete(message, body)

        try:
            rest = bodies.Rest(self, self._owner.rooms, payload.read_nowait(), length, whole)
        except OSError:  # no memory for the body
            self.force_close()
            return True
        self._messages.popleft()
        self._parser = self._build_parser()  # the current parser waits for bytes that it will not receive
        self._rest, self._idle, self._awaited = self._loop.create_future(), False, length
        self._owner.short.promise(length)
        if self._keepalive_handle is not None:
            self._keepalive_handle.cancel()
            self._keepalive_handle = None
        self._arm(self._owner.limits.body_seconds)
        self._switch_reader(rest)
        return True

    def _complete(self, message: http.RawRequestMessage, body: bytes) -> None:
        """Answer the request whose body has arrived."""
        self._disarm()
        if self._rest is None or self.transport is None:
            return
        self.transport.write(self._owner.short.completed(message, body, self._peer))
        self._end_wait(self._rest)
        self._idle = True
        if self._owner.short.closing or self._close or self._force_close:
            self.force_close()
        else:
            self._keep_alive()

    def _end_wait(self, rest: asyncio.Future[None]) -> None:
        """End the wait for a body."""
        rest.set_result(None)
        self._rest = None
        self._owner.short.promise(-self._awaited)

    def _switch_reader(self, protocol: asyncio.BaseProtocol) -> None:
        """Let `protocol` read; uvloop checks the type of protocol only when reading starts."""
        if self.transport is not None:
            self.transport.pause_reading()
            self.transport.set_protocol(protocol)
            self.transport.resume_reading()

    def _build_parser(self) -> http.HttpRequestParser:
        """Return a new parser, configured as aiohttp does for a connection."""
        return http.HttpRequestParser(
            self,
            self._loop,
            self._read_bufsize,
            max_line_size=self.max_line_size,
            max_field_size=self.max_field_size,
            max_headers=self.max_headers,
            payload_exception=web.RequestPayloadError,
            auto_decompress=False,
            max_msg_queue_size=self._max_msg_queue_size,
        )

    async def shutdown(self, timeout: float | None = 15.0) -> None:  # noqa: ASYNC109 - aiohttp's signature
        """Let requests in flight end within `timeout` seconds, then close."""
        if self._rest is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await asyncio.shield(self._rest)
        await super().shutdown(timeout)

    def _keep_alive(self) -> None:
        """Keep the connection open for the next request, until the keep-alive timeout."""
        self._keepalive = True
        self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout
        if self._keepalive_handle is None:
            self._keepalive_handle = self._loop.call_at(self._next_keepalive_close_time, self._process_keepalive)

    def headers_arrived(self) -> None:
        """Stop the deadline of the headers; the body has its own."""
        self._disarm()

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        try:
            return await super().finish_response(request, resp, start_time)
        finally:
            self._idle = True
            if self._extent.exceeded and not self._messages and self.transport is not None:
                self._await_headers()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._disarm()
        if self._rest is not None:
            self._end_wait(self._rest)
        super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Return JSON instead of aiohttp's text, and log no traceback for a client's error.

        Raises ConnectionError if the client has disconnected: that ends the connection without a log line.
        """
        del message  # quotes bytes that the client sent
        if self.transport is None or isinstance(exc, ConnectionError):
            raise ConnectionError("the client has disconnected") from exc
        self._owner.rejected(status)
        if status == 500:
            _LOG.error("request failed outside its handler", exc_info=exc)
        elif request.writer.output_size > 0:
            raise ConnectionError("the response has started, no other can be sent")
        reason = f"not valid HTTP/1.1: {type(exc).__name__}" if status == 400 else "internal error"
        answer = web.Response(body=routes.error_body(status, reason), status=status, content_type=routes.JSON)
        answer.force_close()
        return answer

    def _arm(self, seconds: float) -> None:
        self._disarm()
        self._deadline = self._loop.call_later(seconds, self._expire)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _expire(self) -> None:
        self._deadline = None
        if self._rest is not None and self.transport is not None:
            self.transport.write(self._owner.short.late())
        else:
            self._owner.rejected(408)
        self.force_close()

    def log_debug(self, *args: Any, **kw: Any) -> None:
        """Log nothing: disconnecting clients are normal."""
