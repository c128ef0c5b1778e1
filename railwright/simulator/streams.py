"""Streams of jobs after the published distributions: sizes, durations, early deaths, arrivals.

How both tables are met: a job's size class is drawn by the table of jobs. The mean duration of each class then follows
from the table of GPU time (its share of GPU time over its share of jobs and its GPUs) and from the trace's mean. The
durations of a class are the published ones of all jobs, without the longest (quantile u * cut) where that mean is
shorter and bent towards long (quantile u ** (1/bend)) where it is longer. So shares of jobs and of GPU time hold in
expectation, and the durations of all jobs within a few points: small jobs, most of them, only lose the longest.
The published durations include jobs that died: who dies is drawn among the shorter ones of each class, so that the
dead are FAILED of the jobs and take FAILED_GPU_TIME of their GPU time. Arrivals are Poisson; day and night are not
modelled. A simulation begins with the jobs that would be running then, each with the rest of its life, so that it does
not begin empty.
"""

import bisect
import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence

import msgspec

from railwright.simulator import distributions

NODE = 8  # GPUs of a pod in jobs of more than one node
_STEPS = 400  # of the numeric mean
_MOST_BENT = 64.0


class Job(msgspec.Struct, frozen=True):
    """One job: `pods` equal pods of `gpus` GPUs each."""

    number: int
    arrival: float  # seconds from the start
    duration: float  # seconds
    pods: int
    gpus: int
    died: bool
    before: bool = False  # it ran when the simulation began: part of the state, not of the figures

    @property
    def size(self) -> int:
        """GPUs in all."""
        return self.pods * self.gpus

    @property
    def gpu_seconds(self) -> float:
        """What it takes of the cluster."""
        return self.size * self.duration


class Class(msgspec.Struct, frozen=True):
    """Jobs of one size."""

    gpus: int
    share: float  # of jobs
    cut: float  # 0..1: the quantile of the longest
    bend: float  # 1 or more: longer than all jobs'
    mean: float  # seconds
    mortal: float  # share of its jobs, the shortest ones, among whom the dead are drawn


class Stream(msgspec.Struct, frozen=True):
    """What jobs are drawn from."""

    trace: distributions.Trace
    classes: tuple[Class, ...]
    longest: float  # seconds; no maximum is published: the end of the last step that gives the published mean

    @property
    def gpu_seconds(self) -> float:
        """Mean of a job."""
        return sum(each.share * each.mean * each.gpus for each in self.classes)


def stream(name: str, *, largest: int) -> Stream:
    """The published stream without the jobs of more than `largest` GPUs, the other shares kept to each other."""
    trace = distributions.TRACES[name]
    sizes = list(_classes(trace))
    total = 1 / sum(time / gpus for gpus, _, time in sizes if time) * trace.mean_seconds  # GPU seconds of a mean job
    kept = [(gpus, share, total * time / (share * gpus)) for gpus, share, time in sizes if gpus <= largest]
    shares = sum(share for _, share, _ in kept)
    longest = _longest(trace)
    classes = tuple(_class(trace, longest, gpus, share / shares, mean) for gpus, share, mean in kept)
    return Stream(trace, classes, longest)


def jobs(  # noqa: PLR0913 - the knobs of a stream
    of: Stream, *, seed: int, rate: float, count: int | None = None, until: float | None = None, pod_gpus: int = NODE
) -> Iterator[Job]:
    """Jobs in order of arrival, `rate` a second, up to a count or a time. Equal seeds give equal jobs."""
    chance = random.Random(seed)  # noqa: S311 - a simulation has to repeat, not to be secret
    cumulated = list(itertools.accumulate(each.share for each in of.classes))
    now = 0.0
    for number in itertools.count():
        now += chance.expovariate(rate)
        if number == count or (until is not None and now > until):
            return
        found = min(bisect.bisect(cumulated, chance.random()), len(of.classes) - 1)
        drawn = of.classes[found]
        place = chance.random()
        lived = quantile(of.trace, of.longest, drawn.cut * place ** (1 / drawn.bend))
        died = place < drawn.mortal and chance.random() < distributions.FAILED / drawn.mortal
        pods, gpus = _pods(drawn.gpus, pod_gpus)
        yield Job(number, now, max(1.0, lived), pods, gpus, died)


def running(of: Stream, *, seed: int, rate: float, pod_gpus: int = NODE) -> list[Job]:
    """Jobs that run when the simulation begins, were the cluster large enough: arrivals without end of this rate.

    Of each class Poisson many with mean rate x share x mean duration, lives drawn by their length, part of it over.
    """
    chance = random.Random(seed)  # noqa: S311 - as above
    found = []
    for each in of.classes:
        lives = _lives(of.trace, of.longest, each.cut, each.bend)
        for life in chance.choices(lives, weights=lives, k=_poisson(chance, rate * each.share * each.mean)):
            pods, gpus = _pods(each.gpus, pod_gpus)
            found.append(Job(0, 0.0, max(1.0, life * chance.random()), pods, gpus, died=False, before=True))
    chance.shuffle(found)
    return [msgspec.structs.replace(job, number=-index) for index, job in enumerate(found, 1)]


def _poisson(chance: random.Random, mean: float) -> int:
    """How many arrive in a time in which `mean` do."""
    count, now = 0, chance.expovariate(1.0)
    while now < mean:
        count, now = count + 1, now + chance.expovariate(1.0)
    return count


def rate_for(of: Stream, load: float, gpus: int) -> float:
    """Jobs a second that offer this share of the cluster's GPU time."""
    return load * gpus / of.gpu_seconds


def quantile(trace: distributions.Trace, longest: float, share: float) -> float:
    """Seconds within which this share of all jobs has ended: between the table's points straight in log time."""
    at = share * 100
    shares = (0.0, *map(float, trace.ended), 100.0)
    seconds = (1.0, *map(float, distributions.SECONDS), longest)
    index = min(bisect.bisect_left(shares, at, lo=1), len(shares) - 1)
    low, high = shares[index - 1], shares[index]
    part = (at - low) / (high - low) if high > low else 1.0
    return math.exp(math.log(seconds[index - 1]) * (1 - part) + math.log(seconds[index]) * part)


def _classes(trace: distributions.Trace) -> Iterator[tuple[int, float, float]]:
    """(GPUs, share of jobs, share of GPU time) of each size that has jobs."""
    jobs_before = time_before = 0.0
    columns = (*distributions.SIZES[:-1], 768, trace.largest)  # 513..1023 by its middle; above it the largest
    for gpus, jobs_at, time_at in zip(columns, (*trace.jobs, 100.0), (*trace.gpu_time, 100.0), strict=True):
        if jobs_at > jobs_before and time_at > time_before:
            yield gpus, (jobs_at - jobs_before) / 100, (time_at - time_before) / 100
        jobs_before, time_before = max(jobs_at, jobs_before), max(time_at, time_before)


def _class(trace: distributions.Trace, longest: float, gpus: int, share: float, mean: float) -> Class:
    def excess(cut: float, bend: float) -> float:
        return _mean(_lives(trace, longest, cut, bend)) - mean

    shorter = excess(1.0, 1.0) > 0
    cut = _solved(lambda cut: excess(cut, 1.0), 0.01, 1.0) if shorter else 1.0
    bend = 1.0 if shorter else _solved(lambda bend: excess(1.0, bend), 1.0, _MOST_BENT)
    return Class(gpus, share, cut, bend, mean, _mortal(_lives(trace, longest, cut, bend)))


def _longest(trace: distributions.Trace) -> float:
    def excess(longest: float) -> float:
        return _mean(_lives(trace, longest, 1.0, 1.0)) - trace.mean_seconds

    return _solved(excess, float(distributions.SECONDS[-1]), distributions.LONGEST)


def _lives(trace: distributions.Trace, longest: float, cut: float, bend: float) -> Sequence[float]:
    """Durations at even steps of a class's jobs, the shortest first."""
    return [quantile(trace, longest, cut * ((step + 0.5) / _STEPS) ** (1 / bend)) for step in range(_STEPS)]


def _mean(lives: Sequence[float]) -> float:
    return sum(lives) / len(lives)


def _mortal(lives: Sequence[float]) -> float:
    """Of so many of the shortest jobs, drawn evenly, FAILED of all jobs take FAILED_GPU_TIME."""
    total, lived = sum(lives), 0.0
    for count, life in enumerate(lives, 1):
        lived += life
        share = count / len(lives)
        taken = lived / total * distributions.FAILED / share  # of the class's GPU time
        if share >= distributions.FAILED and taken >= distributions.FAILED_GPU_TIME:
            return share
    return 1.0


def _solved(excess: Callable[[float], float], low: float, high: float) -> float:
    """Where a growing function is 0, found by halving in logarithms; the nearest end where it is nowhere."""
    for _ in range(30):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if excess(middle) < 0 else (low, middle)
    return math.sqrt(low * high)


def _pods(gpus: int, pod_gpus: int) -> tuple[int, int]:
    """(pods, GPUs of each): one pod up to a node, pods of `pod_gpus` beyond."""
    return (1, gpus) if gpus <= NODE else (-(-gpus // pod_gpus), pod_gpus)
