"""NCCL's own words -> events: a table, a row for each form a line has had over the releases.

Owns the wording (NVIDIA/nccl src/transport/net_ib, net_socket, net.cc, src/init.cc 2.4 to 2.32; aws/aws-ofi-nccl;
Mellanox/nccl-rdma-sharp-plugins). Knows no prefix and draws no conclusion: `Bootstrap : Using` and `; OOB` say nothing
of the data's way and are read over, and so is `NET/Socket : Using`, which NCCL says beside RDMA as well.
"""

import re
from collections.abc import Callable, Iterator

from fabric.verification import model

_PORT = re.compile(r"([\w.+-]+):(\d+)/(IB|RoCE)\b")
_DEVICE = re.compile(r"\[\d+\](?:=?\{(?P<merged>[^}]*)\}|(?P<one>[\w.+-]+:\d+/(?:IB|RoCE)\b))")
_INTERFACE = re.compile(r"\[\d+\]([^\s:\[]+):")
_RANKS = re.compile(r"(\d+)(?:\[\w+\])? -> (\d+)(?:\[\w+\])?(?: \[(send|receive)\])?")


def _devices(found: re.Match[str]) -> model.Devices:
    listed = found["list"].partition("; OOB")[0]
    return model.Devices(
        devices=tuple(
            tuple(model.Hca(name, int(port), link) for name, port, link in _PORT.findall(each[0]))
            for each in _DEVICE.finditer(listed)
        )
    )


def _channel(found: re.Match[str]) -> model.Channel:
    rank = -1
    if ends := _RANKS.search(found["ends"]):
        rank = {"send": int(ends[1]), "receive": int(ends[2])}.get(ends[3] or "", -1)
    return model.Channel(
        network=found["network"],
        device=int(found["device"]),
        direct="/GDRDMA" in found["rest"],
        collective=bool(found["collective"]),
        rank=rank,
    )


def _virtual(found: re.Match[str]) -> model.Virtual:
    return model.Virtual(number=int(found["number"]), names=tuple(found["names"].split("+")))


def _no_device(found: re.Match[str]) -> model.Reason:
    return model.Reason(f"NET/{found['family']} found no device")


_FORMS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], model.Event]], ...] = (
    (re.compile(r"^Using network (?P<name>\S.*)$"), lambda found: model.Network(found["name"].strip())),
    (re.compile(r"^NET/(?!Socket)[\w ]+? ?: Using +(?P<list>\[.*)$"), _devices),
    (
        re.compile(r"^(?P<ends>.*)\bvia (?P<collective>COLL)?NET/(?P<network>.+?)/(?P<device>\d+)(?P<rest>.*)$"),
        _channel,
    ),
    (re.compile(r"^NET/\w+ ?: Made virtual device \[(?P<number>\d+)\] name=(?P<names>\S+)"), _virtual),
    (
        re.compile(r"^NET/OFI Selected [Pp]rovider is (?P<name>[^\s,;]+)(?:.*\(found (?P<nics>\d+) nics?\))?"),
        lambda found: model.Provider(found["name"], int(found["nics"] or 0)),
    ),
    (
        re.compile(r"\brank (?P<rank>\d+) n[rR]anks (?P<ranks>\d+)\b"),
        lambda found: model.Member(int(found["rank"]), int(found["ranks"])),
    ),
    (
        re.compile(r"^NET/Socket ?: Using (?P<list>.*)$"),
        lambda found: model.Sockets(tuple(_INTERFACE.findall(found["list"]))),
    ),
    (re.compile(r"^NET/(?P<family>\w+) ?: No device found"), _no_device),
    (
        re.compile(r"^(?P<name>NCCL_IB(?:EXT)?_DISABLE) set by environment to (?P<value>[1-9]\d*)"),
        lambda found: model.Reason(f"{found['name']}={found['value']} is set"),
    ),
    (
        re.compile(r"(?:Failed to open|[Cc]ould not open|Unable to open|cannot open) (?P<file>libibverbs\S*)"),
        lambda found: model.Reason(f"{found['file'].rstrip(',.;:')} is not in the image"),
    ),
    (
        re.compile(r"(?P<file>libibverbs\S*?): cannot open shared object"),
        lambda found: model.Reason(f"{found['file']} is not in the image"),
    ),
    (
        re.compile(r"NET/OFI .*(?:fi_getinfo\(?\)? call failed|Could not find any optimal provider).*"),
        lambda found: model.Reason(f"libfabric has no provider: {found[0]}"),
    ),
    (re.compile(r"^NCCL version (?P<version>[\d.]+)"), lambda found: model.Release(found["version"])),
)
# Broken connections (knowledge: NVIDIA/nccl#1814, #1052, NVIDIA/nccl-tests#185): RDMA was chosen and did not work.
_BROKEN = re.compile(
    r"NET/IB ?: Got (?:completion|async|fatal)|Call to ibv_\w+ (?:failed|timed)|NET/OFI .*completed with error"
)


def read(text: str, level: str) -> Iterator[model.Event]:
    """The events of one text of NCCL's: none, or one."""
    if level == "WARN" and _BROKEN.search(text):
        yield model.Failure(text)
        return
    for pattern, make in _FORMS:
        if found := pattern.search(text):
            yield make(found)
            return


# --- nccl-tests -------------------------------------------------------------------------------------------

_TABLE = re.compile(r"#\s+Rank\s+(\d+)(?:\s+Group\s+\d+)?\s+Pid\s+(\d+) on\s+([\w.-]+) device")
_AVERAGE = re.compile(r"#\s*Avg bus bandwidth\s*:\s*([\d.]+)")
_WRONG = re.compile(r"#\s*Out of bounds values\s*:\s*([1-9]\d*) FAILED")
_NUMBER = r"([\d.]+)"
_ROW = re.compile(
    rf"(?:^|\s)\d+\s+\d+\s+\w+\s+\w+\s+-?\d+\s+{_NUMBER}\s+{_NUMBER}\s+{_NUMBER}\s+\S+\s+{_NUMBER}\s+{_NUMBER}\s+{_NUMBER}\s"
)
_VERSION = re.compile(r"^(?:\S+\s+)*?NCCL version ([\d.]+)")


def rank_of(text: str) -> tuple[int, int, str] | None:
    """(rank, pid, host) of a row of the table of devices."""
    found = _TABLE.search(text)
    return (int(found[1]), int(found[2]), found[3].partition(".")[0]) if found else None


def average(text: str) -> float | None:
    """The mean bus bandwidth, GB/s."""
    found = _AVERAGE.search(text)
    return float(found[1]) if found and found[1].count(".") < 2 else None


def peak(text: str) -> float | None:
    """The better bus bandwidth of a row, GB/s."""
    found = _ROW.search(text)
    try:
        return max(float(found[3]), float(found[6])) if found else None
    except ValueError:
        return None


def wrong(text: str) -> int:
    """How many results were wrong."""
    found = _WRONG.search(text)
    return int(found[1]) if found else 0


def version(text: str) -> str:
    """NCCL's release where it prints it without a prefix, as it does for the first process."""
    found = _VERSION.search(text)
    return found[1] if found else ""
