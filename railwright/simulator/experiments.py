"""Runs an experiment: one stream of jobs on one cluster under several policies, with the same jobs and seed for all.

Owns what is compared. Prints nothing.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from railwright.simulator import (
    cluster,
    cluster_specs,
    job_stream,
    metrics,
    policies,
    railwright_policy,
    schedulers,
    simulation,
)

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
    outcome: simulation.Outcome
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
    on_progress: Callable[[int], None] = simulation.ignore_progress,
) -> Result:
    """Run one policy on these jobs."""
    factory = _build_factories(experiment)[policy]
    sim = simulation.Simulation(experiment.spec, factory, experiment.settings, on_progress)
    outcome = sim.run(jobs)
    used_policy = sim.policy
    if isinstance(used_policy, railwright_policy.RailwrightPolicy):
        return Result(policy, outcome.summary, outcome, used_policy.decisions, used_policy.seconds)
    return Result(policy, outcome.summary, outcome)


def _build_factories(experiment: Experiment) -> Mapping[str, simulation.PolicyFactory]:
    settings = experiment.settings
    is_volcano, has_reports = settings.kind == "volcano", settings.reports

    def build_railwright(sim_cluster: cluster.Cluster) -> policies.PlacementPolicy:
        return railwright_policy.RailwrightPolicy(sim_cluster, has_events=is_volcano, has_reports=has_reports)

    return {**policies.BASELINES, "railwright": build_railwright}
