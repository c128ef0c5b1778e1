"""Reads a variable as NCCL would: from the environment, otherwise /etc/nccl.conf (NVIDIA/nccl src/misc/param.cc).

A file in a user's home or one named by NCCL_CONF_FILE is part of the image and not visible here.
"""

from collections.abc import Mapping

from railwright.preflight import host as hosts

HCA, GID_INDEX = "NCCL_IB_HCA", "NCCL_IB_GID_INDEX"
_FILE = "/etc/nccl.conf"


def get_value(name: str, environment: Mapping[str, str], host: hosts.Host) -> str | None:
    """Return the value, or None if it is set nowhere."""
    if name in environment:
        return environment[name]
    for line in (host.read_text(_FILE) or "").splitlines():
        key, mark, text = line.partition("=")
        if mark and key == name:
            return text
    return None


def get_gid_index(environment: Mapping[str, str], host: hosts.Host) -> int | None:
    """Return the fixed GID index, or None if NCCL chooses (-1, or a value that is no number)."""
    return hosts.parse_number(get_value(GID_INDEX, environment, host))
