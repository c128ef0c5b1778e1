"""Connections of a port: they read requests one after the other, answer them, and have limits and deadlines.

A connection is in one of five states: it awaits a head, receives a body, awaits a handler or sends a stream, reads and
drops the rest of a rejected request (lingers), or is closed. While a handler works, at most one read of the next
requests is buffered.

A port listens on an address; an empty host means IPv6 and IPv4 if the machine has both.
"""

import asyncio
import collections
import contextlib
import logging
import math
import mmap
import re
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from typing import Any, NamedTuple, cast

from railwright.serving import dispatch, messages, routes, settings

_LOG = logging.getLogger(__name__)
_CLOSE_SECONDS = 0.2  # a client that is there closes within a round trip; SIGTERM must end the process within a second
_TLS_CLOSE_SECONDS = 2.0  # TLS shutdown timeout; asyncio's default of 30 s would delay exit if the peer is gone
_INBOX = 64 * 1024  # bytes read at once; the buffer is shared, because its bytes are copied before the next read
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_END_SIZE = len(messages.END)
_BARE_LINE_FEED = re.compile(rb"(?<!\r)\n")

IsAdmitted = Callable[[asyncio.BaseTransport], bool]
"""False for a client that must not use the port; called once, after the TLS handshake."""


def admit_any(_transport: asyncio.BaseTransport | None) -> bool:
    """Admit every client."""
    return True


class ListenError(OSError):
    """Listening on the address failed; the message contains address and cause."""


def bind(at: settings.Address) -> socket.socket:
    """Return a socket bound to `at` that does not listen yet. Raises ListenError."""
    family, host = _resolve(at.host)
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if at.host == "" else 1)
        bound.bind((host, at.port))
    except OSError as error:
        bound.close()
        raise ListenError(f"cannot listen on {at}: {error.strerror or error}") from None
    bound.setblocking(False)
    return bound


def read_address(bound: socket.socket) -> settings.Address:
    """Return the actual address, with the port that the system chose for port 0."""
    host, port = bound.getsockname()[:2]
    return settings.Address(host, port)


def _resolve(host: str) -> tuple[socket.AddressFamily, str]:
    if host == "":
        return (socket.AF_INET6, "::") if socket.has_dualstack_ipv6() else (socket.AF_INET, "0.0.0.0")  # noqa: S104 - default
    try:
        family, _, _, _, place = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except OSError as error:
        raise ListenError(f"cannot listen on {host}: {error.strerror or error}") from None
    return family, str(place[0])


@contextlib.asynccontextmanager
async def open_port(
    at: settings.Address, dispatcher: dispatch.Dispatcher, context: ssl.SSLContext | None = None
) -> AsyncIterator[settings.Address]:
    """Serve the routes of a dispatcher during a `with` block; yields the actual address. Raises ListenError."""
    with contextlib.closing(bind(at)) as bound:
        async with serve_socket(bound, dispatcher, context):
            yield read_address(bound)


@contextlib.asynccontextmanager
async def serve_socket(
    bound: socket.socket,
    dispatcher: dispatch.Dispatcher,
    context: ssl.SSLContext | None = None,
    *,
    is_admitted: IsAdmitted = admit_any,
    stopped: Callable[[], Coroutine[Any, Any, object]] | None = None,
) -> AsyncIterator["Connections"]:
    """Serve a bound socket during a `with` block, with TLS if there is a context.

    At the end, requests in flight may finish until `finish_seconds` have passed or `stopped` returns.
    """
    connections = Connections(dispatcher, is_admitted)
    listener = await asyncio.get_running_loop().create_server(
        connections,
        sock=bound,
        backlog=dispatcher.limits.backlog,
        ssl=context,
        ssl_handshake_timeout=dispatcher.limits.handshake_seconds if context else None,
        ssl_shutdown_timeout=_TLS_CLOSE_SECONDS if context else None,
    )
    try:
        yield connections
    finally:
        listener.close()
        ends: list[asyncio.Task[Any]] = [asyncio.create_task(connections.finish(dispatcher.limits.finish_seconds))]
        if stopped is not None:
            ends.append(asyncio.create_task(stopped()))
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        connections.close()
        for end in ends:
            end.cancel()
        await asyncio.gather(*ends, return_exceptions=True)


class Connections:
    """The connections of one port, created by the event loop's server and closed by `finish`."""

    def __init__(self, dispatcher: dispatch.Dispatcher, is_admitted: IsAdmitted = admit_any) -> None:
        self.dispatcher, self.is_admitted = dispatcher, is_admitted
        self.limits = dispatcher.limits
        self.inbox = memoryview(bytearray(_INBOX))
        self.connections: set[Connection] = set()
        self.peers: collections.Counter[str] = collections.Counter()  # connections of each address
        self._progress = asyncio.Event()

    def __call__(self) -> "Connection":
        """Return the protocol of a new connection."""
        return Connection(self)

    async def finish(self, seconds: float) -> None:
        """Close idle connections, let requests in flight end within `seconds`, then close the rest."""
        for connection in tuple(self.connections):
            connection.finish()
        await self._wait_while(lambda: any(connection.is_busy for connection in self.connections), seconds)
        self.close()
        # let clients receive what was sent and answer the end of TLS
        await self._wait_while(lambda: bool(self.connections), _CLOSE_SECONDS)

    async def _wait_while(self, condition: Callable[[], bool], seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while condition():
                    self._progress.clear()
                    await self._progress.wait()

    def report_progress(self) -> None:
        """Report that a connection has become idle or closed."""
        self._progress.set()

    def add(self, connection: "Connection") -> bool:
        """Add a connection. Return False if there are too many, of all clients or of its address.

        An address may have as many as are left for others. So one has half of all at most, two have a third each, and
        however many there are, some are left.
        """
        self.connections.add(connection)
        self.peers[connection.peer] += 1
        left = self.limits.connections - len(self.connections)
        return left >= 0 and self.peers[connection.peer] <= max(left, self.limits.peer_connections)

    def discard(self, connection: "Connection") -> None:
        """Forget a connection that is closed on both sides."""
        if connection in self.connections:
            self.connections.discard(connection)
            self.peers[connection.peer] -= 1
            if not self.peers[connection.peer]:
                del self.peers[connection.peer]
        self.report_progress()

    def close(self) -> None:
        """Close every connection now, with requests in flight."""
        for connection in tuple(self.connections):
            connection.close()


class _Request(NamedTuple):
    head: messages.Head
    route: routes.Route
    parameters: Mapping[str, str]


class _Incomplete(NamedTuple):
    request: _Request
    body: messages.SizedBody | messages.ChunkedBody


class Connection(asyncio.BufferedProtocol):
    """One connection."""

    def __init__(self, owner: Connections) -> None:
        self._owner, self._dispatcher, self._limits = owner, owner.dispatcher, owner.limits
        self._transport: asyncio.Transport
        self.peer = ""
        self._pending = b""  # received bytes that nobody has handled
        self._searched = 0  # bytes of `_pending` that do not contain the end of the head
        self._incomplete: _Incomplete | None = None  # request whose body is received
        self._reserved = 0  # bytes of memory for that body
        self._task: asyncio.Task[None] | None = None  # awaits a handler
        self._writable = asyncio.Event()
        self._writable.set()
        self._is_idle = self._is_finishing = self._is_lingering = self._is_streaming = self._is_closed = False
        self._deadline = _Deadline(self._expire)

    @property
    def is_busy(self) -> bool:
        """True while a request is in flight."""
        return self._incomplete is not None or self._task is not None

    # --- the event loop's calls ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Admit the client, or close the connection."""
        self._transport = cast("asyncio.Transport", transport)
        self.peer = str((transport.get_extra_info("peername") or ("",))[0])
        status = 403 if self._owner.add(self) else 503
        if status == 503 or not self._owner.is_admitted(transport):
            self._dispatcher.count_rejected(status)
            self.close()
            return
        self._deadline.set(self._limits.first_byte_seconds)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next bytes."""
        del sizehint
        inbox = self._owner.inbox
        return inbox if self._incomplete is None else self._incomplete.body.get_buffer(inbox)

    def buffer_updated(self, nbytes: int) -> None:
        """Process received bytes."""
        if self._is_lingering or self._is_closed:
            return
        if self._incomplete is not None:
            self._receive_body(self._incomplete, self._incomplete.body.get_buffer(self._owner.inbox)[:nbytes])
            return
        self._pending += self._owner.inbox[:nbytes]
        if self._task is not None or not self._writable.is_set():
            self._transport.pause_reading()  # the next request waits for this one
        else:
            self._answer_pending()

    def pause_writing(self) -> None:
        """Answer nothing more until the client has received what was sent."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Answer again: the client has received enough."""
        self._writable.set()
        if not self.is_busy:
            self._resume()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Release everything. A handler that waits runs on; nobody receives its reply."""
        del exc
        self._is_closed = True
        self._deadline.stop()
        self._end_body()
        if self._task is not None and self._is_streaming:
            self._task.cancel()
        self._owner.discard(self)

    # --- requests -----------------------------------------------------------------------------------------

    def _answer_pending(self) -> None:
        while self._pending and self._writable.is_set() and not (self.is_busy or self._is_lingering or self._is_closed):
            try:
                size = self._find_head()
                head = messages.parse(self._pending[:size]) if size else None
            except messages.HeadError as error:
                self._reject(routes.HttpError(400, f"not valid HTTP/1.1: {error}"))
                return
            if head is None:
                return
            self._pending, self._searched = self._pending[size:], 0
            self._start_request(head)

    def _find_head(self) -> int:
        """Return the size of the head at the start of `_pending`, 0 if it is incomplete. Raises HeadError."""
        if not self._searched:
            self._pending = self._pending.lstrip(b"\r\n")  # RFC 9112 2.2: ignore empty lines before a request
            if self._pending and not self._pending[:1].isupper():  # such as TLS on a port without
                raise messages.HeadError("it does not begin with a method")
        size = self._pending.find(messages.END, max(self._searched - _END_SIZE, 0)) + _END_SIZE
        if size > messages.MAX_BYTES or (size < _END_SIZE and len(self._pending) > messages.MAX_BYTES):
            raise messages.HeadError(f"the headers are longer than {messages.MAX_BYTES} bytes")
        if size >= _END_SIZE:
            return size
        if _BARE_LINE_FEED.search(self._pending, max(self._searched - 1, 0)):
            raise messages.HeadError("a line ends without a carriage return")
        if self._pending and not self._searched:
            self._is_idle = False
            self._deadline.set(self._limits.header_seconds)
        self._searched = len(self._pending)
        return 0

    def _start_request(self, head: messages.Head) -> None:
        """Answer a request, or receive the rest of its body."""
        try:
            route, parameters = self._dispatcher.accept(head, self._transport)
        except routes.HttpError as error:
            self._reject(error, head)
            return
        request, length = _Request(head, route, parameters), head.length
        if route.method == "GET":
            self._answer(request, b"", closes=length != 0)  # nobody reads a body
        elif length is not None and length <= len(self._pending):
            body, self._pending = self._pending[:length], self._pending[length:]
            self._answer(request, body, closes=False)
        else:
            self._await_body(request, length)

    def _await_body(self, request: _Request, length: int | None) -> None:
        beginning, self._pending = self._pending, b""
        if "expect" in request.head.headers:
            self._transport.write(_CONTINUE)
        self._is_idle = False
        self._deadline.set(self._limits.body_seconds)
        if length is None:
            self._incomplete = _Incomplete(request, messages.ChunkedBody())
            if beginning:
                self._receive_body(self._incomplete, memoryview(beginning))
            return
        try:
            self._incomplete = _Incomplete(request, messages.SizedBody(length, beginning, request.route.build_reader))
        except OSError:  # no memory
            self.close()
            return
        self._reserve(length)

    def _receive_body(self, incomplete: _Incomplete, data: memoryview) -> None:
        request, body = incomplete
        try:
            body.receive(data)
            if request.head.length is None:  # the number of chunks is unknown in advance
                self._dispatcher.check_size(body.size, request.route)
        except messages.BodyError as error:
            self._reject(routes.HttpError(400, f"the body does not match its headers: {error}"))
        except routes.HttpError as error:
            self._reject(error)
        else:
            if body.is_complete:
                self._end_body()
                self._answer(request, body.get_content(), closes=request.head.length is None, reader=body.reader)

    def _reserve(self, size: int) -> None:
        self._reserved += size
        self._dispatcher.memory.reserved_bytes += size

    def _end_body(self) -> None:
        self._incomplete = None
        self._reserve(-self._reserved)

    def _answer(
        self, request: _Request, body: bytes | mmap.mmap, *, closes: bool, reader: routes.Reader | None = None
    ) -> None:
        """Answer. With `closes`, bytes that belong to this request may follow, so that no other request is read."""
        head = request.head
        query = messages.parse_query(head.query)
        call = routes.Call(cast("bytes", body), request.parameters, query, head.headers, self.peer, reader)
        reply = self._dispatcher.answer(request.route, call)
        if isinstance(reply, routes.Reply) and reply.stream is None:
            self._send(reply, head, lingers=closes)
            return
        self._deadline.clear()
        self._task = asyncio.get_running_loop().create_task(self._answer_later(reply, head, lingers=closes))

    async def _answer_later(
        self, answer: routes.Reply | Awaitable[routes.Reply], head: messages.Head, *, lingers: bool
    ) -> None:
        reply = answer if isinstance(answer, routes.Reply) else await answer
        if reply.stream is not None:
            await self._send_stream(reply, reply.stream, head)
            return
        self._task = None
        if not self._is_closed:
            self._send(reply, head, lingers=lingers)
            self._resume()

    def _send(self, reply: routes.Reply, head: messages.Head | None, *, lingers: bool) -> None:
        is_last = lingers or self._is_finishing or self._dispatcher.closing or (head is not None and head.closes)
        self._write(reply, close=is_last, head_only=head is not None and head.method == "HEAD")
        if lingers and not self._is_finishing:
            self._is_lingering = True
            self._pending = b""
            self._deadline.set(self._limits.lingering_seconds)
            self._owner.report_progress()
        elif is_last:
            self.close()
        else:
            self._is_idle = True
            self._deadline.set(self._limits.keepalive_seconds)

    def _write(self, reply: routes.Reply, *, close: bool, head_only: bool) -> None:
        if not self._is_closed:
            data = messages.serialize(reply, self._dispatcher.headers, close=close, head_only=head_only)
            self._transport.write(data)

    def _reject(self, error: routes.HttpError, head: messages.Head | None = None) -> None:
        """Reply with an error to a request that was not read completely. Nothing more of its client is answered."""
        self._end_body()
        self._send(self._dispatcher.reject(error), head, lingers=True)

    def _resume(self) -> None:
        """Answer what arrived while a request was in flight, and read on."""
        self._answer_pending()
        if not self._is_closed:
            self._transport.resume_reading()

    async def _send_stream(self, reply: routes.Reply, stream: AsyncGenerator[bytes, None], head: messages.Head) -> None:
        """Send the parts of a reply until they end or the client reads no data, then close the connection."""
        self._is_streaming = True
        head_only = head.method == "HEAD"
        try:
            async with contextlib.aclosing(stream):
                self._write(reply, close=True, head_only=head_only)
                while not (self._is_closed or head_only):
                    async with asyncio.timeout(self._limits.stream_seconds):
                        await self._writable.wait()
                    self._transport.write(await anext(stream))
        except StopAsyncIteration:
            pass
        except TimeoutError:
            _LOG.info(
                "disconnected a client that reads no data", extra={"fields": {"peer": self.peer, "path": head.path}}
            )
            self._transport.abort()
        except Exception:  # noqa: BLE001 - as of any handler
            _LOG.exception("a stream failed", extra={"fields": {"path": head.path}})
        self._task = None
        self.close()

    # --- deadlines and the end ----------------------------------------------------------------------------

    def finish(self) -> None:
        """Close the connection after the request in flight, now if there is none."""
        self._is_finishing = True
        if not self.is_busy:
            self.close()

    def close(self) -> None:
        """Close the connection once the client has received what was sent."""
        if not self._is_closed:
            self._is_closed = True
            self._end_body()
            self._deadline.stop()
            self._transport.close()
            self._owner.report_progress()

    def _expire(self) -> None:
        if self._incomplete is not None:
            self._reject(routes.HttpError(408, f"the body did not arrive within {self._limits.body_seconds:g} s"))
            return
        if not self._is_idle and not self._is_lingering:
            self._dispatcher.count_rejected(408)
        if not self._writable.is_set():
            self._transport.abort()  # the client receives nothing, so that closing would wait for ever
        self.close()


class _Deadline:
    """One deadline that moves often: its timer is set again if it fires too early, which is cheaper than to cancel it.

    Calls `on_expired` once the time is over. Owned by one event loop; not set at first.
    """

    def __init__(self, on_expired: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_expired = on_expired
        self._time = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def set(self, seconds: float) -> None:
        """Replace the deadline by one in so many seconds."""
        self._time = self._loop.time() + seconds
        if self._timer is None or self._timer.when() > self._time:
            self._restart()

    def clear(self) -> None:
        """Remove the deadline."""
        self._time = math.inf

    def stop(self) -> None:
        """Remove the deadline and its timer, for the end of its owner."""
        self._time = math.inf
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _restart(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._time, self._check)

    def _check(self) -> None:
        self._timer = None
        if self._time == math.inf:
            return
        if self._loop.time() < self._time:
            self._restart()
            return
        self._time = math.inf
        self._on_expired()
