"""Checks that this container may lock the memory that verbs registers, by its limit or by IPC_LOCK.

Reads two files in /proc. The runtime sets the limit, the same in every container of the pod. The capability takes
effect only for root (NVIDIA/nvidia-container-toolkit issue 2037).
"""

from typing import NamedTuple

from railwright.preflight import host as hosts

_LIMIT = "Max locked memory"
_IPC_LOCK = 14  # CAP_IPC_LOCK, include/uapi/linux/capability.h
_ENOUGH = 1 << 30  # bytes; common defaults are 64 KiB and 8 MiB, and one channel's buffers take 4 MiB per peer


class Lock(NamedTuple):
    """`limit` in bytes, None if unlimited or unreadable; `granted` is True if IPC_LOCK takes effect."""

    limit: int | None
    granted: bool

    @property
    def suffices(self) -> bool:
        """True if NCCL can register its buffers."""
        return self.granted or self.limit is None or self.limit >= _ENOUGH


def read(host: hosts.Host, *, root: bool) -> Lock:
    """Read the limit and the capability. `root`: the ranks run as root, so that the capability takes effect."""
    return Lock(_read_limit(host), root and _has_ipc_lock(host))


def _read_limit(host: hosts.Host) -> int | None:
    for line in (host.read_text("/proc/self/limits") or "").splitlines():
        if line.startswith(_LIMIT):
            return hosts.parse_number("".join(line[len(_LIMIT) :].split()[:1]))
    return None


def _has_ipc_lock(host: hosts.Host) -> bool:
    """Check the bounding set: this process is not root and may lack capabilities that the ranks have."""
    for line in (host.read_text("/proc/self/status") or "").splitlines():
        name, _, value = line.partition(":")
        if name in {"CapBnd", "CapEff"} and (hosts.parse_number(value.strip(), 16) or 0) >> _IPC_LOCK & 1:
            return True
    return False
