"""Starts servers, on free ports, and commands as processes, as a user does."""

import asyncio
import contextlib
import os
import pathlib
import re
import sys
import time
from collections.abc import Callable, Mapping

import shell

ROOT = pathlib.Path(__file__).parents[2]
_LISTENING = re.compile(r"^(ops )?listening on \S+:(\d+)$", re.MULTILINE)


class Process(shell.Ports):
    """A running server; `log` is its output so far."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        super().__init__()
        self.process = process
        self.log = ""
        self._reading = asyncio.create_task(self._read()) if process.stderr else None

    @property
    def pid(self) -> int:
        return self.process.pid

    async def _read(self) -> None:
        async for line in self.process.stderr:
            self.log += line.decode(errors="replace")

    async def listening(self) -> "Process":
        def has_ports() -> bool:
            ports = {kind: int(port) for kind, port in _LISTENING.findall(self.log)}
            self.port, self.ops_port = ports.get("", 0), ports.get("ops ", 0)
            return bool(self.port and self.ops_port) or self.process.returncode is not None

        await shell.until(has_ports)
        assert self.port, self.log
        return self

    async def ready(self) -> None:
        deadline = time.monotonic() + shell.PATIENCE
        last = ""
        while time.monotonic() < deadline:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                answer = await self.ops("/readyz")
                if answer.status == 200:
                    return
                last = answer.body.decode()
            await asyncio.sleep(0.02)  # between two looks
        raise AssertionError(f"not ready: {last}\n{self.log[-2000:]}")

    async def metric(self, name: str) -> float:
        """Return the sum of a metric over its labels."""
        exposition = (await self.ops("/metrics")).body.decode()
        return sum(
            float(line.rpartition(" ")[2]) for line in exposition.splitlines() if re.match(rf"{name}[ {{]", line)
        )

    def memory(self) -> int:
        """Return the resident memory in bytes."""
        status = pathlib.Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)[1]) * 1024

    async def end(self) -> int:
        if self.process.returncode is None:
            self.process.terminate()
            try:
                async with asyncio.timeout(shell.PATIENCE):
                    await self.process.wait()
            except TimeoutError:
                self.process.kill()
        code = await self.process.wait()
        if self._reading:
            await self._reading
        return code


async def begin(
    server: str | pathlib.Path,
    *options: str,
    environment: Mapping[str, str] | None = None,
    before: Callable[[], None] | None = None,
    stderr: int = asyncio.subprocess.PIPE,
    waits: bool = True,
) -> Process:
    """Start a server, by its module or its file; `before` runs in the new process, to limit it.

    Waits until it listens unless `waits` is False.
    """
    ports = ("--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0", "--drain-seconds", "0")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *(("-m", server) if isinstance(server, str) else (str(server),)), *ports, *options),
        stderr=stderr,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})},
        preexec_fn=before,
    )
    started = Process(process)
    return await started.listening() if waits and stderr == asyncio.subprocess.PIPE else started


async def start_python(*words: str, **options) -> asyncio.subprocess.Process:
    """Start Python; its output is read by pipes unless the options of the process have other streams."""
    options = {"stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.PIPE, "cwd": ROOT, **options}
    return await asyncio.create_subprocess_exec(sys.executable, *words, **options)


async def start_command(*words: str, module: str = "railwright.cli", **options) -> asyncio.subprocess.Process:
    """Start a command as a user does."""
    return await start_python("-m", module, *words, **options)


async def finish(process: asyncio.subprocess.Process) -> tuple[int, str, str]:
    """Return the exit code, the standard output and the standard error of a command."""
    out, err = await asyncio.wait_for(process.communicate(), shell.PATIENCE)
    return process.returncode, out.decode(), err.decode()


async def run(*words: str) -> tuple[int, str, str]:
    """Run a command, as `finish` returns."""
    return await finish(await start_command(*words))


def without_cluster(folder: pathlib.Path) -> tuple[str, ...]:
    """Return the options of a server with a policy of one fabric without networks, and an empty cluster."""
    policy, snapshot = folder / "policy.yaml", folder / "snapshot.json"
    policy.write_text(
        "apiVersion: railwright.io/v1alpha1\ndefaultFabric: f\nfabrics:\n  f:\n"
        "    transport: infiniband\n    rails: [{name: rail0, resource: x.y/hca, device: mlx5_0}]\n"
    )
    snapshot.write_text('{"apiVersion": "v1", "kind": "List", "items": []}')
    return ("--policy", str(policy), "--snapshot", str(snapshot))
