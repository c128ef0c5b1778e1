"""Draws streams of jobs from the published distributions: sizes, durations, arrivals.

How both published tables are met: a job's size class is drawn from the table of jobs. The mean duration of each class
follows from the table of GPU time (the class's share of GPU time, divided by its share of jobs and its GPUs) and from
the trace's mean. The durations of a class are the published ones of all jobs. If that mean is shorter, the longest are
cut off (quantile u * max_quantile); if it is longer, they are skewed towards long ones (quantile u ** (1 /
tail_exponent)). So the shares of jobs and of GPU time hold in expectation. The durations of all jobs hold within a few
points, because small jobs, the majority, only lose their longest.

Arrivals are Poisson; day and night are not modelled. A simulation starts with the jobs that would be running then, each
with its remaining duration, so that the cluster is not empty at the start.

Sizes and GPU time are read from the figures and `data/cluster_summary.csv` of InternLM/AcmeTrace ("Characterization of
Large Language Model Development in the Datacenter", NSDI 2024), accurate to 0.1-0.5 points; durations likewise.
"""

import bisect
import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

# --- published data -------------------------------------------------------------------------------------------

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1023)  # GPUs: the columns of the two tables
SECONDS = (64, 256, 1024, 4096, 16384, 65536, 262144)  # the columns of the duration table


class Trace(msgspec.Struct, frozen=True):
    """One published stream. Shares are cumulative, in per cent."""

    jobs: tuple[float, ...]  # jobs with at most SIZES[i] GPUs
    gpu_time: tuple[float, ...]  # GPU time of those
    ended: tuple[float, ...]  # jobs that ended within SECONDS[i]
    largest: int  # GPUs
    mean_seconds: float


TRACES: Mapping[str, Trace] = {
    "seren": Trace(
        jobs=(54.0, 65.4, 68.0, 96.8, 97.9, 98.8, 99.3, 99.6, 99.7, 99.8, 99.96),
        gpu_time=(1.4, 1.8, 2.4, 11.9, 13.2, 19.1, 27.6, 41.7, 56.3, 66.9, 87.4),
        ended=(37, 66, 88, 96, 98.4, 99.6, 99.9),
        largest=1024,
        mean_seconds=1414,
    ),
    "helios": Trace(
        jobs=(72.2, 74.8, 80.5, 94.7, 97.7, 99.4, 99.7, 99.9, 99.96, 99.98, 100),
        gpu_time=(5.4, 7.2, 12.1, 41.3, 61.5, 86.6, 94.4, 97.5, 99.9, 99.9, 99.95),
        ended=(25, 57, 75, 88, 94, 98, 99.5),
        largest=2048,
        mean_seconds=6652,
    ),
}

LONGEST_DAYS = 30.0  # no maximum is published, so jobs are assumed to run no longer


# --- streams --------------------------------------------------------------------------------------------------

NODE = 8  # GPUs of a pod in jobs of more than one node
_STEPS = 400  # of the numeric mean
_MAX_TAIL_EXPONENT = 64.0


class Job(msgspec.Struct, frozen=True):
    """One job: `pods` equal pods of `gpus` GPUs each."""

    number: int
    arrival: float  # seconds from the start
    duration: float  # seconds
    pods: int
    gpus: int
    is_initial: bool = False  # ran when the simulation started: part of the state, not of the figures

    @property
    def size(self) -> int:
        """Return the number of GPUs of all pods."""
        return self.pods * self.gpus

    @property
    def gpu_seconds(self) -> float:
        """Return the GPU time of all pods, in GPU seconds."""
        return self.size * self.duration


class SizeClass(msgspec.Struct, frozen=True):
    """Jobs of one size."""

    gpus: int
    share: float  # of jobs
    max_quantile: float  # 0..1: quantile of the longest duration
    tail_exponent: float  # 1 or more: larger means longer jobs
    mean: float  # seconds


class JobStream(msgspec.Struct, frozen=True):
    """The distributions that jobs are drawn from."""

    trace: Trace
    classes: tuple[SizeClass, ...]
    longest: float  # seconds; no maximum is published: the value that gives the published mean

    @property
    def gpu_seconds(self) -> float:
        """Return the mean GPU time of a job, in GPU seconds."""
        return sum(size_class.share * size_class.mean * size_class.gpus for size_class in self.classes)


def build(name: str, *, largest: int) -> JobStream:
    """Return a published stream without jobs of more than `largest` GPUs; other shares keep their proportions."""
    trace = TRACES[name]
    sizes = list(_list_sizes(trace))
    total = 1 / sum(time / gpus for gpus, _, time in sizes if time) * trace.mean_seconds  # GPU seconds of a mean job
    included = [(gpus, share, total * time / (share * gpus)) for gpus, share, time in sizes if gpus <= largest]
    shares = sum(share for _, share, _ in included)
    longest = _solve_longest(trace)
    classes = tuple(_build_class(trace, longest, gpus, share / shares, mean) for gpus, share, mean in included)
    return JobStream(trace, classes, longest)


def draw_arrivals(stream: JobStream, *, seed: int, rate: float, count: int, pod_gpus: int = NODE) -> Iterator[Job]:
    """Yield `count` jobs by arrival, `rate` per second. Equal seeds give equal jobs."""
    rng = random.Random(seed)  # noqa: S311 - a simulation has to be repeatable, not secret
    cumulative = list(itertools.accumulate(size_class.share for size_class in stream.classes))
    now = 0.0
    for number in range(count):
        now += rng.expovariate(rate)
        index = min(bisect.bisect(cumulative, rng.random()), len(stream.classes) - 1)
        size_class = stream.classes[index]
        position = rng.random()
        share = size_class.max_quantile * position ** (1 / size_class.tail_exponent)
        duration = compute_quantile(stream.trace, stream.longest, share)
        pods, gpus = _split_into_pods(size_class.gpus, pod_gpus)
        yield Job(number, now, max(1.0, duration), pods, gpus)


def draw_running(stream: JobStream, *, seed: int, rate: float, pod_gpus: int = NODE) -> list[Job]:
    """Return the jobs that run when the simulation starts, as if jobs had always arrived at this rate.

    Assumes a cluster large enough for all. The number of each class is drawn from the Poisson distribution with mean
    rate x share x mean duration. Durations are drawn weighted by length, and part of each has passed.
    """
    rng = random.Random(seed)  # noqa: S311 - as above
    jobs = []
    for size_class in stream.classes:
        durations = _list_durations(stream.trace, stream.longest, size_class.max_quantile, size_class.tail_exponent)
        count = _draw_poisson(rng, rate * size_class.share * size_class.mean)
        for duration in rng.choices(durations, weights=durations, k=count):
            pods, gpus = _split_into_pods(size_class.gpus, pod_gpus)
            remaining = max(1.0, duration * rng.random())
            jobs.append(Job(0, 0.0, remaining, pods, gpus, is_initial=True))
    rng.shuffle(jobs)
    return [msgspec.structs.replace(job, number=-index) for index, job in enumerate(jobs, 1)]


def _draw_poisson(rng: random.Random, mean: float) -> int:
    """Return a number drawn from the Poisson distribution."""
    count, now = 0, rng.expovariate(1.0)
    while now < mean:
        count, now = count + 1, now + rng.expovariate(1.0)
    return count


def compute_rate(stream: JobStream, load: float, gpus: int) -> float:
    """Return the jobs per second that offer this share of the cluster's GPU time."""
    return load * gpus / stream.gpu_seconds


def compute_quantile(trace: Trace, longest: float, share: float) -> float:
    """Return the seconds within which this share of all jobs has ended; log-linear between the table's points."""
    percent = share * 100
    shares = (0.0, *map(float, trace.ended), 100.0)
    seconds = (1.0, *map(float, SECONDS), longest)
    index = min(bisect.bisect_left(shares, percent, lo=1), len(shares) - 1)
    low, high = shares[index - 1], shares[index]
    part = (percent - low) / (high - low) if high > low else 1.0
    return math.exp(math.log(seconds[index - 1]) * (1 - part) + math.log(seconds[index]) * part)


def _list_sizes(trace: Trace) -> Iterator[tuple[int, float, float]]:
    """Yield (GPUs, share of jobs, share of GPU time) of each size that has jobs."""
    last_jobs = last_time = 0.0
    columns = (*SIZES[:-1], 768, trace.largest)  # 513..1023 by its middle; above it the largest
    for gpus, jobs, time in zip(columns, (*trace.jobs, 100.0), (*trace.gpu_time, 100.0), strict=True):
        if jobs > last_jobs and time > last_time:
            yield gpus, (jobs - last_jobs) / 100, (time - last_time) / 100
        last_jobs, last_time = max(jobs, last_jobs), max(time, last_time)


def _build_class(trace: Trace, longest: float, gpus: int, share: float, mean: float) -> SizeClass:
    def compute_excess(max_quantile: float, tail_exponent: float) -> float:
        return _compute_mean(_list_durations(trace, longest, max_quantile, tail_exponent)) - mean

    is_shorter = compute_excess(1.0, 1.0) > 0
    max_quantile = _solve(lambda value: compute_excess(value, 1.0), 0.01, 1.0) if is_shorter else 1.0
    tail_exponent = 1.0 if is_shorter else _solve(lambda value: compute_excess(1.0, value), 1.0, _MAX_TAIL_EXPONENT)
    return SizeClass(gpus, share, max_quantile, tail_exponent, mean)


def _solve_longest(trace: Trace) -> float:
    def compute_excess(longest: float) -> float:
        return _compute_mean(_list_durations(trace, longest, 1.0, 1.0)) - trace.mean_seconds

    return _solve(compute_excess, float(SECONDS[-1]), LONGEST_DAYS * 86400)


def _list_durations(trace: Trace, longest: float, max_quantile: float, tail_exponent: float) -> Sequence[float]:
    """Return the durations of a class's jobs at even steps, shortest first."""
    return [
        compute_quantile(trace, longest, max_quantile * ((step + 0.5) / _STEPS) ** (1 / tail_exponent))
        for step in range(_STEPS)
    ]


def _compute_mean(durations: Sequence[float]) -> float:
    return sum(durations) / len(durations)


def _solve(compute_excess: Callable[[float], float], low: float, high: float) -> float:
    """Find the zero of an increasing function by bisection in logarithms; the nearest end if there is none."""
    for _ in range(30):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if compute_excess(middle) < 0 else (low, middle)
    return math.sqrt(low * high)


def _split_into_pods(gpus: int, pod_gpus: int) -> tuple[int, int]:
    """Return (pods, GPUs of each): one pod up to a node, pods of `pod_gpus` above."""
    return (1, gpus) if gpus <= NODE else (-(-gpus // pod_gpus), pod_gpus)
