"""Lines of a log, in any order and of any number of pods -> what is known of each process.

Owns who is who: which process a line is of, which pod a process is in, which rank it is. Everything is a set or a
count, so that the order of lines decides nothing. Draws no conclusion.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fabric.verification import forms, lines, model


class Key(NamedTuple):
    """A process."""

    tag: str  # the pod that kubectl names, else the file's name
    host: str
    pid: int


class Process:
    """All that was heard of one process, or of all processes of a pod."""

    def __init__(self) -> None:
        self.networks: set[str] = set()
        self.lists: set[tuple[tuple[model.Hca, ...], ...]] = set()
        self.virtual: dict[int, tuple[str, ...]] = {}
        self.providers: set[model.Provider] = set()
        self.channels: Counter[model.Channel] = Counter()
        self.members: set[model.Member] = set()
        self.ranks: set[int] = set()  # of the whole job: from mpirun and nccl-tests
        self.interfaces: set[str] = set()
        self.reasons: set[str] = set()
        self.failures: set[str] = set()

    def hear(self, event: model.Event) -> None:  # noqa: C901 - a case an event
        """Remember one event."""
        match event:
            case model.Network(name):
                self.networks.add(name)
            case model.Devices(devices):
                self.lists.add(devices)
            case model.Virtual(number, names):
                self.virtual[number] = max(names, self.virtual.get(number, ()))
            case model.Provider():
                self.providers.add(event)
            case model.Channel():
                self.channels[event] += 1
            case model.Member():
                self.members.add(event)
            case model.Sockets(interfaces):
                self.interfaces.update(interfaces)
            case model.Reason(words):
                self.reasons.add(words)
            case model.Failure(words):
                self.failures.add(words)
            case model.Release():
                pass

    @property
    def devices(self) -> tuple[tuple[model.Hca, ...], ...]:
        """The device list: the longest, where a plugin and NCCL itself each printed theirs."""
        return max(self.lists, key=lambda each: (len(each), each), default=())

    @property
    def chosen(self) -> set[str]:
        """The networks it is known to use; releases before 2.6 tell only by their channels."""
        return self.networks or {each.network for each in self.channels if not each.collective}

    def ranks_of(self, world: int | None) -> set[int]:
        """Its ranks in the communicator of all; smaller ones number theirs anew."""
        own = {each.rank for each in self.members if each.ranks == world}
        if own or self.ranks:
            return own | self.ranks
        return {each.rank for each in self.channels if each.rank >= 0}


class Heard(NamedTuple):
    """The whole log."""

    pods: Mapping[str, tuple[Process, ...]]  # by name, those that told anything of the network
    world: int | None  # ranks of the largest communicator
    versions: tuple[str, ...]
    average: float | None
    peak: float | None
    wrong: int
    spoke: bool  # NCCL said anything at INFO


def hear(logs: Iterable[tuple[str, Iterable[str]]]) -> Heard:
    """Read logs, each with a name that stands for its pod where its lines name none."""
    found: dict[Key, Process] = defaultdict(Process)
    table: set[tuple[int, int, str]] = set()
    versions, averages, peaks, wrong, spoke = set[str](), list[float](), list[float](), 0, False
    for source, log in logs:
        for line in log:
            for said in lines.read(line):
                if not said.level:
                    versions.update(filter(None, [forms.version(said.text)]))
                    averages += _told(forms.average(said.text))
                    peaks += _told(forms.peak(said.text))
                    wrong += forms.wrong(said.text)
                    table.update(filter(None, [forms.rank_of(said.text)]))
                    continue
                spoke = spoke or said.level == "INFO"
                process = found[Key(said.tag or ("" if said.host else source), said.host, said.pid)]
                if said.rank >= 0:
                    process.ranks.add(said.rank)
                for event in forms.read(said.text, said.level):
                    process.hear(event)
                    if isinstance(event, model.Release):
                        versions.add(event.version)
    _seat(found, table)
    return Heard(
        pods=_pods(found),
        world=_world(found, table),
        versions=tuple(sorted(versions)),
        average=min(averages, default=None),
        peak=max(peaks, default=None),
        wrong=wrong,
        spoke=spoke,
    )


def _told(number: float | None) -> list[float]:
    return [] if number is None else [number]


def _seat(found: Mapping[Key, Process], table: Iterable[tuple[int, int, str]]) -> None:
    """Give the ranks of nccl-tests' table to the processes they are of."""
    by_process = defaultdict(list)
    for key, process in found.items():
        by_process[key.host, key.pid].append(process)
    for rank, pid, host in table:
        for process in by_process[host, pid]:
            process.ranks.add(rank)


def _world(found: Mapping[Key, Process], table: Iterable[tuple[int, int, str]]) -> int | None:
    told = [each.ranks for process in found.values() for each in process.members]
    told += [rank + 1 for rank, _, _ in table]
    told += [rank + 1 for process in found.values() for rank in process.ranks]
    return max(told, default=None)


def _pods(found: Mapping[Key, Process]) -> Mapping[str, tuple[Process, ...]]:
    """The name kubectl gives a pod where all its lines are of one host; a launcher's log holds those of many."""
    hosts: dict[str, set[str]] = defaultdict(set)
    for key in found:
        hosts[key.tag].add(key.host)
    pods: dict[str, list[Process]] = defaultdict(list)
    for key in sorted(found):
        own = key.tag and len(hosts[key.tag]) == 1
        pods[key.tag if own or not key.host else key.host].append(found[key])
    return {name: tuple(each) for name, each in sorted(pods.items()) if any(map(_tells, each))}


def _tells(process: Process) -> bool:
    return bool(process.networks or process.channels or process.lists or process.members or process.reasons)
