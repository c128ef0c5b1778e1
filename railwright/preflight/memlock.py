"""Whether this container may lock the memory that verbs registers: its limit, or the capability instead of it.

Owns the two files of /proc that tell. The limit is the runtime's and the same in every container of the pod; the
capability counts for root only (NVIDIA/nvidia-container-toolkit issue 2037), so for a pod of another user not at all.
"""

from typing import NamedTuple

from railwright.preflight import host as hosts

_LIMIT = "Max locked memory"
_IPC_LOCK = 14  # CAP_IPC_LOCK, include/uapi/linux/capability.h
_ENOUGH = 1 << 30  # bytes; the defaults in the wild are 64 KiB and 8 MiB, one channel's buffers are 4 MiB a peer


class Lock(NamedTuple):
    """`limit` in bytes, None for unlimited or not readable; `granted` where IPC_LOCK can be had."""

    limit: int | None
    granted: bool

    @property
    def suffices(self) -> bool:
        """True where NCCL can register its buffers."""
        return self.granted or self.limit is None or self.limit >= _ENOUGH


def read(host: hosts.Host, *, root: bool) -> Lock:
    """What holds here; `root`: the containers that compute run as root, so that capabilities are theirs."""
    return Lock(_limit(host), root and _granted(host))


def _limit(host: hosts.Host) -> int | None:
    for line in (host.text("/proc/self/limits") or "").splitlines():
        if line.startswith(_LIMIT):
            return hosts.whole("".join(line[len(_LIMIT) :].split()[:1]))
    return None


def _granted(host: hosts.Host) -> bool:
    """By the bounding set: this process is not root, so it may have no capability the ranks have."""
    for line in (host.text("/proc/self/status") or "").splitlines():
        name, _, value = line.partition(":")
        if name in {"CapBnd", "CapEff"} and (hosts.whole(value.strip(), 16) or 0) >> _IPC_LOCK & 1:
            return True
    return False
