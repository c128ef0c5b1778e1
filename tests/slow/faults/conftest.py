"""Fixtures of the fault tests."""

import asyncio
import contextlib

import api_stub
import child_processes
import processes
import pytest_asyncio

from railwright.cluster import client as clients
from railwright.cluster import reflector, resources


@pytest_asyncio.fixture(loop_scope="session")
async def watch_by(stub, tmp_path):
    """Return `async with watch_by(port)`: a reflector that connects to the stub by that port or a kubeconfig."""

    @contextlib.asynccontextmanager
    async def open_watch(port=0, *, kubeconfig=None, kind=resources.NODES, sink=None, **seconds):
        made = await clients.connect(str(kubeconfig or api_stub.kubeconfig(tmp_path, port)))
        cache, restarts = sink or api_stub.Cache(), []
        source = reflector.Reflector(made, reflector.WatchSpec(kind, cache), lambda _, reason: restarts.append(reason))
        vars(source).update({"longest_pause_seconds": 0.05, **seconds})
        running = asyncio.create_task(source.run())
        try:
            yield source, cache, restarts
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await made.close()

    return open_watch


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def started():
    """Yield `await started("webhook", *options)`: start a server and wait until it is ready; end it after the file."""
    running: list[processes.Process] = []

    async def start(server: str, *options: str, is_ready: bool = True, **more) -> processes.Process:
        running.append(process := await processes.begin(server, *options, **more))
        child_processes.share(process.pid)
        if is_ready:
            await process.ready()
        return process

    yield start
    for started in running:
        await started.end()
