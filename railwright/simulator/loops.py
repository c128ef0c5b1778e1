"""A run: jobs arrive, wait, are placed task by task as a scheduler does it, and end.

Owns time, the queue (in order of arrival; a job that does not fit is passed over and tried again whenever one ends) and
the gang rule (all or nothing: an incomplete gang is taken back). kube-scheduler is taken to have a gang plugin
(coscheduling) that admits a gang when the cluster has room for it, so that only its one-by-one placing differs.
"""

import heapq
from collections.abc import Callable, Iterable, Sequence

import msgspec

from railwright.simulator import choosers, kubelet, metrics, schedulers, sites, streams, world

Making = Callable[[world.World], choosers.Chooser]


def _silent(placed: int) -> None:
    """Nobody listens."""
    del placed


class Outcome(msgspec.Struct, frozen=True):
    """All that happened in a run."""

    placed: tuple[metrics.Placed, ...]
    refused: int  # jobs that the empty cluster cannot hold
    horizon: float  # seconds: the last arrival
    busy: float  # GPU seconds used until then
    gpus: int

    @property
    def summary(self) -> metrics.Summary:
        """The run in figures."""
        return metrics.summary(self.placed, horizon=self.horizon, busy=self.busy, gpus=self.gpus)


class _Running(msgspec.Struct, frozen=True):
    job: streams.Job
    hosts: tuple[int, ...]
    grants: tuple[kubelet.Grant, ...]


class Run:
    """One run of a stream on a site; `tell` hears how many jobs have been placed."""

    def __init__(
        self,
        site: sites.Site,
        make: Making,
        settings: schedulers.Settings,
        tell: Callable[[int], None] = _silent,
    ) -> None:
        self.world = world.World(site)
        self.chooser = make(self.world)
        self._scheduler = schedulers.Scheduler(self.world, settings)
        self._tell = tell
        self._ending: list[tuple[float, int]] = []
        self._running: dict[int, _Running] = {}
        self._waiting: dict[int, streams.Job] = {}
        self._placed: list[metrics.Placed] = []

    def play(self, jobs: Iterable[streams.Job]) -> Outcome:
        """Until every job that can run has been placed."""
        refused, last = 0, 0.0
        for job in jobs:
            self._pass(job.arrival)
            last = job.arrival
            if self.world.book(self._demand(job)).capacity < job.pods:
                refused += 1
                continue
            self.chooser.submitted(job)
            self._waiting[job.number] = job
            self._try(job, job.arrival)
        self._pass(float("inf"))
        busy = sum(each.gpus * max(0.0, min(last, each.start + each.duration) - each.start) for each in self._placed)
        return Outcome(tuple(self._placed), refused, last, busy, self.world.gpus)

    def _pass(self, until: float) -> None:
        """Jobs end; after each, the waiting are tried in their order."""
        while self._ending and self._ending[0][0] <= until:
            now, number = heapq.heappop(self._ending)
            ended = self._running.pop(number)
            for host, grant in zip(ended.hosts, ended.grants, strict=True):
                self.world.give_back(host, grant)
            self.chooser.ended(ended.job)
            for job in list(self._waiting.values()):
                self._try(job, now)

    def _try(self, job: streams.Job, now: float) -> None:
        book = self.world.book(self._demand(job))
        if book.total < job.pods:
            return
        free = book.free()
        taken = self._whole(job, free) or self._by_task(job, book)
        if taken is None:
            return
        del self._waiting[job.number]
        self.chooser.bound(job, taken.hosts)
        self._running[job.number] = taken
        heapq.heappush(self._ending, (now + job.duration, job.number))
        self._placed.append(metrics.judged(self.world, job, free, taken.hosts, taken.grants, now))
        self._tell(len(self._placed))

    def _whole(self, job: streams.Job, free: world.Free) -> _Running | None:
        hosts = self.chooser.whole(job, free)
        if hosts is None:
            return None
        demand = self._demand(job)
        return _Running(job, tuple(hosts), tuple([self.world.take(host, demand) for host in hosts]))

    def _by_task(self, job: streams.Job, book: world.Book) -> _Running | None:
        """Task by task in the order of ranks; None and nothing taken when one finds no node."""
        hosts: list[int] = []
        grants: list[kubelet.Grant] = []
        for rank in range(job.pods):
            task = choosers.Task(job, rank)
            host = self._one(task, self._scheduler.offered(book))
            if host is None:
                self._take_back(job, hosts, grants)
                return None
            grants.append(self.world.take(host, book.demand))
            hosts.append(host)
            self.chooser.placed(task, host)
        return _Running(job, tuple(hosts), tuple(grants))

    def _one(self, task: choosers.Task, offered: Sequence[int]) -> int | None:
        if len(offered) < 2:  # both schedulers skip scoring when only one node is feasible
            return offered[0] if offered else None
        points = self.chooser.points(task, offered)
        if points is None:
            points = [0.0] * len(offered)
        return self._scheduler.chosen(offered, points, task.job.gpus, self.chooser.scale)

    def _take_back(self, job: streams.Job, hosts: Sequence[int], grants: Sequence[kubelet.Grant]) -> None:
        for rank in reversed(range(len(hosts))):
            self.world.give_back(hosts[rank], grants[rank])
            self.chooser.undone(choosers.Task(job, rank))

    def _demand(self, job: streams.Job) -> kubelet.Demand:
        return self.world.demand(job.gpus)
