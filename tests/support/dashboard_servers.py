"""Starts the dashboard by its command, and an API server for it: real processes and sockets."""

import asyncio
import contextlib
import pathlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import api_stub
import objects_stub
import processes
import shell
import varied_clusters
from aiohttp import web

PEOPLE = {"ann-token": "ann", "bob-token": "bob"}  # ann may get /dashboard, bob may not


async def _read_announced(stream: asyncio.StreamReader, words: str) -> str:
    async with asyncio.timeout(shell.PATIENCE):
        while line := (await stream.readline()).decode():
            if words in line:
                return line.split(words)[1].split()[0]
    raise AssertionError(f"ended without {words!r}")


@contextlib.asynccontextmanager
async def started(words: str, *arguments: str, out: str) -> AsyncIterator[str]:
    """Start a command, and yield its output once this stream has these words. Stop it at the end."""
    process = await processes.start_command(*arguments)
    stream = process.stdout if out == "stdout" else process.stderr
    other = process.stderr if out == "stdout" else process.stdout
    assert stream is not None
    assert other is not None
    draining = [asyncio.create_task(other.read())]
    try:
        address = await _read_announced(stream, words)
        draining.append(asyncio.create_task(stream.read()))
        yield address
    finally:
        if process.returncode is None:
            process.terminate()
        await asyncio.wait_for(process.wait(), shell.PATIENCE)
        await asyncio.gather(*draining)


def build_pictured_cluster() -> varied_clusters.Vista:
    """Return the cluster of the documentation's picture: 192 nodes, with a gang that waits for four pods."""
    vista = varied_clusters.Vista(2, 6, 16, gangs=8, waiting=1, seed=4)
    vista.add_gang(24, name="llama-405b", namespace="prod", placed=20)
    return vista


def command(folder: pathlib.Path, *options: str):
    """Run `railwright dashboard` on the files of a folder; yield its URL."""
    files = ("--snapshot", str(folder / "snapshot.json"), "--policy", str(folder / "policy.yaml"))
    return started("dashboard: ", "dashboard", *files, *options, out="stdout")


def over(kubeconfig: str, folder: pathlib.Path):
    """Run `railwright dashboard` on a cluster, with the policy in a folder; yield its URL."""
    options = ("--kubeconfig", kubeconfig, "--policy", str(folder / "policy.yaml"))
    return started("dashboard: ", "dashboard", *options, out="stdout")


def extender(kubeconfig: str, folder: pathlib.Path, *options: str):
    """Run the extender with its dashboard; yield HOST:PORT of the dashboard."""
    ports = ("--plain-http", "--listen=127.0.0.1:0", "--ops-listen=127.0.0.1:0", "--dashboard-listen=127.0.0.1:0")
    sources = (f"--policy={folder}/policy.yaml", f"--kubeconfig={kubeconfig}")
    return started("dashboard listening on ", "extender", *ports, *sources, "--drain-seconds=0", *options, out="stderr")


@contextlib.asynccontextmanager
async def snapshot_extender(folder: pathlib.Path) -> AsyncIterator[tuple[str, str]]:
    """Start an extender on the files of a folder, wait until it is ready, and yield its URL and that of probes."""
    sources = (f"--policy={folder}/policy.yaml", f"--snapshot={folder}/snapshot.json")
    server = await processes.begin("extender", "--plain-http", *sources)
    try:
        await server.ready()
        yield f"http://127.0.0.1:{server.port}", f"http://127.0.0.1:{server.ops_port}"
    finally:
        await server.end()


@contextlib.asynccontextmanager
async def shown(folder: pathlib.Path, vista: varied_clusters.Vista) -> AsyncIterator[tuple[str, "ApiServer"]]:
    """Run `railwright dashboard` on a cluster with these objects; yield its URL and the API server."""
    vista.write(folder)
    server = ApiServer(vista.get_lists())
    async with server.open(folder) as kubeconfig, over(kubeconfig, folder) as url:
        yield url, server


def write_small(folder: pathlib.Path) -> "ApiServer":
    """Write a cluster of eight nodes with a gang into a folder, and return an API server with its objects."""
    vista = varied_clusters.Vista(1, 2, 4, gangs=1, waiting=0)
    vista.write(folder)
    return ApiServer(vista.get_lists())


class ApiServer(objects_stub.Objects):
    """An API server with lists, watches without events, and the users in PEOPLE."""

    def __init__(self, lists: dict[str, list[dict]]) -> None:
        super().__init__(is_strict=True)
        self.lists = lists
        self.reviews: list[dict] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if not request.path.endswith("reviews"):
            return await super().answer(request)
        spec = (await request.json())["spec"]
        if request.path.endswith("/tokenreviews"):
            user = PEOPLE.get(spec["token"], "")
            return web.json_response({"status": {"authenticated": bool(user), "user": {"username": user}}})
        self.reviews.append(spec)
        may = spec["user"] == "ann" and spec.get("nonResourceAttributes") == {"path": "/dashboard", "verb": "get"}
        return web.json_response({"status": {"allowed": may}})

    @contextlib.asynccontextmanager
    async def open(self, folder: pathlib.Path) -> AsyncIterator[str]:
        """Serve during a `with` block; yield a kubeconfig."""
        async with objects_stub.serving(self):
            yield api_stub.kubeconfig(folder, self.port)


async def read_until(session: aiohttp.ClientSession, url: str, is_settled: Callable[[dict], Any]) -> dict:
    """Request the overview repeatedly; return the first that meets the condition."""
    async with asyncio.timeout(shell.PATIENCE):
        while True:
            async with session.get(f"{url}api/overview") as response:
                overview = await response.json()
            if is_settled(overview):
                return overview
            await asyncio.sleep(0.1)


def find(overview: dict, kind: str, name: str) -> dict:
    """Return the fabric or gang with this name or key; {} if there is none."""
    key = "key" if kind == "gangs" else "name"
    return next((row for row in overview[kind] if row[key] == name), {})
