"""Turns messages of NCCL into events, by a table with one row for each form a message has had over the releases.

The forms are from NVIDIA/nccl (src/transport/net_ib, net_socket, net.cc, src/init.cc, releases 2.4 to 2.32),
aws/aws-ofi-nccl and Mellanox/nccl-rdma-sharp-plugins. `Bootstrap : Using` and `; OOB` are ignored because they do not
describe the data path. `NET/Socket : Using` is no sign of TCP: NCCL prints it next to RDMA as well.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

from railwright.fabric.verification import log_types

_PORT = re.compile(r"([\w.+-]+):(\d+)/(IB|RoCE)\b")
_DEVICE = re.compile(r"\[\d+\](?:=?\{(?P<merged>[^}]*)\}|(?P<one>[\w.+-]+:\d+/(?:IB|RoCE)\b))")
_INTERFACE = re.compile(r"\[\d+\]([^\s:\[]+):")
_RANKS = re.compile(r"(\d+)(?:\[\w+\])? -> (\d+)(?:\[\w+\])?(?: \[(send|receive)\])?")


def _read_devices(match: re.Match[str]) -> log_types.Devices:
    device_list = match["list"].partition("; OOB")[0]
    return log_types.Devices(
        devices=tuple(
            tuple(log_types.Hca(name, int(port), link) for name, port, link in _PORT.findall(entry[0]))
            for entry in _DEVICE.finditer(device_list)
        )
    )


def _read_channel(match: re.Match[str]) -> log_types.Channel:
    rank = -1
    if ends := _RANKS.search(match["ends"]):
        rank = {"send": int(ends[1]), "receive": int(ends[2])}.get(ends[3] or "", -1)
    return log_types.Channel(
        network=match["network"],
        device=int(match["device"]),
        direct="/GDRDMA" in match["rest"],
        collective=bool(match["collective"]),
        rank=rank,
    )


def _read_virtual_device(match: re.Match[str]) -> log_types.Virtual:
    return log_types.Virtual(number=int(match["number"]), names=tuple(match["names"].split("+")))


def _read_missing_device(match: re.Match[str]) -> log_types.RdmaUnavailable:
    return log_types.RdmaUnavailable(f"NET/{match['family']} found no device")


_FORMS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], log_types.Event]], ...] = (
    (re.compile(r"^Using network (?P<name>\S.*)$"), lambda match: log_types.Network(match["name"].strip())),
    (re.compile(r"^NET/(?!Socket)[\w ]+? ?: Using +(?P<list>\[.*)$"), _read_devices),
    (
        re.compile(r"^(?P<ends>.*)\bvia (?P<collective>COLL)?NET/(?P<network>.+?)/(?P<device>\d+)(?P<rest>.*)$"),
        _read_channel,
    ),
    (re.compile(r"^NET/\w+ ?: Made virtual device \[(?P<number>\d+)\] name=(?P<names>\S+)"), _read_virtual_device),
    (
        re.compile(r"^NET/OFI Selected [Pp]rovider is (?P<name>[^\s,;]+)(?:.*\(found (?P<nics>\d+) nics?\))?"),
        lambda match: log_types.Provider(match["name"], int(match["nics"] or 0)),
    ),
    (
        re.compile(r"\brank (?P<rank>\d+) n[rR]anks (?P<ranks>\d+)\b"),
        lambda match: log_types.Member(int(match["rank"]), int(match["ranks"])),
    ),
    (
        re.compile(r"^NET/Socket ?: Using (?P<list>.*)$"),
        lambda match: log_types.Sockets(tuple(_INTERFACE.findall(match["list"]))),
    ),
    (re.compile(r"^NET/(?P<family>\w+) ?: No device found"), _read_missing_device),
    (
        re.compile(r"^(?P<name>NCCL_IB(?:EXT)?_DISABLE) set by environment to (?P<value>[1-9]\d*)"),
        lambda match: log_types.RdmaUnavailable(f"{match['name']}={match['value']} is set"),
    ),
    (
        re.compile(r"(?:Failed to open|[Cc]ould not open|Unable to open|cannot open) (?P<file>libibverbs\S*)"),
        lambda match: log_types.RdmaUnavailable(f"{match['file'].rstrip(',.;:')} is not in the image"),
    ),
    (
        re.compile(r"(?P<file>libibverbs\S*?): cannot open shared object"),
        lambda match: log_types.RdmaUnavailable(f"{match['file']} is not in the image"),
    ),
    (
        re.compile(r"NET/OFI .*(?:fi_getinfo\(?\)? call failed|Could not find any optimal provider).*"),
        lambda match: log_types.RdmaUnavailable(f"libfabric has no provider: {match[0]}"),
    ),
    (re.compile(r"^NCCL version (?P<version>[\d.]+)"), lambda match: log_types.Release(match["version"])),
)
# Broken connections: RDMA was chosen and failed (NVIDIA/nccl#1814, NVIDIA/nccl#1052, NVIDIA/nccl-tests#185).
_BROKEN = re.compile(
    r"NET/IB ?: Got (?:completion|async|fatal)|Call to ibv_\w+ (?:failed|timed)|NET/OFI .*completed with error"
)


def parse_event(text: str, level: str) -> log_types.Event | None:
    """Return the event that a message of NCCL reports, or None for all other messages."""
    if level == "WARN" and _BROKEN.search(text):
        return log_types.Failure(text)
    for pattern, make_event in _FORMS:
        if match := pattern.search(text):
            return make_event(match)
    return None


# --- nccl-tests -------------------------------------------------------------------------------------------

_TABLE = re.compile(r"#\s+Rank\s+(\d+)(?:\s+Group\s+\d+)?\s+Pid\s+(\d+) on\s+([\w.-]+) device")
_AVERAGE = re.compile(r"#\s*Avg bus bandwidth\s*:\s*([\d.]+)")
_WRONG = re.compile(r"#\s*Out of bounds values\s*:\s*([1-9]\d*) FAILED")
_NUMBER = r"([\d.]+)"
_ROW = re.compile(
    rf"(?:^|\s)\d+\s+\d+\s+\w+\s+\w+\s+-?\d+\s+{_NUMBER}\s+{_NUMBER}\s+{_NUMBER}\s+\S+\s+{_NUMBER}\s+{_NUMBER}\s+{_NUMBER}\s"
)
_VERSION = re.compile(r"^(?:\S+\s+)*?NCCL version ([\d.]+)")


class RankRow(NamedTuple):
    """A row of the table of devices that nccl-tests prints."""

    rank: int
    pid: int
    host: str  # without its domain


def parse_rank(text: str) -> RankRow | None:
    """Return the rank in a row of the table of devices."""
    match = _TABLE.search(text)
    return RankRow(int(match[1]), int(match[2]), match[3].partition(".")[0]) if match else None


def parse_average(text: str) -> float | None:
    """Return the average bus bandwidth in GB/s."""
    match = _AVERAGE.search(text)
    return float(match[1]) if match and match[1].count(".") < 2 else None


def parse_peak(text: str) -> float | None:
    """Return the higher bus bandwidth of a row (out of place, in place) in GB/s."""
    match = _ROW.search(text)
    try:
        return max(float(match[3]), float(match[6])) if match else None
    except ValueError:
        return None


def parse_wrong_results(text: str) -> int:
    """Return the number of wrong results."""
    match = _WRONG.search(text)
    return int(match[1]) if match else 0


def parse_version(text: str) -> str:
    """Return NCCL's release from a line without a prefix, as rank 0 prints it; "" for any other line."""
    match = _VERSION.search(text)
    return match[1] if match else ""
