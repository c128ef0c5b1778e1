"""Places one gang in one cluster state by each policy of the simulator, and formats the results for the documentation.

Owns the scene: which nodes are busy, and the size of the gang. The simulator places; `railwright` is the real code.
`drawings` draws. Every number is modelled, none is measured.
"""

import functools
import random
import statistics
from collections.abc import Sequence

import msgspec

from documentation import drawings
from railwright.fabric import text
from railwright.simulator import (
    cluster,
    cluster_specs,
    experiments,
    job_stream,
    policies,
    railwright_policy,
    schedulers,
)

SHAPE, RATIO = "coreweave", 7.0  # uneven leaves, the hardest published shape for a gang; 7:1 oversubscribed uplinks
BUSY, GANG = 30, 8  # nodes in use by other jobs, pods of the gang
DRAWS, DRAWN = range(1, 13), 3  # random choices of these nodes, and the one in the pictures, not a favourable one
JOBS = 400  # of the stream
_NAMES = {
    "none": "no extender",
    "binpack": "binpack",
    "greedy": "greedy near peers",
    "railwright": "railwright",
    "optimum": "exact optimum",
}


class GangPlacement(msgspec.Struct, frozen=True):
    """The placement of the gang by one policy."""

    policy: str
    bandwidth: float  # modelled, relative to an ideal placement
    leaves: int
    crossings: int  # ring edges between leaves
    hosts: tuple[int, ...]  # of each rank


class _WithBusyNodes(policies.PlacementPolicy):
    """A policy on a cluster in which jobs of the initial state use fixed nodes."""

    def __init__(self, inner: policies.PlacementPolicy, busy: Sequence[int]) -> None:
        self._inner, self._busy = inner, busy
        self.scale = inner.scale
        for method in ("on_submit", "score", "on_assume", "on_forget", "on_bind", "on_end"):
            setattr(self, method, getattr(inner, method))

    def place_gang(self, job: job_stream.Job, free: cluster.FreeCapacity) -> Sequence[int] | None:
        """Return the fixed node of an initial job; for other jobs, ask the inner policy."""
        return [self._busy[job.number]] if job.is_initial else self._inner.place_gang(job, free)


def format_scene() -> str:
    """Return the table of the gang, in Markdown."""
    rows = [
        f"| {_NAMES[row.policy]} | {row.leaves} | {row.crossings} | {row.bandwidth:.2f} | {mean(row.policy):.2f} |"
        for row in place_gang()
    ]
    return "\n".join(
        [
            "| placed by | leaves | ring edges between leaves | modelled bandwidth | mean of 12 examples |",
            "|---|---|---|---|---|",
            *rows,
        ]
    )


def format_study() -> str:
    """Return the table of a stream of jobs, in Markdown."""
    rows = [
        f"| {_NAMES[row.policy]} | {row.summary.modelled_busbw_of_optimum:.2f} | {row.summary.worst_gang:.2f} "
        f"| {row.summary.leaves_of_fewest:.2f} | {row.summary.avoidable_crossings} |"
        for row in _run_experiment()
    ]
    head = "| placed by | bandwidth / optimum | worst gang | leaves / fewest possible | avoidable crossings |"
    return "\n".join(
        [head, "|---|---|---|---|---|", *rows, "", f"{_run_experiment()[0].summary.gangs} gangs in {JOBS} jobs."]
    )


def draw_pictures() -> dict[str, str]:
    """Return SVG text by file name."""
    leaves, spines = _group_leaves()
    drawn = {
        placement.policy: _describe(placement)
        for placement in place_gang()
        if placement.policy in {"none", "greedy", "railwright"}
    }
    bars = [(_NAMES[result.policy], result.summary.modelled_busbw_of_optimum) for result in _run_experiment()]
    return {
        **{
            f"placement-{policy}.svg": drawings.draw_fabric(placement, leaves, spines)
            for policy, placement in drawn.items()
        },
        "placement-compared.svg": drawings.compare((drawn["none"], drawn["railwright"]), leaves, spines),
        "placement-study.svg": drawings.draw_bars("Modelled bandwidth of gangs, relative to the optimum", bars),
    }


def _describe(gang: GangPlacement) -> drawings.Placement:
    return drawings.Placement(
        _NAMES[gang.policy],
        f"{text.format_count(gang.leaves, 'leaf')}, modelled bandwidth {gang.bandwidth:.2f}",
        busy=frozenset(list_busy_nodes(DRAWN)),
        ranks={host: rank for rank, host in enumerate(gang.hosts)},
    )


@functools.cache
def place_gang(draw: int = DRAWN) -> tuple[GangPlacement, ...]:
    """Place the gang by each policy of the simulator, on the same free nodes."""
    return tuple(_place_by(policy, list_busy_nodes(draw)) for policy in experiments.POLICIES)


def mean(policy: str) -> float:
    """Return the mean modelled bandwidth of the gang under one policy, over all draws."""
    return statistics.fmean(
        placement.bandwidth for draw in DRAWS for placement in place_gang(draw) if placement.policy == policy
    )


def _place_by(policy: str, busy: Sequence[int]) -> GangPlacement:
    def build_policy(sim_cluster: cluster.Cluster) -> policies.PlacementPolicy:
        if policy == "railwright":
            return _WithBusyNodes(railwright_policy.RailwrightPolicy(sim_cluster, has_events=True), busy)
        return _WithBusyNodes(policies.BASELINES[policy](sim_cluster), busy)

    gpus = cluster_specs.GPUS
    initial = [job_stream.Job(number, 0.0, 9e9, 1, gpus, failed=False, is_initial=True) for number in range(BUSY)]
    gang = job_stream.Job(BUSY, 1.0, 60.0, GANG, gpus, failed=False)
    placed = experiments.Simulation(_build_spec(), build_policy, schedulers.Settings()).run([*initial, gang]).placed[-1]
    crossings = _count_crossings(placed.hosts)
    return GangPlacement(policy, placed.value, placed.leaves, crossings, placed.hosts)


def _count_crossings(hosts: Sequence[int]) -> int:
    """Count the ring edges between different leaves, in rank order."""
    leaf = [host.chain[0] for host in cluster.Cluster(_build_spec()).hosts]
    return sum(leaf[a] != leaf[b] for a, b in zip(hosts, [*hosts[1:], hosts[0]], strict=True))


@functools.cache
def _run_experiment() -> tuple[experiments.Result, ...]:
    experiment = experiments.Experiment(spec=_build_spec(), jobs=JOBS)
    jobs = experiments.draw_jobs(experiment)
    return tuple(experiments.run(experiment, policy, jobs) for policy in experiments.POLICIES)


@functools.cache
def _build_spec() -> cluster_specs.ClusterSpec:
    return cluster_specs.build_from_catalogue(SHAPE, (RATIO,))


def list_busy_nodes(draw: int) -> tuple[int, ...]:
    """Return the nodes that other jobs use."""
    nodes = range(len(_build_spec().nodes))
    return tuple(random.Random(draw).sample(nodes, BUSY))  # noqa: S311 - a scene has to be repeatable, not secret


def _group_leaves() -> tuple[dict[str, list[int]], dict[str, str]]:
    """Return (leaf -> nodes, leaf -> spine). Names of leaves do not contain the spine."""
    sim_cluster = cluster.Cluster(_build_spec())
    leaves: dict[str, list[int]] = {}
    spines: dict[str, str] = {}
    for index, host in enumerate(sim_cluster.hosts):
        leaf, spine = (sim_cluster.domains[number].name.partition(" in ")[0] for number in host.chain[:2])
        leaves.setdefault(leaf, []).append(index)
        spines[leaf] = spine
    return leaves, spines
