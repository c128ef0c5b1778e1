"""Starts our two servers as subprocesses, as a user does."""

import pathlib
import sys

import aiohttp

from plane import components, processes, schedulers

ROOT = pathlib.Path(__file__).resolve().parents[3]
_LINE = r"^{}listening on (\S+):(\d+)\n"  # with its end: half a port number would match too


class Server:
    """`python -m webhook` or `python -m extender`, with the ports from its standard error."""

    def __init__(self, process: processes.Process, session: aiohttp.ClientSession) -> None:
        self.process = process
        self.port = 0
        self.ops_port = 0
        self._session = session

    async def start(self, **environment: str) -> "Server":
        """Start it and read both `listening on` lines; it may not be ready yet, see `ready`."""
        self.process.start({"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **environment})
        self.port = int((await self.process.wait_line(_LINE.format(""), seconds=60)).group(2))
        self.ops_port = int((await self.process.wait_line(_LINE.format("ops "))).group(2))
        return self

    async def ready(self) -> "Server":
        """Wait until /readyz succeeds, and return the server."""
        await schedulers.wait_healthy(self._session, components.Health(f"{self.ops_url}/readyz"), self.process)
        return self

    @property
    def ops_url(self) -> str:
        """Return the URL of probes and metrics."""
        return f"http://127.0.0.1:{self.ops_port}"

    async def metrics(self) -> str:
        """Return the text of /metrics."""
        async with self._session.get(f"{self.ops_url}/metrics") as answer:
            return await answer.text()

    async def stop(self) -> int:
        """Send SIGTERM and wait until the server has ended. Return the exit code."""
        return await self.process.stop()

    async def kill(self) -> int:
        """Send SIGKILL, like a crash."""
        return await self.process.kill()


def build_process(name: str, module: str, arguments: tuple[str, ...], logs: pathlib.Path) -> processes.Process:
    """Return the process of one of our servers, not started yet, on free ports unless the arguments say otherwise."""
    ports = ("--listen=127.0.0.1:0", "--ops-listen=127.0.0.1:0")
    return processes.Process(name, [sys.executable, "-m", module, *ports, *arguments], logs=logs, cwd=ROOT)
