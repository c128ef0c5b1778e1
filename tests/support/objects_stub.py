"""Serves an API server that stores objects by path and version, with the faults that a test chooses."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import api_stub
import jsonpatch
from aiohttp import web

Fault = Callable[[web.Request], int | None]  # returns a status, one of the three faults below, or None for no fault
HANG, LOSE, GARBAGE = -1, -2, -3  # no answer; the write is made and its answer is lost; a proxy's page instead
PAGE = 2  # objects of a page of a list, for clients that limit pages
_OBJECT = re.compile(r"/namespaces/[^/]+/[^/]+/[^/]+$")


class Objects:
    """The stored objects, and the requests. Unknown kinds are empty lists, or not served if `is_strict`."""

    def __init__(self, *, is_strict: bool = False) -> None:
        self.stored: dict[str, dict] = {}
        self.lists: dict[str, list[dict]] = {}
        self.asked: list[tuple[str, str]] = []
        self.writes: list[tuple[float, str, dict]] = []  # the time by time.monotonic(), the path, the object
        self.deleted: list[tuple[str, dict]] = []  # the path, the DeleteOptions
        self.changes: list[str] = []  # method and path of each write that succeeded
        self.proxied: dict[str, tuple[int, dict]] = {}  # status and answer of a Service's proxy, by the end of the path
        self.fault: Fault = lambda _: None
        self.slow_seconds = 0.0  # before each answer
        self.port = 0
        self._is_strict = is_strict
        self._version = 0
        self._done = asyncio.Event()

    def get_all(self, plural: str) -> dict[str, dict]:
        """Return the stored objects of a kind by name."""
        paths = [path.split("/") for path in self.stored]
        return {path[-1]: self.stored["/".join(path)] for path in paths if path[-2] == plural}

    def remove(self, plural: str, name: str) -> dict:
        """Remove an object, as somebody else does, and return it."""
        (path,) = [path for path in self.stored if path.endswith(f"/{plural}/{name}")]
        return self.stored.pop(path)

    def keep(self, path: str, thing: dict) -> dict:
        """Store an object in a new version."""
        self._version += 1
        uid = self.stored.get(path, {}).get("metadata", {}).get("uid", f"uid-{self._version}")
        version = {"uid": uid, **thing["metadata"], "resourceVersion": str(self._version)}
        self.stored[path] = thing | {"metadata": version}
        self.writes.append((time.monotonic(), path, self.stored[path]))
        return self.stored[path]

    def refuse_next(self, *statuses: int) -> None:
        """Answer the next POST requests by these statuses, and all others as usual."""
        left = list(statuses)
        self.fault = lambda request: left.pop(0) if left and request.method == "POST" else None

    def release(self) -> None:
        """Release the requests that hang, and let watchers list again."""
        self._done.set()
        self._done = asyncio.Event()

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
        if request.path.endswith("/subjectaccessreviews"):
            return web.json_response({"status": {"allowed": True}}, status=201)
        if "/proxy/" in request.path:
            status, tree = self.proxied[request.path.rpartition("/")[2]]
            return web.json_response(tree, status=status)
        if request.method != "GET":
            answer = await self._write(request)
        elif request.path in self.stored:
            answer = web.json_response(self.stored[request.path])
        else:
            answer = await self._listed(request)
        if fault == LOSE:
            await self._done.wait()
        return answer

    async def _listed(self, request: web.Request) -> web.StreamResponse:
        """Return a page of a list, of one namespace or of all; or a watch, whose version is forgotten when it ends."""
        head, _, plural = request.path.rpartition("/")
        pattern = re.compile(rf"{re.escape(head)}(/namespaces/[^/]+)?/{plural}/([^/]+)")
        name = request.query.get("fieldSelector", "").partition("metadata.name=")[2]
        matches = [(pattern.fullmatch(path), item) for path, item in self.stored.items()]
        items = [item for match, item in matches if match and name in ("", match[2])]
        items += self.lists.get(request.path, [])
        is_unknown = not items and request.path not in self.lists
        if is_unknown and (self._is_strict or _OBJECT.search(request.path)):
            return api_stub.refuse(404, "NotFound", f"{request.path} not found")
        if "watch" not in request.query:
            begin = int(request.query.get("continue") or "0")
            end = begin + PAGE if "limit" in request.query else len(items)
            listing = api_stub.listing(*items[begin:end], version=self._version + 1, more=str(end) * (end < len(items)))
            return web.json_response(listing)
        stream = web.StreamResponse()
        await stream.prepare(request)
        await self._done.wait()
        await stream.write(api_stub.event("ERROR", api_stub.status(410)))
        return stream

    async def _write(self, request: web.Request) -> web.Response:
        body, path = await request.read(), request.path.removesuffix("/status")
        thing = json.loads(body or b"{}")
        if request.method == "POST":
            path = f"{path}/{thing['metadata']['name']}"
        present = self.stored.get(path)
        if isinstance(thing, list):
            thing = jsonpatch.apply_patch(present, thing)
        refusal = find_refusal(request.method, thing, present)
        if refusal:
            return api_stub.refuse(refusal, {404: "NotFound", 409: "Conflict"}.get(refusal, "Invalid"))
        # an API server ignores the query of a DELETE that has a body, its DeleteOptions
        is_dry_run = request.query.get("dryRun") == "All" and not (request.method == "DELETE" and body)
        if is_dry_run or thing.get("dryRun") == ["All"]:
            return web.json_response(thing)
        self.changes.append(f"{request.method} {request.path}")
        if request.method == "DELETE":
            self.deleted.append((path, thing))
            return web.json_response(self.stored.pop(path))
        if present and request.method == "PATCH":
            thing = {**present, **thing, "metadata": {**present["metadata"], **thing["metadata"]}}
        return web.json_response(self.keep(path, thing), status=200 if present else 201)


def find_refusal(method: str, thing: dict, present: dict | None) -> int | None:
    """Return the status with which an API server refuses a write; None if it succeeds."""
    if method == "POST":
        return 409 if present else None
    if method == "DELETE":
        is_other = present and thing.get("preconditions", {}).get("uid", "") not in ("", present["metadata"]["uid"])
        return 404 if present is None else 409 if is_other else None
    if present is None:  # an apply creates any object
        return None
    version = thing["metadata"].get("resourceVersion")
    return 409 if version not in (None, present["metadata"]["resourceVersion"]) else None


@asynccontextmanager
async def serving(objects: Objects | None = None) -> AsyncIterator[Objects]:
    """Serve on a free port."""
    made = objects or Objects()
    async with api_stub.serve(made.answer) as made.port:
        try:
            yield made
        finally:
            made.release()
