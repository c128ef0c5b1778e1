"""Runs a simulation: jobs arrive, wait, are placed pod by pod as a scheduler does it, and end.

Owns time, the queue and the gang rule. The queue is in order of arrival; a job that does not fit is skipped and tried
again whenever another ends. A gang is placed completely or not at all. kube-scheduler is assumed to have a gang plugin
(coscheduling) that admits a gang if the cluster has capacity for it, so that only its pod-by-pod placement differs.

An experiment runs one stream of jobs on one cluster under several policies, with the same jobs and seed for all.
"""

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from railwright.simulator import cluster, cluster_specs, job_stream, kubelet, metrics, policies, schedulers

PolicyFactory = Callable[[cluster.Cluster], policies.PlacementPolicy]


def ignore_progress(placed: int) -> None:
    """Do nothing with the number of placed jobs."""
    del placed


class Outcome(msgspec.Struct, frozen=True):
    """The results of a run."""

    placed: tuple[metrics.PlacedJob, ...]
    rejected: int  # jobs that do not fit an empty cluster
    horizon: float  # seconds until the last arrival
    busy: float  # GPU seconds used until then
    gpus: int

    @property
    def summary(self) -> metrics.Summary:
        """Return the figures of the run."""
        return metrics.summarize(self.placed, horizon=self.horizon, busy=self.busy, gpus=self.gpus)


class _RunningJob(msgspec.Struct, frozen=True):
    job: job_stream.Job
    hosts: tuple[int, ...]
    grants: tuple[kubelet.Grant, ...]


class Simulation:
    """One run of jobs on a cluster. `on_progress` is called with the number of placed jobs."""

    def __init__(
        self,
        spec: cluster_specs.ClusterSpec,
        factory: PolicyFactory,
        settings: schedulers.Settings,
        on_progress: Callable[[int], None] = ignore_progress,
    ) -> None:
        self.cluster = cluster.Cluster(spec)
        self.policy = factory(self.cluster)
        self._scheduler = schedulers.Scheduler(self.cluster, settings)
        self._on_progress = on_progress
        self._ends: list[tuple[float, int]] = []
        self._running: dict[int, _RunningJob] = {}
        self._waiting: dict[int, job_stream.Job] = {}
        self._placed: list[metrics.PlacedJob] = []

    def run(self, jobs: Iterable[job_stream.Job]) -> Outcome:
        """Run until every job that fits the cluster has been placed."""
        rejected, last_arrival = 0, 0.0
        for job in jobs:
            self._advance_to(job.arrival)
            last_arrival = job.arrival
            if self.cluster.get_capacity(self._build_demand(job)).total_if_empty < job.pods:
                rejected += 1
                continue
            self.policy.on_submit(job)
            self._waiting[job.number] = job
            self._try_to_place(job, job.arrival)
        self._advance_to(float("inf"))
        busy = sum(
            placed.gpus * max(0.0, min(last_arrival, placed.start + placed.duration) - placed.start)
            for placed in self._placed
        )
        return Outcome(tuple(self._placed), rejected, last_arrival, busy, self.cluster.gpus)

    def _advance_to(self, until: float) -> None:
        """End jobs up to a time. After each, try the waiting jobs in order."""
        while self._ends and self._ends[0][0] <= until:
            now, number = heapq.heappop(self._ends)
            self._end_job(number, now)
            for job in list(self._waiting.values()):
                self._try_to_place(job, now)

    def _end_job(self, number: int, now: float) -> None:
        """End a running job. `now` is for measurements that override this."""
        del now
        ended = self._running.pop(number)
        for host, grant in zip(ended.hosts, ended.grants, strict=True):
            self.cluster.end_pod(host, grant)
        self.policy.on_end(ended.job)

    def _try_to_place(self, job: job_stream.Job, now: float) -> None:
        capacity = self.cluster.get_capacity(self._build_demand(job))
        if capacity.total < job.pods:
            return
        free = capacity.snapshot()
        running = self._place_gang(job, free) or self._place_by_pod(job, capacity)
        if running is None:
            return
        del self._waiting[job.number]
        self.policy.on_bind(job, running.hosts)
        self._running[job.number] = running
        heapq.heappush(self._ends, (now + job.duration, job.number))
        self._placed.append(metrics.assess(self.cluster, job, free, running.hosts, running.grants, now))
        self._on_progress(len(self._placed))

    def _place_gang(self, job: job_stream.Job, free: cluster.FreeCapacity) -> _RunningJob | None:
        hosts = self.policy.place_gang(job, free)
        if hosts is None:
            return None
        demand = self._build_demand(job)
        return _RunningJob(job, tuple(hosts), tuple([self.cluster.start_pod(host, demand) for host in hosts]))

    def _place_by_pod(self, job: job_stream.Job, capacity: cluster.CapacityIndex) -> _RunningJob | None:
        """Place the pods in rank order. If one fits no node, release all and return None."""
        hosts: list[int] = []
        grants: list[kubelet.Grant] = []
        for rank in range(job.pods):
            task = policies.Task(job, rank)
            host = self._choose_host(task, self._scheduler.offer_hosts(capacity))
            if host is None:
                self._roll_back(job, hosts, grants)
                return None
            grants.append(self.cluster.start_pod(host, capacity.demand))
            hosts.append(host)
            self.policy.on_assume(task, host)
        return _RunningJob(job, tuple(hosts), tuple(grants))

    def _choose_host(self, task: policies.Task, offered: Sequence[int]) -> int | None:
        if len(offered) < 2:  # both schedulers skip scoring if only one node is feasible
            return offered[0] if offered else None
        scores = self.policy.score(task, offered)
        if scores is None:
            scores = [0.0] * len(offered)
        return self._scheduler.choose_host(offered, scores, task.job.gpus, self.policy.scale)

    def _roll_back(self, job: job_stream.Job, hosts: Sequence[int], grants: Sequence[kubelet.Grant]) -> None:
        for rank in reversed(range(len(hosts))):
            self.cluster.end_pod(hosts[rank], grants[rank])
            self.policy.on_forget(policies.Task(job, rank))

    def _build_demand(self, job: job_stream.Job) -> kubelet.Demand:
        return self.cluster.build_demand(job.gpus)


# --- experiments ----------------------------------------------------------------------------------------------

POLICIES = ("none", "binpack", "greedy", "railwright", "optimum")


class Experiment(msgspec.Struct, frozen=True):
    """The settings of an experiment."""

    spec: cluster_specs.ClusterSpec
    stream: str = "seren"
    load: float | None = 0.9  # offered share of the cluster's GPU time; None: as many jobs per day as published
    jobs: int | None = None
    days: float | None = None
    pod_gpus: int = job_stream.NODE
    settings: schedulers.Settings = schedulers.Settings()


class Result(msgspec.Struct, frozen=True):
    """The run of one policy."""

    policy: str
    summary: metrics.Summary
    outcome: Outcome
    decisions: int = 0  # of railwright
    decision_seconds: float = 0.0


def draw_jobs(experiment: Experiment) -> list[job_stream.Job]:
    """Return the jobs; those that run at the start come first."""
    gpus = cluster.Cluster(experiment.spec).gpus
    stream = job_stream.build(experiment.stream, largest=max(1, gpus // 2))
    if experiment.load is None:
        rate = stream.trace.jobs_a_day / 86400
    else:
        rate = job_stream.compute_rate(stream, experiment.load, gpus)
    seed, pod_gpus = experiment.settings.seed, experiment.pod_gpus
    until = None if experiment.days is None else experiment.days * 86400
    arriving = job_stream.draw_arrivals(
        stream, seed=seed, rate=rate, count=experiment.jobs, until=until, pod_gpus=pod_gpus
    )
    return [*job_stream.draw_running(stream, seed=seed, rate=rate, pod_gpus=pod_gpus), *arriving]


def run(
    experiment: Experiment,
    policy: str,
    jobs: Sequence[job_stream.Job],
    on_progress: Callable[[int], None] = ignore_progress,
) -> Result:
    """Run one policy on these jobs."""
    factory = build_factories(experiment)[policy]
    sim = Simulation(experiment.spec, factory, experiment.settings, on_progress)
    outcome = sim.run(jobs)
    used_policy = sim.policy
    if isinstance(used_policy, policies.RailwrightPolicy):
        return Result(policy, outcome.summary, outcome, used_policy.decisions, used_policy.seconds)
    return Result(policy, outcome.summary, outcome)


def build_factories(experiment: Experiment) -> Mapping[str, PolicyFactory]:
    """Return the policies of an experiment by name."""
    settings = experiment.settings
    is_volcano, has_reports = settings.kind == "volcano", settings.reports

    def build_railwright(sim_cluster: cluster.Cluster) -> policies.PlacementPolicy:
        return policies.RailwrightPolicy(sim_cluster, has_events=is_volcano, has_reports=has_reports)

    return {**policies.BASELINES, "railwright": build_railwright}
