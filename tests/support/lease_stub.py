"""Leases of an API server of the test's own: versions are kept, and what goes wrong is the test's choice."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web

Fault = Callable[[web.Request], int | None]  # a status to answer with, HANG, or None: nothing is wrong
HANG, LOSE = -1, -2  # no answer; the write is made and its answer is lost
PATH = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"


class Leases:
    """The Leases there are, and what was asked."""

    def __init__(self) -> None:
        self.kept: dict[str, dict] = {}
        self.asked: list[tuple[str, str]] = []
        self.fault: Fault = lambda _: None
        self.port = 0
        self._version = 0
        self._done = asyncio.Event()

    def holder(self, name: str) -> str:
        return self.kept.get(name, {}).get("spec", {}).get("holderIdentity", "")

    def keep(self, name: str, lease: dict) -> dict:
        self._version += 1
        self.kept[name] = lease | {"metadata": lease["metadata"] | {"resourceVersion": str(self._version)}}
        return self.kept[name]

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post(PATH, self._post),
            web.get(PATH + "/{name}", self._get),
            web.put(PATH + "/{name}", self._put),
        ]

    async def _wrong(self, request: web.Request) -> web.Response | None:
        self.asked.append((request.method, request.path))
        fault = self.fault(request)
        if fault == HANG:
            await self._done.wait()
        return web.json_response({"reason": "Test", "message": "no"}, status=fault) if fault and fault > 0 else None

    async def _get(self, request: web.Request) -> web.Response:
        if wrong := await self._wrong(request):
            return wrong
        lease = self.kept.get(request.match_info["name"])
        return web.json_response(lease) if lease else web.json_response({"reason": "NotFound"}, status=404)

    async def _post(self, request: web.Request) -> web.Response:
        if wrong := await self._wrong(request):
            return wrong
        lease = await request.json()
        name = lease["metadata"]["name"]
        if name in self.kept:
            return web.json_response({"reason": "AlreadyExists"}, status=409)
        return web.json_response(self.keep(name, lease), status=201)

    async def _put(self, request: web.Request) -> web.Response:
        if wrong := await self._wrong(request):
            return wrong
        lease, name = await request.json(), request.match_info["name"]
        if name not in self.kept:
            return web.json_response({"reason": "NotFound"}, status=404)
        if lease["metadata"].get("resourceVersion") != self.kept[name]["metadata"]["resourceVersion"]:
            return web.json_response({"reason": "Conflict"}, status=409)
        answer = self.keep(name, json.loads(json.dumps(lease)))
        if self.fault(request) == LOSE:
            await self._done.wait()
        return web.json_response(answer)

    def release(self) -> None:
        """What hangs hangs no longer."""
        self._done.set()


@asynccontextmanager
async def serving(leases: Leases, *more: web.RouteDef) -> AsyncIterator[Leases]:
    app = web.Application()
    app.add_routes([*leases.routes(), *more])
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    leases.port = runner.addresses[0][1]
    try:
        yield leases
    finally:
        leases.release()
        await runner.cleanup()
