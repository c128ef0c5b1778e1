"""Lists what a run could leave on the machine: processes, mounts, network namespaces and cgroups."""

import pathlib
from collections.abc import Iterator

from realnode import machine

_PROCESSES = pathlib.Path("/proc")


def list_processes(name: str) -> list[str]:
    """Return the command lines of the processes that have `name` there or in the path of their cgroup."""
    texts = _read_each("cgroup", "cmdline")
    return [command for cgroup, command in texts if name in cgroup or name in command]


def list_mounts(folder: str) -> list[str]:
    """Return the mounts, in any mount namespace, that have `folder` in their description."""
    return [line for (mounts,) in _read_each("mountinfo") for line in mounts.splitlines() if folder in line]


def list_network_namespaces() -> set[str]:
    """Return the network namespaces that processes are in."""
    namespaces = set()
    for process in _PROCESSES.glob("[0-9]*"):
        try:
            namespaces.add(read_namespace(f"{process}/ns/net"))
        except OSError:
            continue  # it has ended
    return namespaces


def read_namespace(path: str) -> str:
    """Return the type and number of the namespace at a path below /proc."""
    return str(pathlib.Path(path).readlink())


def list_cgroups(name: str) -> list[str]:
    """Return the cgroups whose names begin with `name`."""
    return [str(path) for path in machine.CGROUPS.glob(f"**/{name}*")]


def _read_each(*files: str) -> Iterator[list[str]]:
    """Yield the texts of these files of each process."""
    for process in _PROCESSES.glob("[0-9]*"):
        try:
            yield [(process / file).read_text(errors="replace") for file in files]
        except OSError:
            continue  # it has ended
