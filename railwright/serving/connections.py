"""Connections of a port: their limit, their deadlines, and who answers their requests.

A connection answers plain requests itself (fast_path.py). From the first other request on, all of its bytes go to the
protocol of an aiohttp server, which knows all of HTTP. aiohttp needs two task switches and three objects per request,
which is half of the cost of a small one. It has no deadline for headers, so the connection watches those too.
"""

import asyncio
import collections
import contextlib
from collections.abc import Awaitable, Callable
from typing import cast

from aiohttp import web

from railwright.serving import bodies, deadlines, fast_path, handover, heads, responses, routes
from railwright.serving import limits as bounds

_CLOSE_SECONDS = 0.2  # a client that is there closes within a round trip; SIGTERM must end the process within a second

IsAdmitted = Callable[[asyncio.BaseTransport], bool]
"""False for a client that must not use the port; called once, after the TLS handshake."""


class Connections:
    """The connections of one port, created by the event loop's server and closed by `finish`."""

    def __init__(
        self,
        server: web.Server,
        limits: bounds.Limits,
        count_rejected: Callable[[int], None],
        *,
        fast: fast_path.FastPath | None = None,
        is_admitted: IsAdmitted = lambda _transport: True,
    ) -> None:
        """`count_rejected` is called with the status of each request that is rejected here.

        Without `fast`, aiohttp's `server` answers everything.
        """
        self.server, self.limits, self.count_rejected = server, limits, count_rejected
        self.fast, self.is_admitted = fast, is_admitted
        self.buffers = bodies.BufferPool()
        self.connections: set[Connection] = set()
        self.peers: collections.Counter[str] = collections.Counter()  # connections of each address
        self._lost = asyncio.Event()

    def __call__(self) -> "Connection":
        """Return the protocol of a new connection."""
        return Connection(self)

    async def finish(self, seconds: float) -> None:
        """Close idle connections, let requests in flight end within `seconds`, then close the rest."""
        self.server.pre_shutdown()
        for connection in tuple(self.connections):
            connection.finish()
        await asyncio.gather(self.server.shutdown(seconds), self._wait_for_requests(seconds))
        self.close()
        await self._wait_until_closed()

    async def _wait_for_requests(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while requests := [connection.request for connection in self.connections if connection.request]:
                    await asyncio.gather(*requests, return_exceptions=True)

    async def _wait_until_closed(self) -> None:
        """Let clients receive what was sent and answer the end of TLS, for at most `_CLOSE_SECONDS`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                while self.connections:
                    self._lost.clear()
                    await self._lost.wait()

    def discard(self, connection: "Connection") -> None:
        """Forget a connection that is closed on both sides."""
        if connection in self.connections:
            self.connections.discard(connection)
            self._count(connection.peer, -1)
        self._lost.set()

    def add(self, connection: "Connection") -> bool:
        """Add a connection. Return False if there are too many, of all clients or of its address.

        An address may have as many as are left for others. So one has half of all at most, two have a third each, and
        however many there are, some are left.
        """
        self.connections.add(connection)
        self._count(connection.peer, 1)
        left = self.limits.connections - len(self.connections)
        return left >= 0 and self.peers[connection.peer] <= max(left, self.limits.peer_connections)

    def _count(self, peer: str, change: int) -> None:
        self.peers[peer] += change
        if not self.peers[peer]:
            del self.peers[peer]

    def close(self) -> None:
        """Close every connection now, with requests in flight."""
        for connection in tuple(self.connections):
            connection.close()


class Connection(asyncio.Protocol):
    """One connection. Its `request` is a future while a plain request waits for its body or for its handler."""

    def __init__(self, owner: Connections) -> None:
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self.peer = ""
        self._parser = heads.HeadParser()
        self._pending = b""  # received bytes that nobody has handled
        self._parsed = 0  # bytes of `_pending` that the parser has seen
        self.request: asyncio.Future[None] | None = None
        self._awaited_bytes = 0  # length of the awaited body, for which memory is reserved
        self._handover: handover.Handover | None = None  # once aiohttp answers
        self._is_idle = self._is_finishing = self._is_closed = self._is_writing_paused = False
        self._deadline = deadlines.Deadline(self._expire)

    # --- the event loop's calls ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Admit the client, or close the connection."""
        owner = self._owner
        self._transport = cast("asyncio.Transport", transport)
        self.peer = str((transport.get_extra_info("peername") or ("",))[0])
        status = 403 if owner.add(self) else 503
        if status == 503 or not owner.is_admitted(transport):
            owner.count_rejected(status)
            self.close()
            return
        self._deadline.set(owner.limits.first_byte_seconds)

    def data_received(self, data: bytes) -> None:
        """Answer the plain requests in `data`; leave anything else to aiohttp."""
        if self._handover is not None:
            try:
                self._handover.feed(data)
            except heads.HeadError:
                self._owner.count_rejected(400)
            return
        self._pending = self._pending + data if self._pending else data
        if self.request is not None or self._is_writing_paused:
            self._transport.pause_reading()  # the next request waits for this one
        else:
            self._answer_pending()

    def pause_writing(self) -> None:
        """Answer nothing more until the client has received what was sent."""
        self._is_writing_paused = True
        if self._handover is not None:
            self._handover.pause_writing()

    def resume_writing(self) -> None:
        """Answer again: the client has received enough."""
        self._is_writing_paused = False
        if self._handover is not None:
            self._handover.resume_writing()
        elif self.request is None:
            self._resume()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Release everything. A waiting handler continues; its reply is dropped."""
        self._is_closed = True
        self._owner.discard(self)
        self._deadline.stop()
        if self.request is not None:
            self._end_request()
        if self._handover is not None:
            self._handover.connection_lost(exc)

    # --- plain requests -----------------------------------------------------------------------------------

    def _answer_pending(self) -> None:
        while self._pending and self.request is None and not (self._is_closed or self._is_writing_paused):
            size = self._find_head()
            if size:
                self._start_request(size)
            if not size or self._handover is not None:
                return

    def _find_head(self) -> int:
        """Return the size of the head at the start of `_pending` once it has been parsed, or 0 if it is incomplete."""
        if not self._parsed and self._pending[0] in b"\r\n":
            self._pending = self._pending.lstrip(b"\r\n")  # RFC 9112 2.2: ignore empty lines before a request
            if not self._pending:
                return 0
        pending = self._pending
        size = pending.find(heads.END, max(self._parsed - len(heads.END) + 1, 0)) + len(heads.END)
        is_complete = size >= len(heads.END)
        end = size if is_complete else len(pending)
        try:
            self._parser.feed(pending[self._parsed : end])
        except heads.HeadError as error:
            self._reject(str(error))
            return 0
        if end > heads.MAX_BYTES:
            self._reject(f"the headers are longer than {heads.MAX_BYTES} bytes")
            return 0
        if is_complete:
            self._parsed = 0
            return size
        if not self._parsed:
            self._is_idle = False
            self._deadline.set(self._owner.limits.header_seconds)
        self._parsed = end
        return 0

    def _start_request(self, size: int) -> None:
        """Answer the request whose head of `size` bytes was parsed, await its body, or let aiohttp take over."""
        try:
            head = self._parser.build_head(size)
        except heads.HeadError as error:
            self._reject(str(error))
            return
        fast, end = self._owner.fast, size
        match = fast.match(head, self._transport) if fast is not None else None
        if match is None:
            self._hand_over()
            return
        end += match.length
        if len(self._pending) < end:
            self._await_body(match, self._pending[size:])
            return
        body, self._pending = self._pending[size:end], self._pending[end:]
        self._parser.feed(body)  # the parser expects the next head after it
        self._answer(match, body)

    def _answer(self, match: fast_path.Match, body: bytes) -> None:
        answer = self._fast.answer(match, body, self.peer)
        if isinstance(answer, bytes):
            self._send(answer)
            return
        self._deadline.clear()
        self.request = self._loop.create_task(self._answer_later(answer))

    async def _answer_later(self, answer: Awaitable[bytes]) -> None:
        data = await answer
        self.request = None
        if not self._is_closed:
            self._send(data)
            self._resume()

    def _send(self, answer: bytes) -> None:
        self._transport.write(answer)
        if self._is_finishing or self._fast.closing:
            self.close()
        else:
            self._is_idle = True
            self._deadline.set(self._owner.limits.keepalive_seconds)

    def _resume(self) -> None:
        """Answer what arrived while a request was in flight, and read on."""
        self._answer_pending()
        if not self._is_closed:
            self._transport.resume_reading()

    def _reject(self, reason: str) -> None:
        self._send_error(400, f"not valid HTTP/1.1: {reason}")
        self.close()

    def _hand_over(self) -> None:
        """Let aiohttp answer the request at the start of `_pending`, and all that follow."""
        data, self._pending = self._pending, b""
        aiohttp = handover.Handover(self._transport, self._deadline, self._owner.limits)
        try:
            aiohttp.start(self._owner.server, data)
        except heads.HeadError as error:
            self._reject(str(error))
            return
        self._handover = aiohttp

    def _send_error(self, status: int, reason: str) -> None:
        self._owner.count_rejected(status)
        reply = responses.build_error_reply(routes.HttpError(status, reason))
        self._transport.write(responses.serialize(reply, close=True))

    @property
    def _fast(self) -> fast_path.FastPath:
        if self._owner.fast is None:
            raise LookupError("this port has no fast path")
        return self._owner.fast

    # --- bodies in parts ----------------------------------------------------------------------------------

    def _await_body(self, match: fast_path.Match, beginning: bytes) -> None:
        """Receive the rest of a body. aiohttp answers if there is no memory for it."""
        if not self._fast.reserve(match.length):
            self._hand_over()
            return

        def answer(body: bytes) -> None:
            self._read_into(self)
            if self.request is not None and not self._is_closed:
                self._end_request()
                takes_view = match.route.immediate or match.route.reads_view
                self._answer(match, body if takes_view else bytes(body))

        self._awaited_bytes, self.request = match.length, self._loop.create_future()
        try:
            receiver = bodies.BodyReceiver(self, self._owner.buffers, beginning, match.length, answer)
        except OSError:  # no memory for the body
            self.close()
            return
        self._pending, self._parser = b"", heads.HeadParser()  # the old one expects bytes that it will not see
        self._is_idle = False
        self._deadline.set(self._owner.limits.body_seconds)
        self._read_into(receiver)

    def _read_into(self, protocol: asyncio.BaseProtocol) -> None:
        """Let `protocol` read; uvloop checks the type of protocol only when reading starts."""
        if not self._is_closed:
            self._transport.pause_reading()
            self._transport.set_protocol(protocol)
            self._transport.resume_reading()

    def _end_request(self) -> None:
        """End the wait for a body or a handler."""
        request, self.request = self.request, None
        if self._awaited_bytes:
            self._fast.release(self._awaited_bytes)
            self._awaited_bytes = 0
        if request is not None and not isinstance(request, asyncio.Task) and not request.done():
            request.set_result(None)

    # --- deadlines and the end ----------------------------------------------------------------------------

    def finish(self) -> None:
        """Close the connection after the request in flight, now if there is none."""
        self._is_finishing = True
        if self.request is None and self._handover is None:
            self.close()

    def close(self) -> None:
        """Close the connection once the client has received what was sent."""
        if not self._is_closed:
            self._is_closed = True
            self._deadline.stop()
            self._transport.close()

    def _expire(self) -> None:
        if self.request is not None:
            self._send_error(408, bounds.describe_late_body(self._owner.limits))
        elif not self._is_idle:
            self._owner.count_rejected(408)
        if self._is_writing_paused:
            self._transport.abort()  # the client receives nothing, so that closing would wait for ever
        elif self._handover is not None:
            self._handover.shut_down()
        else:
            self.close()
