"""Where NCCL would find a variable: the environment, else /etc/nccl.conf (NVIDIA/nccl src/misc/param.cc).

Owns the names this check reads. A file of a user's home or one named by NCCL_CONF_FILE is the image's, not seen.
"""

from collections.abc import Mapping

from railwright.preflight import host as hosts

HCA, GID_INDEX = "NCCL_IB_HCA", "NCCL_IB_GID_INDEX"
_FILE = "/etc/nccl.conf"


def value(name: str, environment: Mapping[str, str], host: hosts.Host) -> str | None:
    """The value, None where nobody says."""
    if name in environment:
        return environment[name]
    for line in (host.text(_FILE) or "").splitlines():
        found, mark, text = line.partition("=")
        if mark and found == name:
            return text
    return None


def gid_index(environment: Mapping[str, str], host: hosts.Host) -> int | None:
    """The fixed entry of every GID table, None where NCCL chooses (-1, or nothing that it would read as a number)."""
    return hosts.whole(value(GID_INDEX, environment, host))
