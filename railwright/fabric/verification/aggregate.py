"""Collects the lines of logs, in any order and of any number of pods, into one record for each process.

Assigns lines to processes, processes to pods, and ranks to processes. Records hold sets and counts only, so the order
of lines does not matter. Draws no conclusions: see `assess`.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from railwright.fabric.verification import line_parser, log_types, patterns


class ProcessKey(NamedTuple):
    """Identifies a process in the logs."""

    tag: str  # pod name in kubectl's prefix, otherwise the name of the file
    host: str
    pid: int


class Process:
    """Everything the logs contain about one process, or about all processes of a pod that cannot be told apart."""

    def __init__(self) -> None:
        self.networks: set[str] = set()
        self.lists: set[tuple[tuple[log_types.Hca, ...], ...]] = set()
        self.virtual: dict[int, tuple[str, ...]] = {}
        self.providers: set[log_types.Provider] = set()
        self.channels: Counter[log_types.Channel] = Counter()
        self.members: set[log_types.Member] = set()
        self.ranks: set[int] = set()  # in the world communicator, from the tags of mpirun and the table of nccl-tests
        self.interfaces: set[str] = set()
        self.reasons: set[str] = set()
        self.failures: set[str] = set()

    def record(self, event: log_types.Event) -> None:  # noqa: C901 - one case for each event
        """Record one event."""
        match event:
            case log_types.Network(name):
                self.networks.add(name)
            case log_types.Devices(devices):
                self.lists.add(devices)
            case log_types.Virtual(number, names):
                self.virtual[number] = max(names, self.virtual.get(number, ()))
            case log_types.Provider():
                self.providers.add(event)
            case log_types.Channel():
                self.channels[event] += 1
            case log_types.Member():
                self.members.add(event)
            case log_types.Sockets(interfaces):
                self.interfaces.update(interfaces)
            case log_types.RdmaUnavailable(text):
                self.reasons.add(text)
            case log_types.Failure(text):
                self.failures.add(text)
            case log_types.Release():
                pass

    @property
    def devices(self) -> tuple[tuple[log_types.Hca, ...], ...]:
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


class LogSummary(NamedTuple):
    """The content of all logs together."""

    pods: Mapping[str, tuple[Process, ...]]  # by pod name; only pods with any line about the network
    world: int | None  # number of ranks in the largest communicator
    versions: tuple[str, ...]
    busbw_average: float | None  # GB/s
    busbw_peak: float | None  # GB/s
    wrong_results: int  # as nccl-tests counts them
    has_info_lines: bool  # NCCL logged anything at level INFO
    has_lines: bool  # there is any line


def collect(logs: Iterable[tuple[str, Iterable[str]]]) -> LogSummary:
    """Read logs as (name, lines). The name stands for the pod where the lines do not name one."""
    processes: dict[ProcessKey, Process] = defaultdict(Process)
    rank_table: set[patterns.RankRow] = set()
    versions, averages, peaks, wrong_results, has_info_lines = set[str](), list[float](), list[float](), 0, False
    has_lines = False
    for source, log in logs:
        for line in log:
            has_lines = True
            for message in line_parser.parse(line):
                if not message.level:
                    versions.update(filter(None, [patterns.parse_version(message.text)]))
                    averages += _convert_to_list(patterns.parse_average(message.text))
                    peaks += _convert_to_list(patterns.parse_peak(message.text))
                    wrong_results += patterns.parse_wrong_results(message.text)
                    rank_table.update(filter(None, [patterns.parse_rank(message.text)]))
                    continue
                has_info_lines = has_info_lines or message.level == "INFO"
                tag = message.tag or ("" if message.host else source)
                process = processes[ProcessKey(tag, message.host, message.pid)]
                if message.rank >= 0:
                    process.ranks.add(message.rank)
                event = patterns.parse_event(message.text, message.level)
                if event is not None:
                    process.record(event)
                if isinstance(event, log_types.Release):
                    versions.add(event.version)
    _assign_ranks(processes, rank_table)
    return LogSummary(
        pods=_group_by_pod(processes),
        world=_count_ranks(processes, rank_table),
        versions=tuple(sorted(versions)),
        busbw_average=min(averages, default=None),
        busbw_peak=max(peaks, default=None),
        wrong_results=wrong_results,
        has_info_lines=has_info_lines,
        has_lines=has_lines,
    )


def is_relevant(line: str) -> bool:
    """True for messages of NCCL about the network, and for results of nccl-tests: what `collect` reads."""
    for message in line_parser.parse(line):
        if message.level:
            return True
        if (
            patterns.parse_version(message.text)
            or patterns.parse_rank(message.text)
            or patterns.parse_average(message.text) is not None
            or patterns.parse_peak(message.text) is not None
            or patterns.parse_wrong_results(message.text)
        ):
            return True
    return False


def _convert_to_list(number: float | None) -> list[float]:
    return [] if number is None else [number]


def _assign_ranks(processes: Mapping[ProcessKey, Process], rank_table: Iterable[patterns.RankRow]) -> None:
    """Add the ranks in the table of nccl-tests to their processes."""
    by_process = defaultdict(list)
    for key, process in processes.items():
        by_process[key.host, key.pid].append(process)
    for row in rank_table:
        for process in by_process[row.host, row.pid]:
            process.ranks.add(row.rank)


def _count_ranks(processes: Mapping[ProcessKey, Process], rank_table: Iterable[patterns.RankRow]) -> int | None:
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
