"""Reads a variable as NCCL would: from the environment, otherwise /etc/nccl.conf (NVIDIA/nccl src/misc/param.cc).

A file in a user's home or one named by NCCL_CONF_FILE is part of the image and not visible here.

NCCL_IB_HCA selects ports by the grammar of NVIDIA/nccl src/misc/utils.cc and src/transport/net_ib/init.cc: `^`
excludes, `=` is exact, otherwise each entry is a prefix; name[:port]; a port that is not a number matches nothing.
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


def parse_exact_list(value: str) -> tuple[str, ...]:
    """Return the devices of an exact list in its order; () for any other value."""
    if not value.startswith("=") or value.startswith("=^"):
        return ()
    return tuple(dict.fromkeys(entry.partition(":")[0] for entry in value[1:].split(",") if entry))


def selects(value: str, device: str, port: int) -> bool:
    """True if NCCL would use this port."""
    exclude, pattern = value.startswith("^"), value.removeprefix("^")
    exact_names, names = pattern.startswith("="), pattern.removeprefix("=")
    entries = [entry for entry in names.split(",") if entry]
    if not entries:
        return not exclude
    return exclude != any(_matches(entry, device, port, exact_names=exact_names) for entry in entries)


def _matches(entry: str, device: str, port: int, *, exact_names: bool) -> bool:
    name, mark, number = entry.partition(":")
    number = number.partition(":")[0]
    if mark and number != "-1" and number != str(port):
        return False
    return device == name if exact_names else device.startswith(name)
