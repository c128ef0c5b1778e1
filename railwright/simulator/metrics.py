"""What a placement was worth at the moment it was made, beside the best that could be had then; and sums of that.

Owns the figures of a run. All bandwidths are modelled. A single pod has no ring and no bandwidth; it counts for NUMA
splits, waiting and utilisation only.
"""

from collections.abc import Callable, Sequence

import msgspec

from railwright.simulator import kubelet, model, optimum, streams, world


class Case(msgspec.Struct, frozen=True):
    """All that is needed to look at one placement again: hosts by number, what was free, the optimum's ranks."""

    demand: kubelet.Demand
    free: tuple[
        tuple[int, int, kubelet.State], ...
    ]  # (host, pods of the gang it held, what was free) where it held any
    optimum: tuple[int, ...]
    optimum_leaves: int


class Placed(msgspec.Struct, frozen=True):
    """One job's placement, judged."""

    job: int
    pods: int
    gpus: int  # in all
    start: float  # seconds
    waited: float
    duration: float
    died: bool
    before: bool  # it ran when the simulation began: not in the figures
    hosts: tuple[int, ...]
    value: float  # modelled bandwidth, 0..1
    best: float  # of the optimum on what was free
    leaves: int
    fewest: int  # leaves that could have held it
    avoidable_crossings: int  # ring edges between leaves though one leaf had room for all at no less bandwidth
    disordered: int  # ring edges that cross only because of the order of ranks
    splits: int  # pods over more NUMA nodes than they need
    avoidable_splits: int  # of those, where the job could have been placed without any as well
    misaligned: int  # rails beside another NUMA node than their GPUs
    case: Case | None = None  # where it could have been better

    @property
    def share(self) -> float:
        """Modelled bandwidth of the optimum's."""
        return self.value / self.best if self.best else 1.0


class Summary(msgspec.Struct, frozen=True):
    """A run in figures; bandwidths and leaves of gangs only."""

    jobs: int
    gangs: int
    modelled_busbw_of_optimum: float  # GPU-time weighted: sum of bandwidth x GPU time over the optimum's
    modelled_busbw_of_optimum_per_gang: float  # mean over gangs
    worst_gang: float
    gangs_below: int  # worth less than 0.98 of their optimum
    modelled_busbw: float  # GPU-time weighted, of a link
    leaves_of_fewest: float
    avoidable_crossings: int
    disordered: int
    splits: int
    avoidable_splits: int
    misaligned: int
    mean_wait: float  # seconds
    utilisation: float  # of GPU time until the last arrival


def judged(  # noqa: PLR0913, PLR0917 - the facts of one placement
    on: world.World,
    job: streams.Job,
    free: world.Free,
    hosts: Sequence[int],
    grants: Sequence[kubelet.Grant],
    now: float,
) -> Placed:
    """Judge a placement against what was free before it."""
    splits = sum(grant.split for grant in grants)
    found = optimum.best(on, free, job.pods) if job.pods > 1 or splits else None
    value, best, fewest, crossings = 1.0, 1.0, 1, 0
    reached = model.Value(1.0, 1.0, 1.0, 1, 0, 0)
    if job.pods > 1:
        reached = model.of_gang(on, free.demand, model.from_free(free, hosts))
        value, best = reached.total, found.value if found else reached.total
        fewest = optimum.fewest_leaves(on, free, job.pods)
        if reached.leaves > 1 and optimum.holds_in_one_leaf(on, free, job.pods, value):
            crossings = reached.crossings
    avoidable = splits if splits and optimum.unsplit(on, free, job.pods, value, reached.leaves) else 0
    better = value < best or crossings or reached.disordered or avoidable
    return Placed(
        job=job.number,
        pods=job.pods,
        gpus=job.size,
        start=now,
        waited=now - job.arrival,
        duration=job.duration,
        died=job.died,
        before=job.before,
        hosts=tuple(hosts),
        value=value,
        best=best,
        leaves=reached.leaves,
        fewest=fewest,
        avoidable_crossings=crossings,
        disordered=reached.disordered,
        splits=splits,
        avoidable_splits=avoidable,
        misaligned=sum(grant.misaligned for grant in grants),
        case=_case(on, free, hosts, grants, found) if better and found else None,
    )


def _case(
    on: world.World, free: world.Free, hosts: Sequence[int], grants: Sequence[kubelet.Grant], best: optimum.Best
) -> Case:
    """The state before: the present one and what the placement took of it."""
    taken = dict[int, list[kubelet.Grant]]()
    for host, grant in zip(hosts, grants, strict=True):
        taken.setdefault(host, []).append(grant)
    rows = []
    for host, state in enumerate(on.states):
        if held := len(free.grants[host]):
            before = state
            for grant in taken.get(host, ()):
                before = kubelet.returned(before, grant)
            rows.append((host, held, before))
    return Case(free.demand, tuple(rows), best.hosts, best.leaves)


def summary(placed: Sequence[Placed], *, horizon: float, busy: float, gpus: int) -> Summary:
    """The figures of a run."""
    placed = [each for each in placed if not each.before]
    gangs = [each for each in placed if each.pods > 1]
    shares = [each.share for each in gangs]
    return Summary(
        jobs=len(placed),
        gangs=len(gangs),
        modelled_busbw_of_optimum=_ratio(
            gangs, lambda each: each.value * _time(each), lambda each: each.best * _time(each)
        ),
        modelled_busbw_of_optimum_per_gang=sum(shares) / len(shares) if shares else 1.0,
        worst_gang=min(shares, default=1.0),
        gangs_below=sum(share < 0.98 for share in shares),
        modelled_busbw=_ratio(gangs, lambda each: each.value * _time(each), _time),
        leaves_of_fewest=_ratio(gangs, lambda each: each.leaves, lambda each: each.fewest),
        avoidable_crossings=sum(each.avoidable_crossings for each in gangs),
        disordered=sum(each.disordered for each in gangs),
        splits=sum(each.splits for each in placed),
        avoidable_splits=sum(each.avoidable_splits for each in placed),
        misaligned=sum(each.misaligned for each in placed),
        mean_wait=sum(each.waited for each in placed) / len(placed) if placed else 0.0,
        utilisation=busy / (horizon * gpus) if horizon else 0.0,
    )


def _time(each: Placed) -> float:
    return each.gpus * each.duration


def _ratio(gangs: Sequence[Placed], over: Callable[[Placed], float], under: Callable[[Placed], float]) -> float:
    total = sum(map(under, gangs))
    return sum(map(over, gangs)) / total if total else 1.0
