"""Reads the lines of NCCL's logs, in any order and of any number of pods, into one record for each process.

Splits a line into its source (pod, host, process) and the text of NCCL, parses the text by a table of patterns, and
assigns processes to pods. Records hold sets and counts only, so the order of lines does not matter. Draws
no conclusions: see `report`.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

_COLOURS = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")
# A line may be long, and its author is not its reader: no pattern may look at a part of it more often than a fixed
# number of times. So what can begin anywhere has a bounded length, or begins only where the text before it ends.
_KUBECTL = re.compile(r"\[pod/([^/\]\s]{1,253})/[^\]\s]{1,63}\]")  # kubectl logs --prefix
# HOST:PID:TID [DEVICE] (FILE:LINE) NCCL LEVEL TEXT (NVIDIA/nccl src/debug.cc)
_NCCL_MESSAGE = re.compile(
    r"(?:(?<![\w.-])[.-]*(?P<host>\w[\w.-]*):(?P<pid>\d{1,10}):\d{1,20} \[-?\d{1,9}\] (?:[^\[]{0,200}?))?"
    r"\bNCCL (?P<level>INFO|WARN|ATTN|TRACE|ABORT|CALL) "
)


class Message(NamedTuple):
    """One message of one process. Empty strings and -1 mean unknown."""

    tag: str  # pod name in the prefix of `kubectl logs --prefix`
    host: str
    pid: int
    level: str  # NCCL's log level
    text: str


def parse_line(line: str) -> Iterator[Message]:
    """Yield NCCL's messages in a line. Processes that write at the same moment can share one line."""
    plain = _COLOURS.sub("", line)
    tag = match.group(1) if (match := _KUBECTL.search(plain)) else ""
    headers = list(_NCCL_MESSAGE.finditer(plain)) if "NCCL " in plain else []
    for header, end in zip(headers, [*(header.start() for header in headers[1:]), len(plain)], strict=False):
        text = plain[header.end() : end].strip()
        yield Message(tag, header["host"] or "", int(header["pid"] or -1), header["level"], text)


class Port(NamedTuple):
    """One port of an RDMA device, as NCCL lists it."""

    name: str
    number: int
    link: str  # IB or RoCE


Devices = tuple[tuple[Port, ...], ...]
"""Ports by NCCL's device number; several ports where NCCL merges them."""


class Channel(NamedTuple):
    """A connection of NCCL to another node, and the number of the device that carries it."""

    device: int
    direct: bool  # GPUDirect RDMA


class Process:
    """Everything the logs contain about one process, or about all processes of a pod that cannot be told apart."""

    def __init__(self) -> None:
        self.networks: set[str] = set()  # that it uses for all traffic between nodes
        self.lists: set[Devices] = set()
        self.virtual: dict[int, tuple[str, ...]] = {}  # devices that are made of several
        self.providers: set[tuple[str, int]] = set()  # of libfabric, with the number of NICs, 0 if it is unknown
        self.channels: Counter[Channel] = Counter()
        self.members: set[tuple[int, int]] = set()  # rank and number of ranks in each communicator
        self.interfaces: set[str] = set()  # that TCP would use
        self.reasons: set[str] = set()  # why RDMA is not available
        self.failures: set[str] = set()  # of RDMA after it was set up

    def record_message(self, text: str, level: str) -> None:
        """Add the networks, devices, channels and errors that a message of NCCL names."""
        if level == "WARN" and _RDMA_ERROR.search(text):
            self.failures.add(text)
            return
        for pattern, record in _PATTERNS:
            if match := pattern.search(text):
                record(self, match)
                return

    @property
    def devices(self) -> Devices:
        """Return the longest device list: a plugin and NCCL itself can each print one."""
        return max(self.lists, key=lambda devices: (len(devices), devices), default=())


_PORT = re.compile(r"(?<![\w.+-])([\w.+-]+):(\d{1,9})/(IB|RoCE)\b")
_DEVICE = re.compile(r"\[\d+\](?:=?\{(?P<merged>[^}]{0,1000})\}|(?P<one>[\w.+-]+:\d{1,9}/(?:IB|RoCE)\b))")
_INTERFACE = re.compile(r"\[\d+\]([^\s:\[]+):")


def _record_devices(process: Process, match: re.Match[str]) -> None:
    entries = [_PORT.findall(entry[0]) for entry in _DEVICE.finditer(match["list"].partition("; OOB")[0])]
    process.lists.add(tuple(tuple(Port(name, int(number), link) for name, number, link in ports) for ports in entries))


def _record_channel(process: Process, match: re.Match[str]) -> None:
    process.channels[Channel(int(match["device"]), "/GDRDMA" in match["rest"])] += 1
    if not match["collective"]:  # otherwise the network is that of a plugin for reductions in the switches
        process.networks.add(match["network"])  # an excerpt of a log may lack the line that NCCL writes at its start


def _record_virtual_device(process: Process, match: re.Match[str]) -> None:
    number, names = int(match["number"]), tuple(match["names"].split("+"))
    process.virtual[number] = max(names, process.virtual.get(number, ()))


def _build_recorder(field: str, value: str) -> Callable[[Process, re.Match[str]], None]:
    """Return a function that fills the text `value` from a match, and adds it to a set (`field`) of a process."""
    return lambda process, match: getattr(process, field).add(value.format(match[0], **match.groupdict()))


# One row for each form that a message has had over the releases: NVIDIA/nccl (src/transport/net_ib, net_socket, net.cc,
# src/init.cc, releases 2.6 to 2.32), aws/aws-ofi-nccl and Mellanox/nccl-rdma-sharp-plugins. `Bootstrap : Using` and
# `; OOB` are ignored because they do not describe the data path. `NET/Socket : Using` is no sign of TCP: NCCL prints it
# next to RDMA as well.
_PATTERNS: tuple[tuple[re.Pattern[str], Callable[[Process, re.Match[str]], None]], ...] = (
    (re.compile(r"^Using network (?P<name>\S(?:.*\S)?)"), _build_recorder("networks", "{name}")),
    (re.compile(r"^NET/(?!Socket)[\w ]+? ?: Using +(?P<list>\[.*)$"), _record_devices),
    (
        re.compile(r"\bvia (?P<collective>COLL)?NET/(?P<network>.{1,100}?)/(?P<device>\d{1,9})(?P<rest>.*)$"),
        _record_channel,
    ),
    (
        re.compile(r"^NET/\w+ ?: Made virtual device \[(?P<number>\d{1,9})\] name=(?P<names>\S+)"),
        _record_virtual_device,
    ),
    (
        re.compile(r"^NET/OFI Selected [Pp]rovider is (?P<name>[^\s,;]+)(?:.*\(found (?P<nics>\d{1,9}) nics?\))?"),
        lambda process, match: process.providers.add((match["name"], int(match["nics"] or 0))),
    ),
    (
        re.compile(r"\brank (?P<rank>\d{1,6}) n[rR]anks (?P<ranks>\d{1,6})\b"),
        lambda process, match: process.members.add((int(match["rank"]), int(match["ranks"]))),
    ),
    (
        re.compile(r"^NET/Socket ?: Using (?P<list>.*)$"),
        lambda process, match: process.interfaces.update(_INTERFACE.findall(match["list"])),
    ),
    (
        re.compile(r"^NET/(?P<family>\w+) ?: No device found"),
        _build_recorder("reasons", "NET/{family} found no device"),
    ),
    (
        re.compile(r"^(?P<name>NCCL_IB(?:EXT)?_DISABLE) set by environment to (?P<value>[1-9]\d*)"),
        _build_recorder("reasons", "{name}={value} is set"),
    ),
    (
        re.compile(
            r"(?:Failed to open|[Cc]ould not open|Unable to open|cannot open) "
            r"(?P<file>libibverbs\S{0,200}?)[,.;:]{0,4}(?!\S)"
        ),
        _build_recorder("reasons", "{file} is not in the image"),
    ),
    (
        re.compile(r"(?P<file>libibverbs\S{0,200}?): cannot open shared object"),
        _build_recorder("reasons", "{file} is not in the image"),
    ),
    (
        re.compile(r"NET/OFI .{0,1000}?(?:fi_getinfo\(?\)? call failed|Could not find any optimal provider).*"),
        _build_recorder("reasons", "libfabric has no provider: {0}"),
    ),
)
# Broken connections: RDMA was chosen and failed (NVIDIA/nccl#1814, NVIDIA/nccl#1052, NVIDIA/nccl-tests#185).
_RDMA_ERROR = re.compile(
    r"NET/IB ?: Got (?:completion|async|fatal)|Call to ibv_\w+ (?:failed|timed)|NET/OFI .{0,1000}?completed with error"
)


class LogSummary(NamedTuple):
    """NCCL's messages in all logs of a job, by pod."""

    pods: Mapping[str, tuple[Process, ...]]  # by pod name; only pods with any line about the network
    world: int | None  # number of ranks in the largest communicator
    has_lines: bool  # there is any line


def collect_messages(logs: Iterable[tuple[str, Iterable[str]]]) -> LogSummary:
    """Return NCCL's messages in logs, each given as (pod name, lines). Lines that name no pod are from this pod."""
    processes: dict[tuple[str, str, int], Process] = defaultdict(Process)
    has_lines = False
    for source, log in logs:
        for line in log:
            has_lines = True
            for message in parse_line(line):
                tag = message.tag or ("" if message.host else source)
                processes[tag, message.host, message.pid].record_message(message.text, message.level)
    return LogSummary(
        pods=_group_by_pod(processes),
        world=max((ranks for process in processes.values() for _, ranks in process.members), default=None),
        has_lines=has_lines,
    )


def is_relevant(line: str) -> bool:
    """True for messages of NCCL, which `collect_messages` reads."""
    return any(parse_line(line))


def _group_by_pod(processes: Mapping[tuple[str, str, int], Process]) -> Mapping[str, tuple[Process, ...]]:
    """Group processes by pod. kubectl's pod name counts only where all its lines come from one host.

    The log of an mpirun launcher holds the lines of many hosts; those processes are grouped by host.
    """
    hosts: dict[str, set[str]] = defaultdict(set)
    for tag, host, _ in processes:
        hosts[tag].add(host)
    pods: dict[str, list[Process]] = defaultdict(list)
    for (tag, host, _), process in sorted(processes.items(), key=lambda item: item[0]):
        pods[tag if (tag and len(hosts[tag]) == 1) or not host else host].append(process)
    return {
        name: tuple(members)
        for name, members in sorted(pods.items())
        if any(one.networks or one.channels or one.lists or one.members or one.reasons for one in members)
    }
