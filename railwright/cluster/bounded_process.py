"""Runs a module in a process of its own, with a deadline and limits of memory and priority.

For work whose cost somebody else determines: this process goes on answering requests, and outlives it. A thread would
not help: it would hold the interpreter, and each response would wait for it several times.
"""

import asyncio
import contextlib
import os
import pathlib
import subprocess
import sys
from typing import NamedTuple

_NICENESS = 10  # gives requests priority on few cores


class ProcessError(Exception):
    """The process could not be started, failed, or did not end in time."""


class ExceededError(ProcessError):
    """The process did not end within its time."""


class Job(NamedTuple):
    """A module that reads its standard input to the end and writes its result to the standard output."""

    module: str
    purpose: str  # completes "the process that ..."

    async def run(self, text: bytes, seconds: float) -> bytes:
        """Return the output of a new process, which is killed after `seconds` or on cancellation.

        Raises ProcessError.
        """
        process = self._start()
        finishing = asyncio.get_running_loop().run_in_executor(None, self._finish, process, text, seconds)
        finishing.add_done_callback(lambda done: done.cancelled() or done.exception())  # may have no reader
        try:
            await asyncio.wait((finishing,))  # not cancelled: the thread waits for the process
        finally:
            process.kill()  # otherwise the exit of this process would wait for the thread
        return finishing.result()

    def _start(self) -> subprocess.Popen[bytes]:
        command = (sys.executable, "-P", "-m", self.module)
        try:
            return subprocess.Popen(  # noqa: S603 - runs a module of this package
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        except OSError as error:
            raise ProcessError(f"no process that {self.purpose}: {error}") from None

    def _finish(self, process: subprocess.Popen[bytes], text: bytes, seconds: float) -> bytes:
        """Block until the process has ended."""
        try:
            with process:
                try:
                    output, stderr = process.communicate(text, timeout=seconds)
                except BaseException:
                    process.kill()
                    raise
        except subprocess.TimeoutExpired:
            raise ExceededError(f"the process that {self.purpose} took more than {seconds:.1f} s") from None
        except OSError as error:
            raise ProcessError(f"no process that {self.purpose}: {error}") from None
        if process.returncode != 0:
            last = stderr.decode(errors="replace").strip().rpartition("\n")[2]
            raise ProcessError(f"the process that {self.purpose} ended with {process.returncode}: {last}")
        return output


def limit(memory: int) -> int:
    """Limit this process, which runs a job: `memory` bytes of address space at most. Returns the limit in force."""
    import resource  # noqa: PLC0415 - missing on Windows, where only commands run

    os.nice(_NICENESS)
    allowed = resource.getrlimit(resource.RLIMIT_AS)[1]
    memory_limit = memory if allowed == resource.RLIM_INFINITY else min(memory, allowed)
    resource.setrlimit(resource.RLIMIT_AS, (memory_limit, memory_limit))
    with contextlib.suppress(OSError):  # Linux: if memory runs out, kill this process instead of the server
        pathlib.Path("/proc/self/oom_score_adj").write_text("1000", "ascii")
    return memory_limit
