"""Connections of a port: their number, their deadlines, the short way, and what an unreadable request line gets.

Owns what aiohttp has not (reliability.md T12): a silent or dripping client is dropped, and the number of clients is
bounded. aiohttp's low-level `web.Server` is the factory of its protocol; ours makes a subclass with a timer.
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
"""Called with the status of every answer that no handler gave."""
Admits = Callable[[asyncio.BaseTransport], bool]
"""False for a caller that has no business here; asked once, when its handshake is over."""


class ShortWay(Protocol):
    """Whole answers, headers included, to requests that need no waiting but for their bodies (answers.Answers)."""

    closing: bool

    def at_once(self, message: http.RawRequestMessage, payload: streams.StreamReader, peer: str) -> bytes | None:
        """The answer to a request that is there whole; None where the long way has to take it."""

    def awaits(self, message: http.RawRequestMessage) -> int | None:
        """The length of a body to be collected and then `completed`; None where the long way has to take it."""

    def promise(self, length: int) -> None:
        """So many bytes of bodies more are under way; fewer, where it is below zero."""

    def completed(self, message: http.RawRequestMessage, body: bytes, peer: str) -> bytes:
        """The answer to a request whose body was awaited."""

    def late(self) -> bytes:
        """The answer to a request whose body did not come in time."""


class Connections(web.Server):
    """The connections of one port, made by the loop's server, closed by `finish`."""

    def __init__(
        self,
        handle: Handle,
        short: ShortWay,
        limits: bounds.Limits,
        rejected: Rejected,
        admits: Admits = lambda _transport: True,
    ) -> None:
        super().__init__(self._begun)
        self.admits = admits
        self._handle = handle
        self.short = short
        self.rooms = bodies.Rooms()
        self.limits = limits
        self.rejected = rejected

    def __call__(self) -> web.RequestHandler:
        """One connection's protocol."""
        return _Connection(self)

    async def finish(self, seconds: float) -> None:
        """Close idle connections, let requests in flight end within `seconds`, then cut the rest."""
        self.pre_shutdown()
        await self.shutdown(seconds)

    def cut(self) -> None:
        """Close every connection now, whatever is in flight."""
        for connection in self.connections:
            connection.force_close()

    async def _begun(self, request: web.BaseRequest) -> web.StreamResponse:
        protocol = request.protocol
        if isinstance(protocol, _Connection):
            protocol.headers_arrived()
        return await self._handle(request)


class _Connection(web.RequestHandler):
    """aiohttp's protocol with a deadline for the first byte and for the headers of each request, and with a short way
    for plain requests: aiohttp's own takes two tasks' turns and three objects a request, which is half of its cost.
    """

    __slots__ = ("_awaited", "_deadline", "_extent", "_idle", "_owner", "_peer", "_rest")

    def __init__(self, owner: Connections) -> None:
        super().__init__(
            owner,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=owner.limits.keepalive_seconds,
            lingering_time=owner.limits.lingering_seconds,
            access_log=None,  # type: ignore[arg-type]  # documented: None switches it off
            auto_decompress=False,  # a small compressed body may unfold to gigabytes
        )
        self._owner = owner
        self._deadline: asyncio.TimerHandle | None = None
        self._idle = True  # no request of this connection is being read or answered
        self._extent = extents.Extent()
        self._peer = ""
        self._awaited = 0  # bytes of the body whose rest is awaited
        self._rest: asyncio.Future[None] | None = None  # while the rest of a body is awaited; done when it has come

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
        """A plain request that is there whole is answered here; any other goes aiohttp's way, a task a request."""
        waiter = self._waiter
        if not self._idle or waiter is None or waiter.done() or self._messages or self._paused:
            self._parse(data)
            return
        self._extent.reset()
        self._waiter = None  # nobody is woken before we have looked
        self._parse(data)
        self._waiter = waiter
        if self._messages and len(self._messages) == 1 and (self._answered() or self._awaits()):
            return
        if data:
            self._idle = False
            self._arm(self._owner.limits.header_seconds)
        if self._messages:
            waiter.set_result(None)

    def _parse(self, data: bytes) -> None:
        """Let aiohttp parse a chunk, and note whether a part of a further request was in it."""
        requests, size = self._request_count, self._extent.body_size()
        super().data_received(data)
        self._extent.add(data, size, self._request_count - requests, self._messages[-1] if self._messages else None)

    def _await_headers(self) -> None:
        """Give the rest of a request's headers, of which a part came with or behind the one before, its time."""
        self._extent.reset()
        self._idle = False
        self._arm(self._owner.limits.header_seconds)

    def resume_reading(self, resume_parser: bool = True) -> None:  # noqa: FBT001, FBT002 - aiohttp's signature
        """Only what was paused is resumed: aiohttp asks for it with each body, and parses nothing each time."""
        if self._reading_paused:
            super().resume_reading(resume_parser)

    def _answered(self) -> bool:
        """True where the one request that waits has been answered."""
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
        self._stay()
        if self._extent.exceeded:
            self._await_headers()
        return True

    def _awaits(self) -> bool:
        """True where the one request that waits will be answered once the rest of its body has come."""
        message, payload = self._messages[0]
        if self.transport is None or not isinstance(message, http.RawRequestMessage) or self._reading_paused:
            return False
        length = None if payload.is_eof() or payload.exception() else self._owner.short.awaits(message)
        if length is None:
            return False

        def whole(body: bytes) -> None:
            self._read_on(self)
            self._complete(message, body)

        try:
            rest = bodies.Rest(self, self._owner.rooms, payload.read_nowait(), length, whole)
        except OSError:  # no room
            self.force_close()
            return True
        self._messages.popleft()
        self._parser = self._unused_parser()  # the one so far waits for bytes that it will not see
        self._rest, self._idle, self._awaited = self._loop.create_future(), False, length
        self._owner.short.promise(length)
        if self._keepalive_handle is not None:
            self._keepalive_handle.cancel()
            self._keepalive_handle = None
        self._arm(self._owner.limits.body_seconds)
        self._read_on(rest)
        return True

    def _complete(self, message: http.RawRequestMessage, body: bytes) -> None:
        """Answer the request whose body has come."""
        self._disarm()
        if self._rest is None or self.transport is None:
            return
        self.transport.write(self._owner.short.completed(message, body, self._peer))
        self._settle(self._rest)
        self._idle = True
        if self._owner.short.closing or self._close or self._force_close:
            self.force_close()
        else:
            self._stay()

    def _settle(self, rest: asyncio.Future[None]) -> None:
        """No body is awaited any more."""
        rest.set_result(None)
        self._rest = None
        self._owner.short.promise(-self._awaited)

    def _read_on(self, protocol: asyncio.BaseProtocol) -> None:
        """Have this protocol read; uvloop asks for its kind only when reading begins."""
        if self.transport is not None:
            self.transport.pause_reading()
            self.transport.set_protocol(protocol)
            self.transport.resume_reading()

    def _unused_parser(self) -> http.HttpRequestParser:
        """As aiohttp makes one for a connection."""
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
        """End what is in flight within `timeout` seconds, then close."""
        if self._rest is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await asyncio.shield(self._rest)
        await super().shutdown(timeout)

    def _stay(self) -> None:
        """Keep the connection for the next request, as long as any is kept."""
        self._keepalive = True
        self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout
        if self._keepalive_handle is None:
            self._keepalive_handle = self._loop.call_at(self._next_keepalive_close_time, self._process_keepalive)

    def headers_arrived(self) -> None:
        """A request is whole up to its headers; its body has a deadline of its own."""
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
            self._settle(self._rest)
        super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """JSON instead of aiohttp's text, and no traceback for what a client sent.

        Raises ConnectionError where nobody is there to be answered: that ends the connection, and nothing is logged.
        """
        del message  # quotes the client's bytes
        if self.transport is None or isinstance(exc, ConnectionError):
            raise ConnectionError("the caller has hung up") from exc
        self._owner.rejected(status)
        if status == 500:
            _LOG.error("request failed outside its handler", exc_info=exc)
        elif request.writer.output_size > 0:
            raise ConnectionError("the answer has begun, no other can be sent")
        reason = f"not HTTP/1.1 as expected: {type(exc).__name__}" if status == 400 else "internal error"
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
        """Nothing: a client that hangs up is no news."""
