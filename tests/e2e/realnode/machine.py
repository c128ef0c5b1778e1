"""Finds out, before anything is built, whether this machine can run real nodes, and why not.

Imports only the standard library, as `builds` does.
"""

import functools
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Callable

TOOLS = ("apt-get", "dpkg", "ip", "mount", "nsenter", "pivot_root", "unshare")
_NAMESPACES = ("unshare", "--net", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child")
_OVERLAY = (
    'mount -t tmpfs tmpfs "$1" && mkdir "$1/u" "$1/w" "$1/r" && '
    'mount -t overlay -o "lowerdir=/,upperdir=$1/u,workdir=$1/w" overlay "$1/r"'
)
_LINKS = (
    "ip link add bridge0 type bridge && ip link add port0 mtu 9000 type veth peer name card0 mtu 9000 && "
    "ip link set port0 master bridge0 && ip link add link card0 name rail0 mtu 9000 type macvlan mode bridge"
)
_V1 = ("cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids")
_V2 = ("cpuset", "cpu", "memory", "pids")
CGROUPS = pathlib.Path("/sys/fs/cgroup")


def find_obstacle() -> str:
    """Return why no real node can run on this machine, in one line; empty if one can."""
    return next((reason for check in _CHECKS if (reason := check())), "")


def is_unified() -> bool:
    """Return True if the machine has only cgroup v2."""
    return (CGROUPS / "cgroup.controllers").exists()


def _check_system() -> str:
    if sys.platform != "linux":
        return f"real nodes need Linux, and this is {sys.platform}"
    if not hasattr(os, "setns"):
        return f"real nodes need os.setns of Python 3.12, and this is {sys.version.split()[0]}"
    return "" if os.geteuid() == 0 else "real nodes need root"


def _check_tools() -> str:
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    return f"programs are missing: {', '.join(missing)}" if missing else ""


def _check_cgroups() -> str:
    if is_unified():
        offered = (CGROUPS / "cgroup.subtree_control").read_text().split()
        missing = [name for name in _V2 if name not in offered]
        return f"cgroup v2 does not delegate {', '.join(missing)}" if missing else _check_writable(CGROUPS)
    missing = [name for name in _V1 if not (CGROUPS / name).is_dir()]
    if missing:
        return f"cgroup controllers are missing: {', '.join(missing)}"
    return next((reason for name in _V1 if (reason := _check_writable(CGROUPS / name))), "")


def _check_writable(hierarchy: pathlib.Path) -> str:
    probe = hierarchy / f"railwright-probe-{os.getpid()}"
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError as error:
        return f"no cgroup can be made in {hierarchy}: {error.strerror}"
    return ""


def _attempt(message: str, *command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    if done.returncode == 0:
        return ""
    last = (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
    return f"{message}: {last}"


_CHECKS: tuple[Callable[[], str], ...] = (
    _check_system,
    _check_tools,
    functools.partial(_attempt, "namespaces cannot be made", *_NAMESPACES, "true"),
    functools.partial(_attempt, "no overlay over / can be mounted", *_NAMESPACES, "sh", "-ec", _OVERLAY, "sh", "/tmp"),
    functools.partial(_attempt, "no bridge, veth and macvlan can be made", *_NAMESPACES, "sh", "-ec", _LINKS),
    _check_cgroups,
)
