"""The processes of containers, seen from the machine, whose PID namespace is above all others."""

import asyncio
import pathlib
import time

from realnode import cgroups


def find_process(cgroup: str, pod: str, program: str) -> int:
    """Return the first process of a pod's container whose command line has `program`; 0 where there is none yet.

    `cgroup` is the node's, `pod` the UID.
    """
    pattern = f"{cgroup}/kubepods/**/pod{pod}/*/cgroup.procs"
    for hierarchy in cgroups.list_hierarchies():
        for procs in hierarchy.glob(pattern):
            for pid in procs.read_text().split():
                if program in _read(pathlib.Path("/proc", pid, "cmdline")):
                    return int(pid)
    return 0


async def has_ended(pid: int, *, seconds: float) -> bool:
    """Return whether a process ends within `seconds`."""
    deadline = time.monotonic() + seconds
    while is_running := bool(_read(pathlib.Path("/proc", str(pid), "cmdline"))):
        if time.monotonic() > deadline:
            break
        await asyncio.sleep(0.02)
    return not is_running


def _read(path: pathlib.Path) -> str:
    try:
        return path.read_text()
    except OSError:  # it has ended
        return ""
