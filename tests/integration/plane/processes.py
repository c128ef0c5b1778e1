"""Runs commands to their end, and programs with a log, which are always stopped by process id.

Knows nothing of the programs themselves.
"""

import asyncio
import atexit
import os
import pathlib
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from plane import waiting

_PARENT_DEATH = pathlib.Path(__file__).with_name("parent_death.py")
_BAD = re.compile(r"[EFW]\d{4} ")  # klog's errors and warnings
_alive: set["Process"] = set()
Result = tuple[int, str, str]  # exit code, stdout and stderr


async def run(*command: str | pathlib.Path, stdin: str = "", seconds: float = 120, **options: Any) -> Result:
    """Run a command to its end, at most for `seconds`; `options` are those of asyncio's subprocesses, such as `env`."""
    pipe = asyncio.subprocess.PIPE
    streams = {"stdin": pipe, "stdout": pipe, "stderr": pipe, **options}
    process = await asyncio.create_subprocess_exec(*command, **streams)
    out, err = await asyncio.wait_for(process.communicate(stdin.encode()), seconds)
    assert process.returncode is not None
    return process.returncode, out.decode(errors="replace"), (err or b"").decode(errors="replace")


class Process:
    """A running program. Its output goes to `log`, appended over restarts under the same name."""

    def __init__(
        self, name: str, command: Sequence[str], *, logs: pathlib.Path, cwd: pathlib.Path | None = None
    ) -> None:
        self.name = name
        self.command = list(command)
        self.log = logs / f"{name}.log"
        self._cwd = cwd
        self._popen: subprocess.Popen[bytes] | None = None
        self._from = 0  # where in the log the running program began

    @property
    def pid(self) -> int:
        """Process id of the running program."""
        assert self._popen is not None, f"{self.name} was not started"
        return self._popen.pid

    @property
    def running(self) -> bool:
        """True while the program has not ended."""
        return self._popen is not None and self._popen.poll() is None

    @property
    def state(self) -> str:
        """`runs`, or how it ended, in words."""
        if self.running:
            return "runs"
        return f"ended (exit {self._popen.returncode if self._popen is not None else None})"

    def start(self, environment: Mapping[str, str] | None = None) -> "Process":
        """Start it in a session of its own, so that Ctrl-C reaches only pytest, which then stops it."""
        assert not self.running, f"{self.name} runs already"
        command = [sys.executable, "-I", "-S", str(_PARENT_DEATH), str(os.getpid()), *self.command]
        with self.log.open("ab") as log:
            self._from = log.tell()
            self._popen = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._cwd,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )
        _alive.add(self)
        return self

    def output(self, *, after: int | None = None) -> str:
        """Return its output since its start, or since the log position `after`."""
        with self.log.open("rb") as log:
            log.seek(self._from if after is None else after)
            return log.read().decode(errors="replace")

    def position(self) -> int:
        """Return the current end of the log, to wait for later lines."""
        return self.log.stat().st_size

    async def wait_line(self, pattern: str, *, after: int | None = None, seconds: float = 30) -> re.Match[str]:
        """Wait for a line of output that matches; fail at once if the program ends."""
        return await waiting.wait(
            lambda: self._match(pattern, after),
            seconds=seconds,
            describe=lambda: f"{self.name} to write /{pattern}/; its log {self.log} ends:\n{self.tail()}",
        )

    def _match(self, pattern: str, after: int | None) -> re.Match[str] | None:
        match = re.search(pattern, self.output(after=after), re.MULTILINE)
        if match is None:
            self.assert_running()
        return match

    def assert_running(self) -> None:
        """Raise HopelessError if the program has ended."""
        if not self.running:
            raise waiting.HopelessError(f"{self.name} {self.state}; its log {self.log} ends:\n{self.tail()}")

    def tail(self) -> str:
        """Return the last lines of its output."""
        return "\n".join(self.output().splitlines()[-25:])

    def find_lines(self, word: str, lines: int) -> list[str]:
        """Return the last errors and warnings of a program that logs by klog, then its last lines with this word."""
        output = self.output().splitlines()
        bad = [line for line in output if _BAD.match(line)]
        about = [line for line in output if word in line and not _BAD.match(line)]
        return bad[-lines:] + about[-lines:]

    async def stop(self) -> int:
        """Send SIGTERM, and SIGKILL after 15 seconds. Return the exit code (negative: signal)."""
        if self.running:
            os.kill(self.pid, signal.SIGTERM)
            try:
                await waiting.wait(lambda: not self.running, seconds=15, describe=f"{self.name} to end")
            except AssertionError:
                return await self.kill()
        return self._reap()

    async def kill(self) -> int:
        """Send SIGKILL, like a crash, and wait until the process has ended."""
        if self.running:
            os.kill(self.pid, signal.SIGKILL)
        return self._reap()

    def kill_now(self) -> None:
        """Send SIGKILL, for exits without an event loop."""
        if self.running:
            os.kill(self.pid, signal.SIGKILL)
            self._reap()

    def _reap(self) -> int:
        assert self._popen is not None, f"{self.name} was not started"
        code = self._popen.wait(timeout=10)
        _alive.discard(self)
        return code


def list_running_pids() -> set[int]:
    """Return the process ids of all running programs."""
    return {process.pid for process in _alive}


def list_started() -> list[Process]:
    """Return all programs that were started and not stopped, by name; some may have ended by themselves."""
    return sorted(_alive, key=lambda process: process.name)


@atexit.register
def _end_all() -> None:
    """Stop the programs that are still running after a crash or a second interrupt of the test run."""
    for process in list(_alive):
        process.kill_now()
