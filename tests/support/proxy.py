"""A TCP proxy on loopback that does to a connection what networks do: delay, stalls for lost packets, silence, cuts.

TCP hides a lost packet behind a pause of a retransmission, so loss is a stall of the bytes behind it.
"""

import asyncio
import contextlib
import random
import socket
import struct
from typing import Self

RETRANSMISSION_SECONDS = 0.2  # Linux's least retransmission timeout (TCP_RTO_MIN)
_PART = 1400  # bytes that are delayed or lost together, as a packet's
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER of no time: closing sends RST


class Proxy:
    """Forwards to a port of loopback. What is set here holds for all connections, open and new, at once."""

    def __init__(self, port: int, *, seed: int = 7) -> None:
        self.target = port
        self.delay_seconds = 0.0  # one way
        self.loss = 0.0  # share of parts that come a retransmission late
        self.silent = False  # a half-open connection: bytes vanish, nobody closes
        self.connections = 0
        self.stalls = 0
        self._chance = random.Random(seed)  # noqa: S311 - which packets are lost is no secret
        self._open: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        self._tasks: set[asyncio.Task] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.reset()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def reset(self) -> None:
        """Every open connection ends at both sides with RST."""
        for pair in self._open:
            for writer in pair:
                with contextlib.suppress(OSError):
                    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._tasks.add(asyncio.current_task())
        there, back = await asyncio.open_connection("127.0.0.1", self.target)
        self._open.add((writer, back))
        try:
            await asyncio.gather(self._forward(reader, back), self._forward(there, writer))
        finally:
            self._open.discard((writer, back))
            for each in (writer, back):
                each.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        sending = asyncio.create_task(self._send(queue, writer))
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
        await sending

    async def _send(self, queue: asyncio.Queue, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(ConnectionError):
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
