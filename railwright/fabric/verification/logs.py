"""Reads the lines of logs, in any order and of any number of pods, into one record for each process.

Splits a line into its source (pod, host, process, rank) and the text of NCCL or of the program, reads what the text
says by a table of forms, and assigns lines to processes, processes to pods, and ranks to processes. Records hold sets
and counts only, so the order of lines does not matter. Draws no conclusions: see `assess`.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

# --- lines ------------------------------------------------------------------------------------------------

_COLOURS = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")
_KUBECTL = re.compile(r"\[pod/([^/\]\s]+)/[^\]\s]+\]")  # kubectl logs --prefix
_MPIRUN = re.compile(r"\[[^\]\s]*,(\d+)\]<std(?:out|err)>:")  # mpirun --tag-output: [job,rank]
# HOST:PID:TID [DEVICE] (FILE:LINE) NCCL LEVEL TEXT (NVIDIA/nccl src/debug.cc)
_NCCL_MESSAGE = re.compile(
    r"(?:(?P<host>[\w][\w.-]*):(?P<pid>\d+):\d+ \[-?\d+\] (?:[^\[]{0,200}?))?"
    r"\bNCCL (?P<level>INFO|WARN|ATTN|TRACE|ABORT|CALL) "
)


class LogLine(NamedTuple):
    """One message of one process. Empty strings and -1 mean unknown."""

    tag: str  # pod name in the prefix of `kubectl logs --prefix`
    host: str
    pid: int
    rank: int  # in the tag of `mpirun --tag-output`
    level: str  # NCCL's log level; "" for text of the program itself
    text: str


def parse_line(line: str) -> Iterator[LogLine]:
    """Yield the messages of a line. Processes that write at the same moment can share one line."""
    plain = _COLOURS.sub("", line)
    tag = match.group(1) if (match := _KUBECTL.search(plain)) else ""
    rank = int(match.group(1)) if (match := _MPIRUN.search(plain)) else -1
    headers = list(_NCCL_MESSAGE.finditer(plain)) if "NCCL " in plain else []
    if not headers:
        yield LogLine(tag, "", -1, rank, "", plain.strip())
    for index, header in enumerate(headers):
        end = headers[index + 1].start() if index + 1 < len(headers) else len(plain)
        host, pid = header["host"] or "", int(header["pid"] or -1)
        yield LogLine(
            tag, host, pid, rank if len(headers) == 1 else -1, header["level"], plain[header.end() : end].strip()
        )


# --- what the lines say -----------------------------------------------------------------------------------


class Hca(NamedTuple):
    """One port of an RDMA device, as NCCL lists it."""

    name: str
    port: int
    link: str  # IB or RoCE


Devices = tuple[tuple[Hca, ...], ...]
"""Ports by NCCL's device number; several ports where NCCL merges them."""


class Provider(NamedTuple):
    """A provider of libfabric. `nics` is 0 if the line has no number."""

    name: str
    nics: int


class Channel(NamedTuple):
    """A connection to another node. `rank` is the writer's, -1 if unknown."""

    network: str
    device: int
    direct: bool  # GPUDirect RDMA
    collective: bool  # COLLNET, reduced in the switches; the network is then the plugin's name
    rank: int


class Member(NamedTuple):
    """The rank of a process in a communicator of `ranks` ranks."""

    rank: int
    ranks: int


class Process:
    """Everything the logs contain about one process, or about all processes of a pod that cannot be told apart."""

    def __init__(self) -> None:
        self.networks: set[str] = set()  # that it uses for all traffic between nodes
        self.lists: set[Devices] = set()
        self.virtual: dict[int, tuple[str, ...]] = {}  # devices that are made of several
        self.providers: set[Provider] = set()
        self.channels: Counter[Channel] = Counter()
        self.members: set[Member] = set()
        self.ranks: set[int] = set()  # in the world communicator, from the tags of mpirun and the table of nccl-tests
        self.interfaces: set[str] = set()  # that TCP would use
        self.reasons: set[str] = set()  # why RDMA is not available
        self.failures: set[str] = set()  # of RDMA after it was set up
        self.versions: set[str] = set()

    def record(self, text: str, level: str) -> None:
        """Record what a message of NCCL says."""
        if level == "WARN" and _BROKEN.search(text):
            self.failures.add(text)
            return
        for pattern, record in _FORMS:
            if match := pattern.search(text):
                record(self, match)
                return

    @property
    def devices(self) -> Devices:
        """Return the longest device list: a plugin and NCCL itself can each print one."""
        return max(self.lists, key=lambda devices: (len(devices), devices), default=())

    @property
    def chosen_networks(self) -> set[str]:
        """Return the networks in use. NCCL before 2.6 names them only in its channels."""
        return self.networks or {channel.network for channel in self.channels if not channel.collective}

    def list_world_ranks(self, world: int | None) -> set[int]:
        """Return the ranks in the world communicator. Sub-communicators renumber ranks and are ignored."""
        member_ranks = {member.rank for member in self.members if member.ranks == world}
        if member_ranks or self.ranks:
            return member_ranks | self.ranks
        return {channel.rank for channel in self.channels if channel.rank >= 0}


_PORT = re.compile(r"([\w.+-]+):(\d+)/(IB|RoCE)\b")
_DEVICE = re.compile(r"\[\d+\](?:=?\{(?P<merged>[^}]*)\}|(?P<one>[\w.+-]+:\d+/(?:IB|RoCE)\b))")
_INTERFACE = re.compile(r"\[\d+\]([^\s:\[]+):")
_RANKS = re.compile(r"(\d+)(?:\[\w+\])? -> (\d+)(?:\[\w+\])?(?: \[(send|receive)\])?")


def _record_devices(process: Process, match: re.Match[str]) -> None:
    device_list = match["list"].partition("; OOB")[0]
    entries = [_PORT.findall(entry[0]) for entry in _DEVICE.finditer(device_list)]
    process.lists.add(tuple(tuple(Hca(name, int(port), link) for name, port, link in ports) for ports in entries))


def _record_channel(process: Process, match: re.Match[str]) -> None:
    rank = -1
    if ends := _RANKS.search(match["ends"]):
        rank = {"send": int(ends[1]), "receive": int(ends[2])}.get(ends[3] or "", -1)
    is_direct, is_collective = "/GDRDMA" in match["rest"], bool(match["collective"])
    process.channels[Channel(match["network"], int(match["device"]), is_direct, is_collective, rank)] += 1


def _record_virtual_device(process: Process, match: re.Match[str]) -> None:
    number, names = int(match["number"]), tuple(match["names"].split("+"))
    process.virtual[number] = max(names, process.virtual.get(number, ()))


def _give_reason(template: str) -> Callable[[Process, re.Match[str]], None]:
    """Return the function that records a reason, with the groups of the match in its text."""
    return lambda process, match: process.reasons.add(template.format(match[0], **match.groupdict()))


# One row for each form that a message has had over the releases: NVIDIA/nccl (src/transport/net_ib, net_socket, net.cc,
# src/init.cc, releases 2.4 to 2.32), aws/aws-ofi-nccl and Mellanox/nccl-rdma-sharp-plugins. `Bootstrap : Using` and
# `; OOB` are ignored because they do not describe the data path. `NET/Socket : Using` is no sign of TCP: NCCL prints it
# next to RDMA as well.
_FORMS: tuple[tuple[re.Pattern[str], Callable[[Process, re.Match[str]], None]], ...] = (
    (re.compile(r"^Using network (?P<name>\S.*)$"), lambda process, match: process.networks.add(match["name"].strip())),
    (re.compile(r"^NET/(?!Socket)[\w ]+? ?: Using +(?P<list>\[.*)$"), _record_devices),
    (
        re.compile(r"^(?P<ends>.*)\bvia (?P<collective>COLL)?NET/(?P<network>.+?)/(?P<device>\d+)(?P<rest>.*)$"),
        _record_channel,
    ),
    (re.compile(r"^NET/\w+ ?: Made virtual device \[(?P<number>\d+)\] name=(?P<names>\S+)"), _record_virtual_device),
    (
        re.compile(r"^NET/OFI Selected [Pp]rovider is (?P<name>[^\s,;]+)(?:.*\(found (?P<nics>\d+) nics?\))?"),
        lambda process, match: process.providers.add(Provider(match["name"], int(match["nics"] or 0))),
    ),
    (
        re.compile(r"\brank (?P<rank>\d+) n[rR]anks (?P<ranks>\d+)\b"),
        lambda process, match: process.members.add(Member(int(match["rank"]), int(match["ranks"]))),
    ),
    (
        re.compile(r"^NET/Socket ?: Using (?P<list>.*)$"),
        lambda process, match: process.interfaces.update(_INTERFACE.findall(match["list"])),
    ),
    (re.compile(r"^NET/(?P<family>\w+) ?: No device found"), _give_reason("NET/{family} found no device")),
    (
        re.compile(r"^(?P<name>NCCL_IB(?:EXT)?_DISABLE) set by environment to (?P<value>[1-9]\d*)"),
        _give_reason("{name}={value} is set"),
    ),
    (
        re.compile(
            r"(?:Failed to open|[Cc]ould not open|Unable to open|cannot open) (?P<file>libibverbs\S*?)[,.;:]*(?!\S)"
        ),
        _give_reason("{file} is not in the image"),
    ),
    (re.compile(r"(?P<file>libibverbs\S*?): cannot open shared object"), _give_reason("{file} is not in the image")),
    (
        re.compile(r"NET/OFI .*(?:fi_getinfo\(?\)? call failed|Could not find any optimal provider).*"),
        _give_reason("libfabric has no provider: {0}"),
    ),
    (re.compile(r"^NCCL version (?P<version>[\d.]+)"), lambda process, match: process.versions.add(match["version"])),
)
# Broken connections: RDMA was chosen and failed (NVIDIA/nccl#1814, NVIDIA/nccl#1052, NVIDIA/nccl-tests#185).
_BROKEN = re.compile(
    r"NET/IB ?: Got (?:completion|async|fatal)|Call to ibv_\w+ (?:failed|timed)|NET/OFI .*completed with error"
)


# --- what nccl-tests prints -------------------------------------------------------------------------------


class RankRow(NamedTuple):
    """A row of the table of devices that nccl-tests prints."""

    rank: int
    pid: int
    host: str  # without its domain


class Results:
    """Collects what the program prints about the job as a whole. Bandwidths are in GB/s."""

    def __init__(self) -> None:
        self.versions: set[str] = set()
        self.averages: list[float] = []
        self.peaks: list[float] = []  # the higher one of each row (out of place, in place)
        self.wrong = 0
        self.ranks: set[RankRow] = set()

    def record(self, text: str) -> bool:
        """Record a line that is not NCCL's. Return False if it says nothing."""
        matches = [(match, record) for pattern, record in _RESULTS if (match := pattern.search(text))]
        for match, record in matches:
            record(self, match)
        return bool(matches)


def _record_wrong(results: Results, match: re.Match[str]) -> None:
    results.wrong += int(match[1])


_NUMBER = r"(\d+(?:\.\d*)?|\.\d+)"
_RESULTS: tuple[tuple[re.Pattern[str], Callable[[Results, re.Match[str]], None]], ...] = (
    # as rank 0 prints it, without a prefix
    (re.compile(r"^(?:\S+\s+)*?NCCL version ([\d.]+)"), lambda results, match: results.versions.add(match[1])),
    (
        re.compile(rf"#\s*Avg bus bandwidth\s*:\s*{_NUMBER}(?![\d.])"),
        lambda results, match: results.averages.append(float(match[1])),
    ),
    (
        re.compile(
            rf"(?:^|\s)\d+\s+\d+\s+\w+\s+\w+\s+-?\d+\s+{_NUMBER}\s+{_NUMBER}\s+{_NUMBER}\s+\S+\s+{_NUMBER}\s+{_NUMBER}\s+{_NUMBER}\s"
        ),
        lambda results, match: results.peaks.append(max(float(match[3]), float(match[6]))),
    ),
    (re.compile(r"#\s*Out of bounds values\s*:\s*([1-9]\d*) FAILED"), _record_wrong),
    (
        re.compile(r"#\s+Rank\s+(\d+)(?:\s+Group\s+\d+)?\s+Pid\s+(\d+) on\s+([\w.-]+) device"),
        lambda results, match: results.ranks.add(RankRow(int(match[1]), int(match[2]), match[3].partition(".")[0])),
    ),
)


# --- logs -------------------------------------------------------------------------------------------------


class ProcessKey(NamedTuple):
    """Identifies a process in the logs."""

    tag: str  # pod name in kubectl's prefix, otherwise the name of the file
    host: str
    pid: int


class LogSummary(NamedTuple):
    """The content of all logs together."""

    pods: Mapping[str, tuple[Process, ...]]  # by pod name; only pods with any line about the network
    world: int | None  # number of ranks in the largest communicator
    versions: tuple[str, ...]
    results: Results
    has_info_lines: bool  # NCCL logged anything at level INFO
    has_lines: bool  # there is any line


def collect(logs: Iterable[tuple[str, Iterable[str]]]) -> LogSummary:
    """Read logs as (name, lines). The name stands for the pod where the lines do not name one."""
    processes: dict[ProcessKey, Process] = defaultdict(Process)
    results, has_info_lines, has_lines = Results(), False, False
    for source, log in logs:
        for line in log:
            has_lines = True
            for message in parse_line(line):
                if not message.level:
                    results.record(message.text)
                    continue
                has_info_lines = has_info_lines or message.level == "INFO"
                tag = message.tag or ("" if message.host else source)
                process = processes[ProcessKey(tag, message.host, message.pid)]
                if message.rank >= 0:
                    process.ranks.add(message.rank)
                process.record(message.text, message.level)
    _assign_ranks(processes, results.ranks)
    versions = results.versions.union(*(process.versions for process in processes.values()))
    return LogSummary(
        pods=_group_by_pod(processes),
        world=_count_ranks(processes, results.ranks),
        versions=tuple(sorted(versions)),
        results=results,
        has_info_lines=has_info_lines,
        has_lines=has_lines,
    )


def is_relevant(line: str) -> bool:
    """True for messages of NCCL about the network, and for results of nccl-tests: what `collect` reads."""
    results = Results()
    return any(message.level or results.record(message.text) for message in parse_line(line))


def _assign_ranks(processes: Mapping[ProcessKey, Process], rank_table: Iterable[RankRow]) -> None:
    """Add the ranks in the table of nccl-tests to their processes."""
    by_process = defaultdict(list)
    for key, process in processes.items():
        by_process[key.host, key.pid].append(process)
    for row in rank_table:
        for process in by_process[row.host, row.pid]:
            process.ranks.add(row.rank)


def _count_ranks(processes: Mapping[ProcessKey, Process], rank_table: Iterable[RankRow]) -> int | None:
    counts = [member.ranks for process in processes.values() for member in process.members]
    counts += [row.rank + 1 for row in rank_table]
    counts += [rank + 1 for process in processes.values() for rank in process.ranks]
    return max(counts, default=None)


def _group_by_pod(processes: Mapping[ProcessKey, Process]) -> Mapping[str, tuple[Process, ...]]:
    """Group processes by pod. kubectl's pod name counts only where all its lines come from one host.

    The log of an mpirun launcher holds the lines of many hosts; those processes are grouped by host.
    """
    hosts: dict[str, set[str]] = defaultdict(set)
    for key in processes:
        hosts[key.tag].add(key.host)
    pods: dict[str, list[Process]] = defaultdict(list)
    for key in sorted(processes):
        has_one_host = key.tag and len(hosts[key.tag]) == 1
        pods[key.tag if has_one_host or not key.host else key.host].append(processes[key])
    return {name: tuple(members) for name, members in sorted(pods.items()) if any(map(_mentions_network, members))}


def _mentions_network(process: Process) -> bool:
    return bool(process.networks or process.channels or process.lists or process.members or process.reasons)
