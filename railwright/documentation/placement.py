"""Places one gang by each policy of the simulator, and formats the results as tables and pictures.

Owns the example: which nodes are busy, and how large the gang is. The simulator places the gang, with the extender's
own code for railwright. `drawings` draws the pictures. Every number is modelled, none is measured.
"""

import functools
import random
import statistics
from collections.abc import Sequence

import msgspec

from railwright.documentation import drawings
from railwright.simulator import choosers, loops, ours, schedulers, sites, streams, studies, world

SHAPE, RATIO = "coreweave", 7.0  # uneven leaves: the hardest published shape for a gang; uplinks oversubscribed 7:1
BUSY, GANG = 30, 8  # number of nodes that other jobs use, number of pods in the gang
DRAWS, SHOWN = range(1, 13), 3  # random seeds for the busy nodes, and the seed of the pictures, which flatters nobody
JOBS = 400  # number of jobs in the stream
_NAMES = {
    "none": "no extender",
    "binpack": "binpack",
    "greedy": "greedy with peers",
    "railwright": "railwright",
    "optimum": "exact optimum",
}


class GangPlacement(msgspec.Struct, frozen=True):
    """Nodes of a gang placed by one policy, and their modelled bandwidth."""

    policy: str
    bandwidth: float  # modelled, relative to an ideal placement
    leaves: int
    crossings: int  # ring edges between leaves
    hosts: tuple[int, ...]  # index of the node of each rank


class _ChooserWithBusyNodes:
    """Chooser that places the jobs of the start on the busy nodes, and leaves all others to another chooser."""

    def __init__(self, inner: choosers.Chooser, busy: Sequence[int]) -> None:
        self._inner, self._busy = inner, busy
        self.scale = inner.scale
        self.submitted, self.points, self.placed = inner.submitted, inner.points, inner.placed
        self.undone, self.bound, self.ended = inner.undone, inner.bound, inner.ended

    def whole(self, job: streams.Job, free: world.Free) -> Sequence[int] | None:
        """Return the busy node of a job that ran at the start, otherwise the inner chooser's nodes."""
        return [self._busy[job.number]] if job.before else self._inner.whole(job, free)


def scene() -> str:
    """Return the table of the single gang, in Markdown."""
    rows = [
        f"| {_NAMES[each.policy]} | {each.leaves} | {each.crossings} | {each.bandwidth:.2f} | {mean(each.policy):.2f} |"
        for each in place_gang()
    ]
    return "\n".join(
        [
            "| placed by | leaves | ring edges between leaves | modelled bandwidth | mean of 12 examples |",
            "|---|---|---|---|---|",
            *rows,
        ]
    )


def study() -> str:
    """Return the table of the job stream, in Markdown."""
    rows = [
        f"| {_NAMES[each.policy]} | {each.summary.modelled_busbw_of_optimum:.2f} | {each.summary.worst_gang:.2f} "
        f"| {each.summary.leaves_of_fewest:.2f} | {each.summary.avoidable_crossings} |"
        for each in _run_study()
    ]
    head = "| placed by | bandwidth / optimum | worst gang | leaves / fewest possible | avoidable crossings |"
    return "\n".join(
        [head, "|---|---|---|---|---|", *rows, "", f"{_run_study()[0].summary.gangs} gangs in {JOBS} jobs."]
    )


def pictures() -> dict[str, str]:
    """Return the text of each SVG file by its name."""
    leaves, spines = _leaves()
    drawn = {
        f"placement-{each.policy}.svg": drawings.fabric(
            _NAMES[each.policy],
            f"{each.leaves} lea{'f' if each.leaves == 1 else 'ves'}, modelled bandwidth {each.bandwidth:.2f}",
            leaves,
            spines,
            busy=frozenset(busy_nodes(SHOWN)),
            ranks={host: rank for rank, host in enumerate(each.hosts)},
        )
        for each in place_gang()
        if each.policy in {"none", "greedy", "railwright"}
    }
    bars = [(_NAMES[each.policy], each.summary.modelled_busbw_of_optimum) for each in _run_study()]
    return {**drawn, "placement-study.svg": drawings.bars("Modelled bandwidth of gangs, relative to the optimum", bars)}


@functools.cache
def place_gang(draw: int = SHOWN) -> tuple[GangPlacement, ...]:
    """Place the gang by each policy of the simulator, on the same free nodes."""
    return tuple(_place_by(policy, busy_nodes(draw)) for policy in studies.POLICIES)


def mean(policy: str) -> float:
    """Return the mean modelled bandwidth of the gang under one policy, over all random seeds."""
    return statistics.fmean(each.bandwidth for draw in DRAWS for each in place_gang(draw) if each.policy == policy)


def _place_by(policy: str, busy: Sequence[int]) -> GangPlacement:
    def make(on: world.World) -> choosers.Chooser:
        inner = ours.Railwright(on, announced=True) if policy == "railwright" else choosers.RIVALS[policy](on)
        return _ChooserWithBusyNodes(inner, busy)

    before = [streams.Job(number, 0.0, 9e9, 1, sites.GPUS, died=False, before=True) for number in range(BUSY)]
    gang = streams.Job(BUSY, 1.0, 60.0, GANG, sites.GPUS, died=False)
    placement = loops.Run(_site(), make, schedulers.Settings()).play([*before, gang]).placed[-1]
    crossings = _count_crossings(placement.hosts)
    return GangPlacement(policy, placement.value, placement.leaves, crossings, placement.hosts)


def _count_crossings(hosts: Sequence[int]) -> int:
    """Return the number of edges between two leaves in the ring of ranks."""
    leaf = [host.chain[0] for host in world.World(_site()).hosts]
    return sum(leaf[a] != leaf[b] for a, b in zip(hosts, [*hosts[1:], hosts[0]], strict=True))


@functools.cache
def _run_study() -> tuple[studies.Result, ...]:
    question = studies.Question(site=_site(), jobs=JOBS)
    jobs = studies.drawn(question)
    return tuple(studies.run(question, policy, jobs) for policy in studies.POLICIES)


@functools.cache
def _site() -> sites.Site:
    return sites.published(SHAPE, (RATIO,))


def busy_nodes(draw: int) -> tuple[int, ...]:
    """Return the indexes of the nodes that other jobs use."""
    nodes = range(len(_site().nodes))
    return tuple(random.Random(draw).sample(nodes, BUSY))  # noqa: S311 - the example must be repeatable, not secret


def _leaves() -> tuple[dict[str, list[int]], dict[str, str]]:
    """Return the nodes and the spine of each leaf, by the leaf's name without that of its spine."""
    on = world.World(_site())
    leaves: dict[str, list[int]] = {}
    spines: dict[str, str] = {}
    for index, host in enumerate(on.hosts):
        leaf, spine = (on.domains[number].name.partition(" in ")[0] for number in host.chain[:2])
        leaves.setdefault(leaf, []).append(index)
        spines[leaf] = spine
    return leaves, spines
