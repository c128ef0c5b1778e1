"""Runs a simulation: jobs arrive, wait, are placed pod by pod as a scheduler does it, and end.

Owns time, the queue and the gang rule. The queue is in order of arrival; a job that does not fit is skipped and tried
again whenever another ends. A gang is placed completely or not at all. kube-scheduler is assumed to have a gang plugin
(coscheduling) that admits a gang if the cluster has capacity for it, so that only its pod-by-pod placement differs.

The schedulers offer all nodes that fit. Their own scores, and how they add the extender's, are modelled.
Sources: volcano-sh/volcano pkg/scheduler/util/scheduler_helper.go and plugins/nodeorder; kubernetes
pkg/scheduler/schedule_one.go and extender.go.

Each placement is assessed at the time it was made, compared with the best possible then. All bandwidths are modelled. A
single pod has no ring and no bandwidth; it counts only for NUMA splits, waiting and utilization.

An experiment runs one stream of jobs on one cluster under several policies, with the same jobs and seed for all.
"""

import heapq
import random
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from railwright.fabric.placement.nodes import score_terms
from simulator import bandwidth_model, cluster, cluster_specs, job_stream, policies


class PlacedJob(msgspec.Struct, frozen=True):
    """One job's placement and its assessment."""

    job: job_stream.Job
    start: float  # seconds
    waited: float
    hosts: tuple[int, ...]
    value: float  # modelled bandwidth, 0..1
    best: float  # `value` of the optimum on what was free
    leaves: int
    min_leaves: int  # fewest leaves with enough slots
    avoidable_crossings: int  # ring edges between leaves, if one leaf had enough slots at no less bandwidth
    rank_order_crossings: int  # ring edges that cross only because of the order of ranks
    splits: int  # pods on more NUMA nodes than they need
    avoidable_splits: int  # the same, if the job could have been placed without splits; otherwise 0
    misaligned: int  # rails on another NUMA node than the GPUs that use them

    @property
    def share(self) -> float:
        """Return `value` relative to the optimum."""
        return self.value / self.best if self.best else 1.0


class Summary(msgspec.Struct, frozen=True):
    """The figures of a run; bandwidths and leaves are of gangs only."""

    jobs: int
    gangs: int
    modelled_busbw_of_optimum: float  # weighted by GPU time: sum of bandwidth x GPU time, divided by the optimum's
    modelled_busbw_of_optimum_per_gang: float  # mean over gangs
    worst_gang: float
    gangs_below: int  # gangs below 0.98 of their optimum
    modelled_busbw: float  # weighted by GPU time, of a link
    leaves_of_fewest: float  # leaves used, divided by the fewest possible
    avoidable_crossings: int
    rank_order_crossings: int
    splits: int
    avoidable_splits: int
    misaligned: int
    mean_wait: float  # seconds
    utilization: float  # of GPU time until the last arrival


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
    avoidable_splits = splits if can_unsplit else 0
    return PlacedJob(
        job=job,
        start=now,
        waited=now - job.arrival,
        hosts=tuple(hosts),
        value=value,
        best=best_value,
        leaves=actual.leaves,
        min_leaves=min_leaves,
        avoidable_crossings=crossings,
        rank_order_crossings=actual.rank_order_crossings,
        splits=splits,
        avoidable_splits=avoidable_splits,
        misaligned=sum(grant.misaligned for grant in grants),
    )


def summarize(placed: Sequence[PlacedJob], *, horizon: float, busy: float, gpus: int) -> Summary:
    """Return the figures of a run."""
    jobs = [item for item in placed if not item.job.is_initial]
    gangs = [item for item in jobs if item.job.pods > 1]
    shares = [gang.share for gang in gangs]
    return Summary(
        jobs=len(jobs),
        gangs=len(gangs),
        modelled_busbw_of_optimum=_compute_ratio(
            gangs, lambda gang: gang.value * gang.job.gpu_seconds, lambda gang: gang.best * gang.job.gpu_seconds
        ),
        modelled_busbw_of_optimum_per_gang=sum(shares) / len(shares) if shares else 1.0,
        worst_gang=min(shares, default=1.0),
        gangs_below=sum(share < 0.98 for share in shares),
        modelled_busbw=_compute_ratio(
            gangs, lambda gang: gang.value * gang.job.gpu_seconds, lambda gang: gang.job.gpu_seconds
        ),
        leaves_of_fewest=_compute_ratio(gangs, lambda gang: gang.leaves, lambda gang: gang.min_leaves),
        avoidable_crossings=sum(gang.avoidable_crossings for gang in gangs),
        rank_order_crossings=sum(gang.rank_order_crossings for gang in gangs),
        splits=sum(job.splits for job in jobs),
        avoidable_splits=sum(job.avoidable_splits for job in jobs),
        misaligned=sum(job.misaligned for job in jobs),
        mean_wait=sum(job.waited for job in jobs) / len(jobs) if jobs else 0.0,
        utilization=busy / (horizon * gpus) if horizon else 0.0,
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
KUBE_WEIGHT = 5  # as in the example configuration of manifests/
_KUBE_SCALE = 10  # MaxNodeScore / MaxExtenderPriority


class Settings(msgspec.Struct, frozen=True):
    """The settings of a run's scheduler."""

    kind: str = "volcano"  # or kube
    seed: int = 1


class Scheduler:
    """Offers and chooses hosts. One for each run."""

    def __init__(self, sim_cluster: cluster.Cluster, settings: Settings) -> None:
        self.settings = settings
        self._cluster = sim_cluster
        self._rng = random.Random(settings.seed)  # noqa: S311 - a simulation has to be repeatable
        self._agents = [
            (self._rng.uniform(0, AGENT_CORES) / CORES, self._rng.uniform(0, AGENT_MEMORY) / MEMORY)
            for _ in sim_cluster.hosts
        ]
        self._scores: dict[int, list[float]] = {}  # GPUs of the pod -> own score of each host
        sim_cluster.listeners.append(self._update_scores)

    def choose_host(
        self, offered: Sequence[int], scores: Sequence[float | None], gpus: int, scale: float
    ) -> int | None:
        """Return the host with the highest total; None if all are filtered.

        `scores`: the extender's, 0..100, None for a filtered host.
        """
        own_scores = self._get_own_scores(gpus)
        if self.settings.kind == "kube":
            step = KUBE_WEIGHT * _KUBE_SCALE
            by_score = score_terms.convert_to_priorities([score for score in scores if score is not None])
            totals = [
                -1.0 if score is None else by_score[score] * step + own_scores[host]
                for host, score in zip(offered, scores, strict=True)
            ]
        else:
            totals = [(score or 0.0) * scale + own_scores[host] for host, score in zip(offered, scores, strict=True)]
        highest = max(totals)
        if highest < 0:
            return None
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


class Outcome(msgspec.Struct, frozen=True):
    """The results of a run."""

    placed: tuple[PlacedJob, ...]
    rejected: int  # jobs that do not fit an empty cluster
    horizon: float  # seconds until the last arrival
    busy: float  # GPU seconds used until then
    gpus: int

    @property
    def summary(self) -> Summary:
        """Return the figures of the run."""
        return summarize(self.placed, horizon=self.horizon, busy=self.busy, gpus=self.gpus)


class _RunningJob(msgspec.Struct, frozen=True):
    job: job_stream.Job
    hosts: tuple[int, ...]
    grants: tuple[cluster.Grant, ...]


class Simulation:
    """One run of jobs on a cluster."""

    def __init__(self, spec: cluster_specs.ClusterSpec, factory: PolicyFactory, settings: Settings) -> None:
        self.cluster = cluster.Cluster(spec)
        self.policy = factory(self.cluster)
        self._scheduler = Scheduler(self.cluster, settings)
        self._ends: list[tuple[float, int]] = []
        self._running: dict[int, _RunningJob] = {}
        self._waiting: dict[int, job_stream.Job] = {}
        self._placed: list[PlacedJob] = []

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
            placed.job.size * max(0.0, min(last_arrival, placed.start + placed.job.duration) - placed.start)
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
        self._placed.append(assess(self.cluster, job, free, running.hosts, running.grants, now))

    def _place_gang(self, job: job_stream.Job, free: cluster.FreeCapacity) -> _RunningJob | None:
        hosts = self.policy.place_gang(job, free)
        if hosts is None:
            return None
        demand = self._build_demand(job)
        return _RunningJob(job, tuple(hosts), tuple([self.cluster.start_pod(host, demand) for host in hosts]))

    def _place_by_pod(self, job: job_stream.Job, capacity: cluster.CapacityIndex) -> _RunningJob | None:
        """Place the pods in rank order. If one fits no node, release all and return None."""
        hosts: list[int] = []
        grants: list[cluster.Grant] = []
        for rank in range(job.pods):
            task = policies.Task(job, rank)
            offered = [host for host, slots in enumerate(capacity.slots) if slots]
            host = self._choose_host(task, offered)
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

    def _roll_back(self, job: job_stream.Job, hosts: Sequence[int], grants: Sequence[cluster.Grant]) -> None:
        for rank in reversed(range(len(hosts))):
            self.cluster.end_pod(hosts[rank], grants[rank])
            self.policy.on_forget(policies.Task(job, rank))

    def _build_demand(self, job: job_stream.Job) -> cluster.Demand:
        return self.cluster.build_demand(job.gpus)


# --- experiments ----------------------------------------------------------------------------------------------

POLICIES = ("none", "binpack", "greedy", "railwright", "optimum")


class Experiment(msgspec.Struct, frozen=True):
    """The settings of an experiment."""

    spec: cluster_specs.ClusterSpec
    stream: str = "seren"
    load: float = 0.9  # offered share of the cluster's GPU time
    jobs: int = 1000
    pod_gpus: int = job_stream.NODE
    settings: Settings = Settings()


class Result(msgspec.Struct, frozen=True):
    """The run of one policy."""

    policy: str
    summary: Summary
    outcome: Outcome
    decisions: int = 0  # of railwright
    decision_seconds: float = 0.0


def draw_jobs(experiment: Experiment) -> list[job_stream.Job]:
    """Return the jobs; those that run at the start come first."""
    gpus = cluster.Cluster(experiment.spec).gpus
    stream = job_stream.build(experiment.stream, largest=max(1, gpus // 2))
    rate = job_stream.compute_rate(stream, experiment.load, gpus)
    seed, pod_gpus = experiment.settings.seed, experiment.pod_gpus
    arriving = job_stream.draw_arrivals(stream, seed=seed, rate=rate, count=experiment.jobs, pod_gpus=pod_gpus)
    return [*job_stream.draw_running(stream, seed=seed, rate=rate, pod_gpus=pod_gpus), *arriving]


def run(experiment: Experiment, policy: str, jobs: Sequence[job_stream.Job]) -> Result:
    """Run one policy on these jobs."""
    factory = build_factories(experiment)[policy]
    sim = Simulation(experiment.spec, factory, experiment.settings)
    outcome = sim.run(jobs)
    used_policy = sim.policy
    if isinstance(used_policy, policies.RailwrightPolicy):
        return Result(policy, outcome.summary, outcome, used_policy.decisions, used_policy.seconds)
    return Result(policy, outcome.summary, outcome)


def build_factories(experiment: Experiment) -> Mapping[str, PolicyFactory]:
    """Return the policies of an experiment by name."""
    is_volcano = experiment.settings.kind == "volcano"

    def build_railwright(sim_cluster: cluster.Cluster) -> policies.PlacementPolicy:
        return policies.RailwrightPolicy(sim_cluster, has_events=is_volcano)

    return {**policies.BASELINES, "railwright": build_railwright}
