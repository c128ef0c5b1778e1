"""Fixtures of the fault tests."""

import child_processes
import processes
import pytest_asyncio


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
