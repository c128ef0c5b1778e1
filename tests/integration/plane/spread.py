"""A Service in front of several servers: new connections go to the ready ones in turn.

Like kubelet and kube-proxy, but faster: a server that is not ready or fails its probe gets no new connection.
"""

import asyncio
from collections.abc import Sequence
from typing import Self

import aiohttp
import proxy

from plane import servers

_PROBE_SECONDS = 0.1


class Spread(proxy.Proxy):
    """One port in front of the servers in `members`, which can change."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        super().__init__(0, connect=self._connect_to_next)
        self.members: list[servers.Server] = []
        self.ready: Sequence[servers.Server] = ()
        self._session = session
        self._turn = 0

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self._probing = asyncio.create_task(self._probe())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.ready = ()  # a connection that was accepted just now goes nowhere
        self._probing.cancel()
        await asyncio.gather(self._probing, return_exceptions=True)
        await super().__aexit__()

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

    async def _connect_to_next(self, _: int) -> proxy.Streams:
        if not self.ready:
            raise ConnectionRefusedError("no server is ready")
        self._turn += 1
        return await asyncio.open_connection("127.0.0.1", self.ready[self._turn % len(self.ready)].port)
