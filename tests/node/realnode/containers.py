"""The processes of containers, seen from the machine, whose PID namespace is above all others."""

import asyncio
import math
import pathlib
import time

from realnode import cgroups


def find_process(cgroup: str, pod: str, program: str) -> int:
    """Return the first process of a pod's container with `program` in its command line; 0 if there is none yet.

    `cgroup` is the node's, `pod` the UID.
    """
    pattern = f"{cgroup}/kubepods/**/pod{pod}/*/cgroup.procs"
    for hierarchy in cgroups.list_hierarchies():
        for procs in hierarchy.glob(pattern):
            for pid in procs.read_text().split():
                if program in _read(pathlib.Path("/proc", pid, "cmdline")):
                    return int(pid)
    return 0


async def measure_end(pid: int, *, seconds: float) -> float:
    """Wait until a process has ended; return the seconds that this took, without those that it waited for a CPU.

    So a busy machine does not count. After `seconds` in all, infinity.
    """
    begun, before = time.monotonic(), _read_delay(pid)
    delay = before
    while _read(pathlib.Path("/proc", str(pid), "cmdline")):
        if time.monotonic() - begun > seconds:
            return math.inf
        delay = max(delay, _read_delay(pid))
        await asyncio.sleep(0.01)
    return time.monotonic() - begun - (delay - before)


def _read_delay(pid: int) -> float:
    """Return the seconds that a process has waited for a CPU, as sched-stats.rst of the kernel says."""
    fields = _read(pathlib.Path("/proc", str(pid), "schedstat")).split()
    return int(fields[1]) / 1e9 if len(fields) > 1 else 0.0


def _read(path: pathlib.Path) -> str:
    try:
        return path.read_text()
    except OSError:  # it has ended
        return ""
