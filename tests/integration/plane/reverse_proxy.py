"""An HTTP proxy in front of a server that may die and come back elsewhere.

A scheduler keeps one address for its extender; the tests start, kill and restart the extender behind it, count
requests, and can act during one.
"""

import collections
import inspect
from collections.abc import Awaitable, Callable

import aiohttp
from aiohttp import web

_LARGEST = 1 << 26  # bytes of a body
_OWN_HEADERS = {"connection", "content-encoding", "content-length", "host", "transfer-encoding"}  # of each connection
Hook = Callable[[web.Request], Awaitable[None] | None]


class ReverseProxy:
    """Forwards requests to 127.0.0.1:`backend`; with `backend` None it closes connections, as a dead server would.

    `counts` counts requests by path. `hook` is called (and awaited) on each request before it goes on.
    """

    def __init__(self) -> None:
        self.backend: int | None = None
        self.hook: Hook | None = None
        self.counts: collections.Counter[str] = collections.Counter()
        self.errors: list[Exception] = []  # what a hook raised; asserted empty when the proxy closes
        app = web.Application(client_max_size=_LARGEST)
        app.router.add_route("*", "/{path:.*}", self._pass)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)

    async def open(self) -> "ReverseProxy":
        """Start listening on a port of its own."""
        connector = aiohttp.TCPConnector(limit=0, force_close=True)  # none is kept that a server has ended
        self._session = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout())
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return self

    @property
    def url(self) -> str:
        """http://127.0.0.1:PORT, which stays the same while the proxy runs."""
        assert self._runner.addresses, "the proxy is not open"
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def close(self) -> None:
        """Stop listening and close all connections. Raises the first error of a hook."""
        if not self._runner.addresses:
            return
        await self._runner.cleanup()
        await self._session.close()
        if self.errors:
            raise self.errors[0]

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.counts[request.path] += 1
        try:
            waited = self.hook(request) if self.hook is not None else None
            if inspect.isawaitable(waited):
                await waited
        except Exception as error:  # noqa: BLE001 - whatever a hook raises is the test's, raised by close()
            self.errors.append(error)
            return _hang_up(request)
        if self.backend is None:
            return _hang_up(request)
        url = f"http://127.0.0.1:{self.backend}{request.path_qs}"
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _OWN_HEADERS}
        try:
            async with self._session.request(request.method, url, data=body, headers=headers) as answer:
                passed = {name: value for name, value in answer.headers.items() if name.lower() not in _OWN_HEADERS}
                return web.Response(status=answer.status, body=await answer.read(), headers=passed)
        except aiohttp.ClientError:
            return _hang_up(request)


def _hang_up(request: web.Request) -> web.StreamResponse:
    if request.transport is not None:
        request.transport.abort()
    return web.Response()  # which nobody gets
