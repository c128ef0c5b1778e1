"""Assesses each placement at the time it was made, compared with the best possible then, and sums up a run.

All bandwidths are modelled. A single pod has no ring and no bandwidth; it counts only for NUMA splits, waiting and
utilization.
"""

from collections.abc import Callable, Sequence

import msgspec

from railwright.simulator import bandwidth_model, cluster, job_stream, kubelet, optimum


class PlacedJob(msgspec.Struct, frozen=True):
    """One job's placement and its assessment."""

    job: int
    pods: int
    gpus: int  # of all pods
    start: float  # seconds
    waited: float
    duration: float
    failed: bool
    is_initial: bool  # ran already when the simulation started; not counted in the summary
    hosts: tuple[int, ...]
    value: float  # modelled bandwidth, 0..1
    reached: float  # the same as `placement.goal` counts it
    best: float  # `reached` of the optimum on what was free
    leaves: int
    min_leaves: int  # fewest leaves with enough slots
    avoidable_crossings: int  # ring edges between leaves, if one leaf had enough slots at no less bandwidth
    rank_order_crossings: int  # ring edges that cross only because of the order of ranks
    splits: int  # pods on more NUMA nodes than they need
    avoidable_splits: int  # the same, if the job could have been placed without splits; otherwise 0
    misaligned: int  # rails on another NUMA node than the GPUs that use them

    @property
    def share(self) -> float:
        """Return `reached` relative to the optimum."""
        return self.reached / self.best if self.best else 1.0


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


def assess(  # noqa: PLR0913, PLR0917 - the facts of one placement
    sim_cluster: cluster.Cluster,
    job: job_stream.Job,
    free: cluster.FreeCapacity,
    hosts: Sequence[int],
    grants: Sequence[kubelet.Grant],
    now: float,
) -> PlacedJob:
    """Assess a placement, given the resources that were free before it."""
    splits = sum(grant.split for grant in grants)
    counted = cluster.apply_goal(sim_cluster, free)
    best = optimum.find_best(sim_cluster, counted, job.pods) if job.pods > 1 else None
    value, reached, best_value, min_leaves, crossings = 1.0, 1.0, 1.0, 1, 0
    actual = bandwidth_model.GangBandwidth(1.0, 1.0, 1.0, 1, 0, 0)
    if job.pods > 1:
        ranks = bandwidth_model.grant_ranks(free, hosts)
        actual = bandwidth_model.assess_gang(sim_cluster, free.demand, ranks)
        value = actual.total
        ranks = bandwidth_model.grant_ranks(counted, hosts)
        reached = bandwidth_model.assess_gang(sim_cluster, free.demand, ranks).total
        best_value = best.value if best else reached
        min_leaves = optimum.count_min_leaves(sim_cluster, free, job.pods)
        if actual.leaves > 1 and optimum.fits_one_leaf(sim_cluster, counted, job.pods, reached):
            crossings = actual.crossings
    can_unsplit = splits and counted is free and optimum.fits_unsplit(sim_cluster, free, job.pods, value, actual.leaves)
    avoidable_splits = splits if can_unsplit else 0
    return PlacedJob(
        job=job.number,
        pods=job.pods,
        gpus=job.size,
        start=now,
        waited=now - job.arrival,
        duration=job.duration,
        failed=job.failed,
        is_initial=job.is_initial,
        hosts=tuple(hosts),
        value=value,
        reached=reached,
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
    jobs = [job for job in placed if not job.is_initial]
    gangs = [job for job in jobs if job.pods > 1]
    shares = [gang.share for gang in gangs]
    return Summary(
        jobs=len(jobs),
        gangs=len(gangs),
        modelled_busbw_of_optimum=_compute_ratio(
            gangs, lambda gang: gang.reached * _compute_gpu_time(gang), lambda gang: gang.best * _compute_gpu_time(gang)
        ),
        modelled_busbw_of_optimum_per_gang=sum(shares) / len(shares) if shares else 1.0,
        worst_gang=min(shares, default=1.0),
        gangs_below=sum(share < 0.98 for share in shares),
        modelled_busbw=_compute_ratio(gangs, lambda gang: gang.value * _compute_gpu_time(gang), _compute_gpu_time),
        leaves_of_fewest=_compute_ratio(gangs, lambda gang: gang.leaves, lambda gang: gang.min_leaves),
        avoidable_crossings=sum(gang.avoidable_crossings for gang in gangs),
        rank_order_crossings=sum(gang.rank_order_crossings for gang in gangs),
        splits=sum(job.splits for job in jobs),
        avoidable_splits=sum(job.avoidable_splits for job in jobs),
        misaligned=sum(job.misaligned for job in jobs),
        mean_wait=sum(job.waited for job in jobs) / len(jobs) if jobs else 0.0,
        utilization=busy / (horizon * gpus) if horizon else 0.0,
    )


def _compute_gpu_time(job: PlacedJob) -> float:
    return job.gpus * job.duration


def _compute_ratio(
    gangs: Sequence[PlacedJob], numerator: Callable[[PlacedJob], float], denominator: Callable[[PlacedJob], float]
) -> float:
    total = sum(map(denominator, gangs))
    return sum(map(numerator, gangs)) / total if total else 1.0
