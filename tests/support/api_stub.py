"""An API server on loopback with scripted answers, and a cache for a reflector that watches it.

A plugin for its fixtures, loaded by tests/conftest.py.
"""

import asyncio
import contextlib
import json
import pathlib
import ssl
from collections import deque

import pytest_asyncio
from aiohttp import web

from railwright.cluster import client as clients
from railwright.cluster import reflector, resources

_TURNS = 10  # of the event loop: more than it takes to set up a connection
_TEXT = """
apiVersion: v1
kind: Config
current-context: stub
contexts: [{{name: stub, context: {{cluster: stub, user: stub}}}}]
clusters: [{{name: stub, cluster: {cluster}}}]
users: [{{name: stub, user: {user}}}]
"""


def kubeconfig(
    folder: pathlib.Path, port: int, *, user: str = "{token: s3cret}", ca: pathlib.Path | None = None
) -> str:
    """Write a kubeconfig for the server at this port of loopback, over TLS where it has a CA; return its path."""
    server = f"http{'s' * (ca is not None)}://127.0.0.1:{port}"
    cluster = {"server": server} if ca is None else {"server": server, "certificate-authority": str(ca)}
    path = folder / "kubeconfig"
    path.write_text(_TEXT.format(cluster=json.dumps(cluster), user=user))
    return str(path)


def node(name: str, version: int = 1, *, uid: str = "", **labels: str) -> dict:
    metadata = {"name": name, "uid": uid or f"uid-{name}", "resourceVersion": str(version), "labels": labels}
    return {"metadata": metadata, "status": {}}


def listing(*items: dict, version: int, more: str = "") -> dict:
    return {"items": list(items), "metadata": {"resourceVersion": str(version), "continue": more}}


def event(kind: str, obj: dict) -> bytes:
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


def bookmark(version: int) -> bytes:
    return event("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})


def status(code: int, message: str = "no", reason: str = "Because") -> dict:
    return {"kind": "Status", "code": code, "reason": reason, "message": message}


def refuse(code: int, reason: str, message: str = "no") -> web.Response:
    """Return an error response of an API server."""
    return web.json_response(status(code, message, reason), status=code)


@contextlib.asynccontextmanager
async def connected(folder: pathlib.Path, port: int):
    """Yield a client of the server at this port, whose kubeconfig is in `folder`."""
    made = await clients.connect(kubeconfig(folder, port))
    try:
        yield made
    finally:
        await made.close()


class Stub:
    """An API server with scripted answers, one for each request; the last one is repeated."""

    def __init__(self) -> None:
        self.lists: deque = deque()
        self.watches: deque = deque()
        self.asked: list[web.Request] = []
        self.hold = asyncio.Event()
        self.forbidden: set[str] = set()  # paths to which the caller has no right

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request)
        if request.path in self.forbidden:
            return refuse(403, "Forbidden", f'{request.path} is forbidden: User "me" cannot list resource')
        script = self.watches if "watch" in request.query else self.lists
        given = script.popleft() if len(script) > 1 else script[0]
        if isinstance(given, web.Response):
            return web.Response(body=given.body, status=given.status, headers=given.headers)
        if isinstance(given, dict):
            code = given.get("code", 200)
            return web.json_response(given, status=code)
        response = web.StreamResponse()
        await response.prepare(request)
        for part in given:
            if part is None:
                await self.hold.wait()
            else:
                await response.write(part)
        return response

    def watched_from(self) -> list[str]:
        return [request.query["resourceVersion"] for request in self.asked if "watch" in request.query]


class Cache:
    """A sink that stores objects and the changes of single ones."""

    def __init__(self) -> None:
        self.objects: dict[str, dict] = {}
        self.replaced = 0
        self.changes: list[str] = []  # one by one: +name, -name

    def replace(self, objects) -> None:
        self.replaced += 1
        self.objects = {item.metadata.name: item for item in objects}

    def upsert(self, obj) -> None:
        self.objects[obj.metadata.name] = obj
        self.changes.append(f"+{obj.metadata.name}")

    def remove(self, obj) -> None:
        self.objects.pop(obj.metadata.name, None)
        self.changes.append(f"-{obj.metadata.name}")


def serve(answer):
    """Answer every request by this function. Yields the port on 127.0.0.1."""
    return serve_routes(web.route("*", "/{path:.*}", answer))


@contextlib.asynccontextmanager
async def serve_routes(*routes: web.RouteDef, port: int = 0, tls: ssl.SSLContext | None = None):
    """Serve these routes, on this port or a free one. Yields the port on 127.0.0.1."""
    app = web.Application()
    app.add_routes(routes)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(runner.server, "127.0.0.1", port, ssl=tls, reuse_address=bool(port))
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        # asyncio leaves a connection open that it accepts in the turn in which its server closes: first the one, then
        # the other
        for listening in server.sockets:
            loop.remove_reader(listening.fileno())
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        server.close()
        await runner.cleanup()
        await asyncio.sleep(0)  # so that sockets are closed before the loop is


@pytest_asyncio.fixture(loop_scope="session")
async def stub():
    made = Stub()
    async with serve(made.answer) as made.port:
        yield made
        made.hold.set()


@pytest_asyncio.fixture(loop_scope="session")
async def client(stub, tmp_path):
    async with connected(tmp_path, stub.port) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def watch(client):
    """Yield `watch(kind)`: start a reflector with short pauses; return it, its cache and its restarts' reasons."""
    running = []

    def start(kind=resources.NODES, *, gradual=False, **seconds):
        cache, restarts = Cache(), []
        made = reflector.Reflector(
            client, reflector.WatchSpec(kind, cache, gradual=gradual), lambda _, reason: restarts.append(reason)
        )
        vars(made).update({"longest_pause_seconds": 0.05, "absent_seconds": 0.05, **seconds})
        running.append(asyncio.create_task(made.run()))
        return made, cache, restarts

    yield start
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
