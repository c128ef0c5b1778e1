"""A TCP proxy on loopback that imitates a bad network: delay, pauses for lost packets, silence and resets.

TCP sends a lost packet again after a timeout, so a loss is imitated by delaying that packet and all later bytes.
"""

import asyncio
import contextlib
import random
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Self

RETRANSMISSION_SECONDS = 0.2  # Linux's minimum retransmission timeout (TCP_RTO_MIN)
_PART = 1400  # bytes that are delayed or lost together, like one packet
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER with a timeout of 0: closing sends RST


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Proxy:
    """Forwards to a port of loopback. Changes to its attributes apply at once, to open and new connections.

    `connect` opens a connection to that port elsewhere, for example in another network namespace.
    """

    def __init__(self, port: int, *, seed: int = 7, connect: Callable[[int], Awaitable[Streams]] | None = None) -> None:
        self.target = port
        self._connect = connect or _connect_to_loopback
        self.delay_seconds = 0.0  # in each direction
        self.loss = 0.0  # share of packets that are lost: 0..1
        self.silent = False  # True imitates a half-open connection: bytes are dropped and no side closes
        self.connections = 0
        self.stalls = 0
        self._chance = random.Random(seed)  # noqa: S311 - which packets are lost is no secret
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
        self.reset()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def reset(self) -> None:
        """End every open connection with an RST to both sides."""
        for writer in self._open:
            with contextlib.suppress(OSError):
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if self._closed:  # accepted before the end, with its turn after it
            writer.transport.abort()
            return
        self._tasks.add(asyncio.current_task())
        writers = [writer]
        self._open.add(writer)
        try:
            with contextlib.suppress(ConnectionError):  # nobody listens at the target: this side is closed too
                target_reader, target_writer = await self._connect(self.target)
                writers.append(target_writer)
                self._open.add(target_writer)
                await asyncio.gather(self._forward(reader, target_writer), self._forward(target_reader, writer))
        finally:
            self._tasks.discard(asyncio.current_task())
            self._open.difference_update(writers)
            for stream in writers:
                stream.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._send(queue, writer))
            await self._receive(queue, reader)

    async def _receive(self, queue: asyncio.Queue, reader: asyncio.StreamReader) -> None:
        loop = asyncio.get_running_loop()
        at = 0.0
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(_PART):
                if self.silent:
                    continue
                at = max(at, loop.time() + self.delay_seconds)
                if self._chance.random() < self.loss:
                    self.stalls += 1
                    at += 2 * self.delay_seconds + RETRANSMISSION_SECONDS
                queue.put_nowait((at, data))
        queue.put_nowait((at, b""))

    async def _send(self, queue: asyncio.Queue, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):  # also that of a shutdown after the other side has reset the connection
            while True:
                at, data = await queue.get()
                if at > loop.time():
                    await asyncio.sleep(at - loop.time())
                if not data:
                    if not self.silent and writer.can_write_eof():
                        writer.write_eof()
                    return
                writer.write(data)
                await writer.drain()


async def _connect_to_loopback(port: int) -> Streams:
    return await asyncio.open_connection("127.0.0.1", port)
