"""A TCP proxy on loopback that can imitate a half-open connection."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Self

_PART = 1 << 16  # bytes that are read at once
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER with a timeout of 0: closing sends RST


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Proxy:
    """Forwards to a port of loopback. `silent` applies at once, to open and new connections.

    `connect` opens a connection to that port elsewhere, for example in another network namespace.
    """

    def __init__(self, port: int, *, connect: Callable[[int], Awaitable[Streams]] | None = None) -> None:
        self._target = port
        self._connect = connect or _connect_to_loopback
        self.silent = False  # True imitates a half-open connection: bytes are dropped and no side closes
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task] = set()
        self._closed = False

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self._closed = True
        for writer in self._open:  # with an RST to both sides
            with contextlib.suppress(OSError):
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._closed:  # accepted before the end, with its turn after it
            writer.transport.abort()
            return
        self._tasks.add(asyncio.current_task())
        writers = [writer]
        self._open.add(writer)
        try:
            with contextlib.suppress(ConnectionError):  # nobody listens at the target: this side is closed too
                target_reader, target_writer = await self._connect(self._target)
                writers.append(target_writer)
                self._open.add(target_writer)
                await asyncio.gather(self._forward(reader, target_writer), self._forward(target_reader, writer))
        finally:
            self._tasks.discard(asyncio.current_task())
            self._open.difference_update(writers)
            for stream in writers:
                stream.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(_PART):
                if not self.silent:
                    writer.write(data)
                    await writer.drain()
            if not self.silent and writer.can_write_eof():
                writer.write_eof()
        except OSError:  # one side has reset the connection, as the kernel does for a killed process: so is the other
            if not self.silent:
                writer.transport.abort()


async def _connect_to_loopback(port: int) -> Streams:
    return await asyncio.open_connection("127.0.0.1", port)
