"""SIGTERM at any time during a start ends the process at once, also as PID 1 of a container.

The kernel drops a signal for which PID 1 has no handler: the process then lives on until kubelet kills it, with the
whole grace period gone. Each command runs as PID 1 of a PID namespace of its own, where the machine lets us make one.
"""

import asyncio
import contextlib
import functools
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import api_stub
import pytest
import pytest_asyncio
import shell

ROOT = pathlib.Path(__file__).resolve().parents[2]
SECONDS = 60.0  # a second where nothing else runs; a lost signal is never noticed, and a drain takes ten minutes here
LISTENING = -1.0  # the moment at which it says that it listens
MOMENTS = (0.0, 0.3, LISTENING)  # seconds after the first one at which a signal can arrive
OURS = ("railwright.serving", "railwright.cluster", "webhook")
SLOW = ("aiohttp", "cryptography", "msgspec", *OURS)
PORTS = ("--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0", "--plain-http", "--drain-seconds", "600")
COMMANDS = {
    "webhook": ("webhook", *PORTS),
    "extender": ("extender", *PORTS),
    "certs": ("certs", "rotate", "--watch", "--ops-listen", "127.0.0.1:0"),
    "dashboard": ("dashboard",),
}


@functools.cache
def namespaces() -> tuple[str, ...]:
    """Return the prefix that makes a command PID 1; () if this machine does not allow us namespaces."""
    wrapper = ("unshare", "--pid", "--fork", "--kill-child", "--")
    possible = shutil.which("unshare") and subprocess.run([*wrapper, "true"], check=False).returncode == 0
    return wrapper if possible else ()


@pytest_asyncio.fixture
async def silent():
    """Yield an API server that accepts every request and never answers: caches stay empty."""
    open_connections = []
    server = await asyncio.start_server(lambda _, writer: open_connections.append(writer), "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()
    for writer in open_connections:
        writer.transport.abort()


class Starting:
    """A starting command; `pid` is its own, not that of the program that made its namespace."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process, self.pid = process, process.pid
        self.said = b""
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        while part := await self.process.stdout.read(4096):
            self.said += part

    async def takes_signals(self) -> None:
        """Wait until the process no longer drops a SIGTERM."""
        if namespaces():
            children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
            await self._until(lambda: self._child(children.read_text()))
            await self._until(self._has_handler)

    def _child(self, text: str) -> bool:
        self.pid = int(text.split(maxsplit=1)[0]) if text.strip() else self.process.pid
        return self.pid != self.process.pid

    def _has_handler(self) -> bool:
        status = pathlib.Path(f"/proc/{self.pid}/status").read_text()
        caught = int(re.search(r"^SigCgt:\s+(\w+)$", status, re.MULTILINE)[1], 16)
        return (
            bool(caught >> (signal.SIGTERM - 1) & 1)
            and "python" in pathlib.Path(f"/proc/{self.pid}/exe").readlink().name
        )

    async def listens(self) -> None:
        await self._until(lambda: b"listening on" in self.said or b"dashboard: http" in self.said)

    async def _until(self, condition) -> None:
        async with asyncio.timeout(shell.PATIENCE):
            while not condition():
                assert self.process.returncode is None, self.said
                await asyncio.sleep(0.002)

    async def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()
        await self._reading


@pytest_asyncio.fixture
async def start(silent, tmp_path):
    began = []

    async def begin(command: str) -> Starting:
        process = await asyncio.create_subprocess_exec(
            *(*namespaces(), sys.executable, "-m", "railwright.cli", *COMMANDS[command]),
            *("--kubeconfig", api_stub.kubeconfig(tmp_path, silent)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        began.append(Starting(process))
        return began[-1]

    yield begin
    for server in began:
        await server.end()


@pytest.mark.parametrize("command", COMMANDS)
async def test_sigterm_ends_a_starting_command_at_once(start, command):
    for moment in MOMENTS:
        starting = await start(command)
        await starting.takes_signals()
        await (starting.listens() if moment == LISTENING else asyncio.sleep(moment))
        os.kill(starting.pid, signal.SIGTERM)
        async with asyncio.timeout(SECONDS):
            code = await starting.process.wait()
        assert code in {0, -signal.SIGTERM, 128 + signal.SIGTERM}, (moment, starting.said)
        assert b"Traceback" not in starting.said, (moment, starting.said)


def test_the_sigterm_handler_is_set_before_slow_imports():
    if not namespaces():
        pytest.skip("this machine makes no PID namespaces for us")
    code = (
        "import signal, sys; import railwright.cli.__main__; "
        f"print(callable(signal.getsignal(signal.SIGTERM)), *({SLOW!r} & sys.modules.keys()))"
    ).replace(repr(SLOW), repr(set(SLOW)))
    ran = subprocess.run(
        [*namespaces(), sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert ran.stdout.split() == ["True"]
