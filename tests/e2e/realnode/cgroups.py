"""The cgroup of a node: kubelet's `cgroupRoot`, below each hierarchy of cgroup v1 or in the one of v2.

Standard library only.
"""

import contextlib
import os
import pathlib

from realnode import machine

_CONTROLLERS = ("cpu", "cpuset", "memory", "pids")


def make(name: str) -> None:
    """Make the cgroup in every hierarchy, with the controllers that pods need."""
    for hierarchy in list_hierarchies():
        (hierarchy / name).mkdir(exist_ok=True)
    if machine.is_unified():
        (machine.CGROUPS / name / "cgroup.subtree_control").write_text(
            " ".join(f"+{controller}" for controller in _CONTROLLERS)
        )
        return
    for file in ("cpuset.cpus", "cpuset.mems"):  # empty in a new cgroup of v1, which then takes no process
        parent = machine.CGROUPS / "cpuset"
        (parent / name / file).write_text((parent / file).read_text())


def remove(name: str) -> bool:
    """Remove the cgroup and all below it. Return False if some of it is left."""
    for hierarchy in list_hierarchies():
        for folder, _, _ in os.walk(hierarchy / name, topdown=False):
            with contextlib.suppress(OSError):  # processes in it are still ending
                pathlib.Path(folder).rmdir()
    return not any((hierarchy / name).exists() for hierarchy in list_hierarchies())


def list_hierarchies() -> list[pathlib.Path]:
    """Return the folders below which a node has its cgroup."""
    if machine.is_unified():
        return [machine.CGROUPS]
    folders = [path for path in machine.CGROUPS.iterdir() if path.is_dir() and not path.is_symlink()]
    return [path for path in folders if (path / "cgroup.procs").exists()]
