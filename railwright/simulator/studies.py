"""A study: one stream through one site under several policies, jobs and seed the same for all.

Owns what is compared and the reproduction of a single placement. Prints nothing.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from railwright.simulator import choosers, loops, metrics, ours, schedulers, sites, streams, world

POLICIES = ("none", "binpack", "greedy", "railwright", "optimum")


def _silent(placed: int) -> None:
    """Nobody listens."""
    del placed


class Question(msgspec.Struct, frozen=True):
    """What to simulate."""

    site: sites.Site
    stream: str = "seren"
    load: float | None = 0.9  # offered share of the cluster's GPU time; None: as many jobs a day as published
    jobs: int | None = None
    days: float | None = None
    pod_gpus: int = streams.NODE
    settings: schedulers.Settings = schedulers.Settings()


class Result(msgspec.Struct, frozen=True):
    """One policy's run."""

    policy: str
    summary: metrics.Summary
    outcome: loops.Outcome
    decisions: int = 0  # of railwright's
    decision_seconds: float = 0.0


def drawn(question: Question) -> list[streams.Job]:
    """The jobs, those that run at the beginning first."""
    gpus = world.World(question.site).gpus
    of = streams.stream(question.stream, largest=max(1, gpus // 2))
    rate = of.trace.jobs_a_day / 86400 if question.load is None else streams.rate_for(of, question.load, gpus)
    seed, pod_gpus = question.settings.seed, question.pod_gpus
    until = None if question.days is None else question.days * 86400
    arriving = streams.jobs(of, seed=seed, rate=rate, count=question.jobs, until=until, pod_gpus=pod_gpus)
    return [*streams.running(of, seed=seed, rate=rate, pod_gpus=pod_gpus), *arriving]


def run(question: Question, policy: str, jobs: Sequence[streams.Job], tell: Callable[[int], None] = _silent) -> Result:
    """One policy on these jobs."""
    play = loops.Run(question.site, _makers(question)[policy], question.settings, tell)
    outcome = play.play(jobs)
    asked = play.chooser
    decisions, seconds = (asked.decisions, asked.seconds) if isinstance(asked, ours.Railwright) else (0, 0.0)
    return Result(policy, outcome.summary, outcome, decisions, seconds)


def _makers(question: Question) -> Mapping[str, loops.Making]:
    settings = question.settings
    announced, reported = settings.kind == "volcano", settings.reports

    def railwright(on: world.World) -> choosers.Chooser:
        return ours.Railwright(on, announced=announced, reported=reported)

    return {**choosers.RIVALS, "railwright": railwright}
