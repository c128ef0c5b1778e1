"""A TCP proxy in front of a server that may die and come back elsewhere.

A scheduler keeps one address for its extender; the tests start, kill and restart the extender behind it, see every
request on its way, and may act in the middle of one.
"""

import asyncio
import collections
import contextlib
import dataclasses
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable

_HEAD_LIMIT = 64 * 1024  # bytes of a request's head; ours are under 1 KiB
_TLS_HANDSHAKE = b"\x16"  # first byte of a TLS connection: it passes unread


@dataclasses.dataclass(frozen=True)
class Request:
    """The head of one HTTP request."""

    method: str
    path: str


Hook = Callable[[Request], Awaitable[None] | None]


class ReverseProxy:
    """Passes connections on to 127.0.0.1:`backend`; with `backend` None it hangs up, as a dead server would, and so it
    does at the next request of a connection whose backend has changed.

    `counts` counts requests by path. `hook` is called (and awaited) on each request head before a byte of it goes on.
    """

    def __init__(self) -> None:
        self.backend: int | None = None
        self.hook: Hook | None = None
        self.counts: collections.Counter[str] = collections.Counter()
        self.errors: list[Exception] = []  # what a hook raised; asserted empty when the proxy closes
        self._connections: set[asyncio.Task[None]] = set()
        self._closed = False
        self._server: asyncio.Server | None = None

    async def open(self) -> "ReverseProxy":
        """Start listening on a port of its own."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=_HEAD_LIMIT)
        return self

    @property
    def port(self) -> int:
        """Port for callers, which stays the same while the proxy runs."""
        assert self._server is not None, "the proxy is not open"
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def url(self) -> str:
        """http://127.0.0.1:PORT."""
        return f"http://127.0.0.1:{self.port}"

    async def close(self) -> None:
        """Stop listening and hang up on everyone. Raises what a hook raised first."""
        if self._server is None:
            return
        self._server.close()
        self._closed = True
        for connection in list(self._connections):
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()
        if self.errors:
            raise self.errors[0]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            if not self._closed:  # accepted before the end, it may get its turn after it
                await self._pass(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError):
            pass  # either side hung up, or the proxy closes: the other side is hung up on below
        except Exception as error:  # noqa: BLE001 - whatever a hook raises is the test's, raised by close()
            self.errors.append(error)
        finally:
            self._connections.discard(task)
            await _hang_up(writer)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.readexactly(1)
        if first == _TLS_HANDSHAKE:
            await self._tunnel(first, reader, writer)
            return
        head = first + await reader.readuntil(b"\r\n\r\n")
        await self._seen(head)
        backend = self.backend
        if backend is None:
            return
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", backend)
        answers = asyncio.ensure_future(_copy(up_reader, writer))
        try:
            async for request in self._requests(head, reader, answers):
                if self.backend != backend:  # changed by the hook, or since the last request
                    return
                up_writer.write(request)
                await _copy_body(request, reader, up_writer)
        finally:
            up_writer.close()  # first: the proxy may close, and cancel this, at any await
            answers.cancel()
            await asyncio.gather(answers, return_exceptions=True)
            await _hang_up(up_writer)

    async def _requests(
        self, head: bytes, reader: asyncio.StreamReader, answers: "asyncio.Future[None]"
    ) -> AsyncIterator[bytes]:
        """Yield the head of each request, the first included, until either side hangs up."""
        yield head
        while True:
            following = asyncio.ensure_future(reader.readuntil(b"\r\n\r\n"))
            try:
                await asyncio.wait({following, answers}, return_when=asyncio.FIRST_COMPLETED)
                if not following.done():  # the server hung up
                    return
                head = following.result()
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)
            await self._seen(head)
            yield head

    async def _seen(self, head: bytes) -> None:
        method, path, _ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
        self.counts[path] += 1
        if self.hook is not None:
            waited = self.hook(Request(method, path))
            if inspect.isawaitable(waited):
                await waited

    async def _tunnel(self, first: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.backend is None:
            return
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self.backend)
        up_writer.write(first)
        ways = {asyncio.ensure_future(_copy(reader, up_writer)), asyncio.ensure_future(_copy(up_reader, writer))}
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            up_writer.close()
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            await _hang_up(up_writer)


async def _copy_body(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy one request's body: by its length, or chunk by chunk."""
    lines = head.split(b"\r\n")[1:]
    headers = dict(line.lower().replace(b" ", b"").split(b":", 1) for line in lines if b":" in line)
    if headers.get(b"transfer-encoding") == b"chunked":
        size = 1
        while size:
            line = await reader.readuntil(b"\r\n")
            size = int(line.split(b";")[0], 16)
            writer.write(line + await reader.readexactly(size + 2))
            await writer.drain()
        return
    left = int(headers.get(b"content-length", b"0"))
    while left:
        part = await reader.read(min(left, _HEAD_LIMIT))
        if not part:
            raise ConnectionResetError("the caller hung up within a body")
        writer.write(part)
        await writer.drain()
        left -= len(part)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while part := await reader.read(_HEAD_LIMIT):
        writer.write(part)
        await writer.drain()


async def _hang_up(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError, asyncio.CancelledError):
        await writer.wait_closed()
