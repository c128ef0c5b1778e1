"""Runs a simulation: jobs arrive, wait, are placed pod by pod as a scheduler does it, and end.

Owns time, the queue and the gang rule. The queue is in order of arrival; a job that does not fit is skipped and tried
again whenever another ends. A gang is placed completely or not at all.

The scheduler is Volcano, which offers all nodes that fit. Its own scores, and how it adds the extender's, are modelled.
Source: volcano-sh/volcano pkg/scheduler/util/scheduler_helper.go and plugins/nodeorder.

Each placement is assessed at the time it was made, compared with the best possible then. All bandwidths are modelled. A
single pod has no ring and no bandwidth; it counts only for NUMA splits.

An experiment runs one stream of jobs on one cluster under several policies, with the same jobs and seed for all.
"""

import heapq
import random
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from simulator import bandwidth_model, cluster, cluster_specs, job_stream, policies


class PlacedJob(msgspec.Struct, frozen=True):
    """One job's placement and its assessment."""

    job: job_stream.Job
    start: float  # seconds
    hosts: tuple[int, ...]
    value: float  # modelled bandwidth, 0..1
    best: float  # `value` of the optimum on what was free
    leaves: int
    min_leaves: int  # fewest leaves with enough slots
    avoidable_crossings: int  # ring edges between leaves, if one leaf had enough slots at no less bandwidth
    rank_order_crossings: int  # ring edges that cross only because of the order of ranks
    avoidable_splits: int  # pods on more NUMA nodes than they need, if the job could have been placed otherwise

    @property
    def share(self) -> float:
        """Return `value` relative to the optimum."""
        return self.value / self.best if self.best else 1.0


class Summary(msgspec.Struct, frozen=True):
    """The figures of a run; bandwidths and leaves are of gangs only."""

    gangs: int
    modelled_busbw_of_optimum: float  # weighted by GPU time: sum of bandwidth x GPU time, divided by the optimum's
    modelled_busbw_of_optimum_per_gang: float  # mean over gangs
    worst_gang: float
    leaves_of_fewest: float  # leaves used, divided by the fewest possible
    avoidable_crossings: int
    rank_order_crossings: int
    avoidable_splits: int


def assess(
    sim_cluster: cluster.Cluster,
    job: job_stream.Job,
    free: cluster.FreeCapacity,
    hosts: Sequence[int],
    grants: Sequence[cluster.Grant],
    now: float,
) -> PlacedJob:
    """Assess a placement, given the resources that were free before it."""
    splits = sum(grant.split for grant in grants)
    best = bandwidth_model.find_best(sim_cluster, free, job.pods) if job.pods > 1 else None
    value, best_value, min_leaves, crossings = 1.0, 1.0, 1, 0
    actual = bandwidth_model.GangBandwidth(1.0, 1.0, 1.0, 1, 0, 0)
    if job.pods > 1:
        ranks = bandwidth_model.grant_ranks(free, hosts)
        actual = bandwidth_model.assess_gang(sim_cluster, free.demand, ranks)
        value = actual.total
        best_value = best.value if best else value
        min_leaves = bandwidth_model.count_min_leaves(sim_cluster, free, job.pods)
        if actual.leaves > 1 and bandwidth_model.fits_one_leaf(sim_cluster, free, job.pods, value):
            crossings = actual.crossings
    can_unsplit = splits and bandwidth_model.fits_unsplit(sim_cluster, free, job.pods, value, actual.leaves)
    return PlacedJob(
        job=job,
        start=now,
        hosts=tuple(hosts),
        value=value,
        best=best_value,
        leaves=actual.leaves,
        min_leaves=min_leaves,
        avoidable_crossings=crossings,
        rank_order_crossings=actual.rank_order_crossings,
        avoidable_splits=splits if can_unsplit else 0,
    )


def summarize(placed: Sequence[PlacedJob]) -> Summary:
    """Return the figures of a run."""
    jobs = [item for item in placed if not item.job.is_initial]
    gangs = [item for item in jobs if item.job.pods > 1]
    shares = [gang.share for gang in gangs]
    return Summary(
        gangs=len(gangs),
        modelled_busbw_of_optimum=_compute_ratio(
            gangs, lambda gang: gang.value * gang.job.gpu_seconds, lambda gang: gang.best * gang.job.gpu_seconds
        ),
        modelled_busbw_of_optimum_per_gang=sum(shares) / len(shares) if shares else 1.0,
        worst_gang=min(shares, default=1.0),
        leaves_of_fewest=_compute_ratio(gangs, lambda gang: gang.leaves, lambda gang: gang.min_leaves),
        avoidable_crossings=sum(gang.avoidable_crossings for gang in gangs),
        rank_order_crossings=sum(gang.rank_order_crossings for gang in gangs),
        avoidable_splits=sum(job.avoidable_splits for job in jobs),
    )


def _compute_ratio(
    gangs: Sequence[PlacedJob], numerator: Callable[[PlacedJob], float], denominator: Callable[[PlacedJob], float]
) -> float:
    total = sum(map(denominator, gangs))
    return sum(map(numerator, gangs)) / total if total else 1.0


# --- the schedulers -----------------------------------------------------------------------------------------


CORES, CORES_PER_GPU = 128.0, 12.0  # of a node, and requested by training pods
MEMORY, MEMORY_PER_GPU = 2048.0, 200.0  # GiB
AGENT_CORES, AGENT_MEMORY = 24.0, 64.0  # upper bound of other pods of uneven size on every node, the noise


class Scheduler:
    """Offers and chooses hosts. One for each run."""

    def __init__(self, sim_cluster: cluster.Cluster, seed: int) -> None:
        self._cluster = sim_cluster
        self._rng = random.Random(seed)  # noqa: S311 - a simulation has to be repeatable
        self._agents = [
            (self._rng.uniform(0, AGENT_CORES) / CORES, self._rng.uniform(0, AGENT_MEMORY) / MEMORY)
            for _ in sim_cluster.hosts
        ]
        self._scores: dict[int, list[float]] = {}  # GPUs of the pod -> own score of each host
        sim_cluster.listeners.append(self._update_scores)

    def choose_host(self, offered: Sequence[int], scores: Sequence[float], gpus: int, scale: float) -> int:
        """Return the host with the highest total. `scores` are the extender's, 0..100."""
        own_scores = self._get_own_scores(gpus)
        totals = [score * scale + own_scores[host] for host, score in zip(offered, scores, strict=True)]
        highest = max(totals)
        ties = [host for host, total in zip(offered, totals, strict=True) if total == highest]
        return ties[0] if len(ties) == 1 else self._rng.choice(ties)

    def _get_own_scores(self, gpus: int) -> list[float]:
        scores = self._scores.get(gpus)
        if scores is None:
            scores = [self._compute_own_score(host, state, gpus) for host, state in enumerate(self._cluster.states)]
            self._scores[gpus] = scores
        return scores

    def _update_scores(self, host: int, state: cluster.State) -> None:
        for gpus, scores in self._scores.items():
            scores[host] = self._compute_own_score(host, state, gpus)

    def _compute_own_score(self, host: int, state: cluster.State, gpus: int) -> float:
        """Return LeastAllocated plus BalancedAllocation of CPU and memory with the pod on the host: 0..200."""
        gpus_in_use = sum(self._cluster.hosts[host].hardware.gpus) - sum(state[0]) + gpus
        cores = self._agents[host][0] + gpus_in_use * CORES_PER_GPU / CORES
        memory = self._agents[host][1] + gpus_in_use * MEMORY_PER_GPU / MEMORY
        return 100 * (1 - (cores + memory) / 2) + 100 * (1 - abs(cores - memory) / 2)


# --- the run ------------------------------------------------------------------------------------------------


PolicyFactory = Callable[[cluster.Cluster], policies.PlacementPolicy]


class _RunningJob(msgspec.Struct, frozen=True):
    job: job_stream.Job
    hosts: tuple[int, ...]
    grants: tuple[cluster.Grant, ...]


class Simulation:
    """One run of jobs on a cluster."""

    def __init__(self, spec: cluster_specs.ClusterSpec, factory: PolicyFactory, seed: int = 1) -> None:
        self.cluster = cluster.Cluster(spec)
        self.policy = factory(self.cluster)
        self._scheduler = Scheduler(self.cluster, seed)
        self._ends: list[tuple[float, int]] = []
        self._running: dict[int, _RunningJob] = {}
        self._waiting: dict[int, job_stream.Job] = {}
        self._placed: list[PlacedJob] = []

    def run(self, jobs: Iterable[job_stream.Job]) -> Sequence[PlacedJob]:
        """Run until every job that an empty cluster can hold has been placed."""
        for job in jobs:
            self._advance_to(job.arrival)
            if self.cluster.get_capacity(self._build_demand(job)).total_if_empty < job.pods:
                continue
            self.policy.on_submit(job)
            self._waiting[job.number] = job
            self._try_to_place(job, job.arrival)
        self._advance_to(float("inf"))
        return self._placed

    def _advance_to(self, until: float) -> None:
        """End jobs up to a time. After each, try the waiting jobs in order."""
        while self._ends and self._ends[0][0] <= until:
            now, number = heapq.heappop(self._ends)
            self._end_job(number)
            for job in list(self._waiting.values()):
                self._try_to_place(job, now)

    def _end_job(self, number: int) -> None:
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
        del self._waiting[job.number]
        self.policy.on_bind(job, running.hosts)
        self._running[job.number] = running
        heapq.heappush(self._ends, (now + job.duration, job.number))
        self._placed.append(assess(self.cluster, job, free, running.hosts, running.grants, now))

    def _place_gang(self, job: job_stream.Job, free: cluster.FreeCapacity) -> _RunningJob | None:
        hosts = self.policy.place_gang(job, free)
        if hosts is None:
            return None
        demand = self._build_demand(job)
        return _RunningJob(job, tuple(hosts), tuple([self.cluster.start_pod(host, demand) for host in hosts]))

    def _place_by_pod(self, job: job_stream.Job, capacity: cluster.CapacityIndex) -> _RunningJob:
        """Place the pods in rank order. All fit, because each takes one slot of the capacity."""
        hosts: list[int] = []
        grants: list[cluster.Grant] = []
        for rank in range(job.pods):
            task = policies.Task(job, rank)
            host = self._choose_host(task, [host for host, slots in enumerate(capacity.slots) if slots])
            grants.append(self.cluster.start_pod(host, capacity.demand))
            hosts.append(host)
            self.policy.on_assume(task, host)
        return _RunningJob(job, tuple(hosts), tuple(grants))

    def _choose_host(self, task: policies.Task, offered: Sequence[int]) -> int:
        if len(offered) == 1:  # schedulers skip scoring if only one node is feasible
            return offered[0]
        scores = self.policy.score(task, offered)
        if scores is None:
            scores = [0.0] * len(offered)
        return self._scheduler.choose_host(offered, scores, task.job.gpus, self.policy.scale)

    def _build_demand(self, job: job_stream.Job) -> cluster.Demand:
        return self.cluster.build_demand(job.gpus)


# --- experiments ----------------------------------------------------------------------------------------------

POLICIES: Mapping[str, PolicyFactory] = {**policies.BASELINES, "railwright": policies.RailwrightPolicy}


class Experiment(msgspec.Struct, frozen=True):
    """The settings of an experiment."""

    spec: cluster_specs.ClusterSpec
    stream: str = "seren"
    load: float = 0.9  # offered share of the cluster's GPU time
    jobs: int = 1000
    pod_gpus: int = job_stream.NODE
    seed: int = 1


class Result(msgspec.Struct, frozen=True):
    """The run of one policy."""

    policy: str
    summary: Summary
    decisions: int = 0  # of railwright
    decision_seconds: float = 0.0


def draw_jobs(experiment: Experiment) -> list[job_stream.Job]:
    """Return the jobs; those that run at the start come first."""
    gpus = cluster.Cluster(experiment.spec).gpus
    stream = job_stream.build(experiment.stream, largest=max(1, gpus // 2))
    rate = job_stream.compute_rate(stream, experiment.load, gpus)
    seed, pod_gpus = experiment.seed, experiment.pod_gpus
    arriving = job_stream.draw_arrivals(stream, seed=seed, rate=rate, count=experiment.jobs, pod_gpus=pod_gpus)
    return [*job_stream.draw_running(stream, seed=seed, rate=rate, pod_gpus=pod_gpus), *arriving]


def run(experiment: Experiment, policy: str, jobs: Sequence[job_stream.Job]) -> Result:
    """Run one policy on these jobs."""
    sim = Simulation(experiment.spec, POLICIES[policy], experiment.seed)
    summary = summarize(sim.run(jobs))
    if isinstance(sim.policy, policies.RailwrightPolicy):
        return Result(policy, summary, sim.policy.decisions, sim.policy.seconds)
    return Result(policy, summary)
