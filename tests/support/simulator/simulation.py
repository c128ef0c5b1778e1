"""Runs a simulation: jobs arrive, wait, are placed pod by pod as a scheduler does it, and end.

The queue is in order of arrival; a job that does not fit is skipped and tried again whenever another ends. A gang is
placed completely or not at all. The scheduler is Volcano, which offers all nodes that fit. Its own scores, and how it
adds the extender's, are modelled (volcano-sh/volcano pkg/scheduler/util/scheduler_helper.go and plugins/nodeorder).
Each gang is assessed when it is placed, and compared with the best placement possible then.

Jobs are drawn from the published sizes and GPU time of Seren, read from the figures and `data/cluster_summary.csv` of
InternLM/AcmeTrace ("Characterization of Large Language Model Development in the Datacenter", NSDI 2024), accurate to
0.1-0.5 points. The mean duration of a size follows from its share of GPU time, its share of jobs and its GPUs.
Arrivals are Poisson and durations exponential. A stream starts with the jobs that would be running then.
"""

import bisect
import heapq
import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from simulator import cluster, policies

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 768, 1024)  # GPUs; 768 is the middle of the step from 513 to 1,023
JOBS = (54.0, 65.4, 68.0, 96.8, 97.9, 98.8, 99.3, 99.6, 99.7, 99.8, 99.96, 100.0)  # % of jobs with at most SIZES[i]
GPU_TIME = (1.4, 1.8, 2.4, 11.9, 13.2, 19.1, 27.6, 41.7, 56.3, 66.9, 87.4, 100.0)  # % of GPU time of those
MEAN_SECONDS = 1414  # of all jobs


class SizeClass(msgspec.Struct, frozen=True):
    """Jobs of one size."""

    gpus: int
    share: float  # of jobs
    seconds: float  # mean


def list_size_classes(largest: int) -> list[SizeClass]:
    """Return the sizes up to `largest` GPUs; their shares keep their proportions."""
    steps = zip(SIZES, itertools.pairwise((0.0, *JOBS)), itertools.pairwise((0.0, *GPU_TIME)), strict=True)
    sizes = [(gpus, jobs[1] - jobs[0], time[1] - time[0]) for gpus, jobs, time in steps]
    total = MEAN_SECONDS / sum(time / gpus for gpus, _, time in sizes)  # GPU seconds of a mean job
    shares = sum(share for gpus, share, _ in sizes if gpus <= largest)
    return [
        SizeClass(gpus, share / shares, total * time / (share * gpus)) for gpus, share, time in sizes if gpus <= largest
    ]


def draw_jobs(gpus: int, *, load: float, count: int, seed: int) -> Iterator[policies.Job]:
    """Yield the jobs that run at the start, then `count` by arrival, which offer this share of the cluster's GPU time.

    Equal seeds give equal jobs. Durations are exponential, so what remains of a running job is as long as a new one.
    """
    rng = random.Random(seed)  # noqa: S311 - a simulation has to be repeatable, not secret
    classes = list_size_classes(gpus // 2)
    rate = load * gpus / sum(one.share * one.seconds * one.gpus for one in classes)  # jobs a second
    number = 0
    for one in classes:
        for _ in range(_draw_poisson(rng, rate * one.share * one.seconds)):
            number -= 1
            yield _build_job(number, 0.0, rng.expovariate(1 / one.seconds), one.gpus)
    cumulative = list(itertools.accumulate(one.share for one in classes))
    now = 0.0
    for number in range(count):
        now += rng.expovariate(rate)
        one = classes[min(bisect.bisect(cumulative, rng.random()), len(classes) - 1)]
        yield _build_job(number, now, rng.expovariate(1 / one.seconds), one.gpus)


def _draw_poisson(rng: random.Random, mean: float) -> int:
    """Return a number drawn from the Poisson distribution."""
    count, now = 0, rng.expovariate(1.0)
    while now < mean:
        count, now = count + 1, now + rng.expovariate(1.0)
    return count


def _build_job(number: int, arrival: float, seconds: float, gpus: int) -> policies.Job:
    pods = -(-gpus // cluster.GPUS)
    return policies.Job(number, arrival, seconds, pods, gpus // pods)


# --- the run ------------------------------------------------------------------------------------------------


class PlacedJob(msgspec.Struct, frozen=True):
    """One job's placement. A gang's is assessed."""

    job: policies.Job
    start: float  # seconds
    hosts: Sequence[int]  # of each rank
    actual: cluster.GangBandwidth
    best: float  # modelled bandwidth of the optimum on what was free
    min_leaves: int  # fewest leaves with enough idle nodes


class Summary(msgspec.Struct, frozen=True):
    """The figures of the gangs of a run that arrived after its start."""

    gangs: int
    share: float  # modelled bandwidth x GPU time, of the optimum's
    worst_gang: float  # least bandwidth, of its optimum
    leaves_of_fewest: float  # leaves used, divided by the fewest possible
    avoidable_crossings: int  # ring edges between leaves, where one leaf had enough idle nodes
    rank_order_crossings: int


def summarize(placed: Sequence[PlacedJob]) -> Summary:
    """Return the figures of a run with at least one gang."""
    gangs = [item for item in placed if item.job.number >= 0 and item.job.pods > 1]
    return Summary(
        gangs=len(gangs),
        share=sum(gang.actual.value * gang.job.gpu_seconds for gang in gangs)
        / sum(gang.best * gang.job.gpu_seconds for gang in gangs),
        worst_gang=min(gang.actual.value / gang.best for gang in gangs),
        leaves_of_fewest=sum(gang.actual.leaves for gang in gangs) / sum(gang.min_leaves for gang in gangs),
        avoidable_crossings=sum(gang.actual.crossings for gang in gangs if gang.min_leaves == 1),
        rank_order_crossings=sum(gang.actual.rank_order_crossings for gang in gangs),
    )


CORES, CORES_PER_GPU = 128.0, 12.0  # of a node, and requested by training pods
MEMORY, MEMORY_PER_GPU = 2048.0, 200.0  # GiB
AGENT_CORES, AGENT_MEMORY = 24.0, 64.0  # upper bound of other pods of uneven size on every node, the noise


class Scheduler:
    """Chooses the host of each pod. One for each run."""

    def __init__(self, on: cluster.Cluster, seed: int) -> None:
        self._cluster = on
        self._rng = random.Random(seed)  # noqa: S311 - a simulation has to be repeatable
        self._agents = [
            (self._rng.uniform(0, AGENT_CORES) / CORES, self._rng.uniform(0, AGENT_MEMORY) / MEMORY) for _ in on.hosts
        ]

    def choose_host(self, offered: Sequence[int], scores: Sequence[float], gpus: int, scale: float) -> int:
        """Return the host with the highest total. `scores` are the extender's, 0..100."""
        totals = [
            score * scale + self._compute_own_score(host, gpus) for host, score in zip(offered, scores, strict=True)
        ]
        highest = max(totals)
        return self._rng.choice([host for host, total in zip(offered, totals, strict=True) if total == highest])

    def _compute_own_score(self, host: int, gpus: int) -> float:
        """Return LeastAllocated plus BalancedAllocation of CPU and memory with the pod on the host: 0..200."""
        gpus_in_use = cluster.GPUS - self._cluster.free[host] + gpus
        cores = self._agents[host][0] + gpus_in_use * CORES_PER_GPU / CORES
        memory = self._agents[host][1] + gpus_in_use * MEMORY_PER_GPU / MEMORY
        return 100 * (1 - (cores + memory) / 2) + 100 * (1 - abs(cores - memory) / 2)


class Simulation:
    """One run of jobs on a cluster under a policy."""

    def __init__(
        self, on: cluster.Cluster, build_policy: Callable[[cluster.Cluster], policies.PlacementPolicy], seed: int = 1
    ) -> None:
        self.cluster = on
        self.policy = build_policy(on)
        self._scheduler = Scheduler(on, seed)
        self._ends: list[tuple[float, int]] = []
        self._running: dict[int, tuple[policies.Job, Sequence[int]]] = {}
        self._waiting: dict[int, policies.Job] = {}
        self._placed: list[PlacedJob] = []

    def run(self, jobs: Iterable[policies.Job]) -> Sequence[PlacedJob]:
        """Run until every job that an empty cluster can hold has been placed."""
        for job in jobs:
            self._advance_to(job.arrival)
            self.policy.on_submit(job)
            self._waiting[job.number] = job
            self._try_to_place(job, job.arrival)
        self._advance_to(float("inf"))
        return self._placed

    def start(self, job: policies.Job, hosts: Sequence[int]) -> None:
        """Place a job on these hosts at the start of the run."""
        self.policy.on_submit(job)
        for host in hosts:
            self.cluster.free[host] -= job.gpus
        self._bind(job, 0.0, hosts)

    def _bind(self, job: policies.Job, now: float, hosts: Sequence[int]) -> None:
        self.policy.on_bind(job, hosts)
        self._running[job.number] = job, hosts
        heapq.heappush(self._ends, (now + job.duration, job.number))

    def _advance_to(self, until: float) -> None:
        """End jobs up to a time. After each, try the waiting jobs in order."""
        while self._ends and self._ends[0][0] <= until:
            now, number = heapq.heappop(self._ends)
            ended, hosts = self._running.pop(number)
            for host in hosts:
                self.cluster.free[host] += ended.gpus
            self.policy.on_end(ended)
            for job in list(self._waiting.values()):
                self._try_to_place(job, now)

    def _try_to_place(self, job: policies.Job, now: float) -> None:
        if len(self.cluster.list_fitting(job.gpus)) < job.pods:
            return
        best, min_leaves = 1.0, 1
        if job.pods > 1:
            optimum = cluster.find_best(self.cluster, job.pods)
            assert optimum is not None, "enough nodes are idle"
            best = self.cluster.assess_gang(optimum).value
            min_leaves = cluster.count_min_leaves(self.cluster, job.pods)
        del self._waiting[job.number]
        hosts = self._choose_hosts(job)
        self._bind(job, now, hosts)
        self._placed.append(PlacedJob(job, now, hosts, self.cluster.assess_gang(hosts), best, min_leaves))

    def _choose_hosts(self, job: policies.Job) -> Sequence[int]:
        """Take the policy's hosts for the whole gang, or those of the scheduler for each pod in rank order."""
        hosts = list(self.policy.place_gang(job) or ())
        for host in hosts:
            self.cluster.free[host] -= job.gpus
        for rank in range(len(hosts), job.pods):
            task = policies.Task(job, rank)
            host = self._choose_host(task, self.cluster.list_fitting(job.gpus))
            self.cluster.free[host] -= job.gpus
            hosts.append(host)
            self.policy.on_assume(task, host)
        return hosts

    def _choose_host(self, task: policies.Task, offered: Sequence[int]) -> int:
        if len(offered) == 1:  # schedulers skip scoring if only one node is feasible
            return offered[0]
        scores = self.policy.score(task, offered) or [0.0] * len(offered)
        return self._scheduler.choose_host(offered, scores, task.job.gpus, self.policy.scale)
