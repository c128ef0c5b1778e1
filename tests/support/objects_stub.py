"""Serves an API server that stores objects by path and version, with the faults that a test chooses.

A path with a namespace names an object, or what objects are posted to; any other is a list, watched without end.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import api_stub
from aiohttp import web

Fault = Callable[[web.Request], int | None]  # returns a status, one of the three faults below, or None for no fault
HANG, LOSE, GARBAGE = -1, -2, -3  # no answer; the write is made and its answer is lost; a proxy's page instead
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases/{}"


class Objects:
    """The stored objects, and the requests."""

    def __init__(self) -> None:
        self.stored: dict[str, dict] = {}
        self.lists: dict[str, list[dict]] = {}
        self.asked: list[tuple[str, str]] = []
        self.writes: list[tuple[float, str, dict]] = []  # the time by time.monotonic(), the path, the object
        self.fault: Fault = lambda _: None
        self.slow_seconds = 0.0  # before each answer
        self.port = 0
        self._version = 0
        self._done = asyncio.Event()

    def holder(self, path: str) -> str:
        """Return the holder of the Lease at this path; "" if there is none."""
        return self.stored.get(path, {}).get("spec", {}).get("holderIdentity", "")

    def keep(self, path: str, thing: dict) -> dict:
        """Store an object in a new version."""
        self._version += 1
        self.stored[path] = thing | {"metadata": thing["metadata"] | {"resourceVersion": str(self._version)}}
        self.writes.append((time.monotonic(), path, self.stored[path]))
        return self.stored[path]

    def release(self) -> None:
        """Release the requests that hang."""
        self._done.set()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append((request.method, request.path))
        fault = self.fault(request)
        if self.slow_seconds:
            await asyncio.sleep(self.slow_seconds)
        if fault == HANG:
            await self._done.wait()
        if fault == GARBAGE:
            return web.Response(text="<html>")
        if fault and fault > 0:
            return api_stub.refuse(fault, "Test")
        if "/namespaces/" not in request.path:
            return await self._listed(request)
        answer = await self._named(request)
        if fault == LOSE:
            await self._done.wait()
        return answer

    async def _listed(self, request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            items = self.lists.get(request.path, [])
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": items})
        stream = web.StreamResponse()
        await stream.prepare(request)
        await self._done.wait()
        return stream

    async def _named(self, request: web.Request) -> web.Response:
        present = self.stored.get(request.path)
        if request.method == "GET":
            return web.json_response(present) if present else api_stub.refuse(404, "NotFound")
        thing = json.loads(await request.read())
        if request.method == "POST":
            path = f"{request.path}/{thing['metadata']['name']}"
            if path in self.stored:
                return api_stub.refuse(409, "AlreadyExists")
            return web.json_response(self.keep(path, thing), status=201)
        if present is None:  # as a Lease is created by PUT
            return web.json_response(self.keep(request.path, thing), status=201)
        if "resourceVersion" not in thing["metadata"]:
            return api_stub.refuse(422, "Invalid")
        if thing["metadata"].get("resourceVersion") != present["metadata"]["resourceVersion"]:
            return api_stub.refuse(409, "Conflict")
        return web.json_response(self.keep(request.path, thing))


@asynccontextmanager
async def serving() -> AsyncIterator[Objects]:
    """Serve on a free port."""
    made = Objects()
    async with api_stub.serve(made.answer) as made.port:
        try:
            yield made
        finally:
            made.release()
