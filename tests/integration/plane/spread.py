"""A Service in front of several servers: new connections go to the ready ones in turn.

Like kubelet and kube-proxy, but faster: a server that is not ready or fails its probe gets no new connection.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Self

import aiohttp

from plane import servers

_PROBE_SECONDS = 0.1


class Spread:
    """One port in front of the servers in `members`, which can change."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.members: list[servers.Server] = []
        self.ready: Sequence[servers.Server] = ()
        self.port = 0
        self._session = session
        self._turn = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        self._probing = asyncio.create_task(self._probe())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.ready = ()  # a connection that was accepted just now goes nowhere
        for task in (self._probing, *self._tasks):
            task.cancel()
        await asyncio.gather(self._probing, *self._tasks, return_exceptions=True)

    async def _probe(self) -> None:
        while True:
            members = list(self.members)
            states = await asyncio.gather(*map(self._is_ready, members))
            self.ready = [member for member, state in zip(members, states, strict=True) if state]
            await asyncio.sleep(_PROBE_SECONDS)

    async def _is_ready(self, server: servers.Server) -> bool:
        try:
            async with self._session.get(f"{server.ops_url}/readyz", timeout=aiohttp.ClientTimeout(1)) as answer:
                return answer.status == 200
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if self.ready:
                self._turn += 1
                await self._pass(reader, writer, self.ready[self._turn % len(self.ready)].port)
        except OSError:
            pass  # refused, or either side hung up
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", port)
        ways = {asyncio.ensure_future(_copy(reader, back)), asyncio.ensure_future(_copy(there, writer))}
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            back.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while part := await reader.read(64 * 1024):
            writer.write(part)
            await writer.drain()
