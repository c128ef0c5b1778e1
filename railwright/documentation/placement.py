"""One gang in one cluster state, placed by each policy of the simulator, and the pictures and numbers of it.

Owns the scene: which nodes are busy, how large the gang is. The choices are the simulator's, ours the real code's; how
they are drawn is `drawings`'. Every number is modelled, none is measured.
"""

import functools
import random
import statistics
from collections.abc import Sequence

import msgspec

from railwright.documentation import drawings
from railwright.simulator import choosers, loops, ours, schedulers, sites, streams, studies, world

SHAPE, RATIO = "coreweave", 7.0  # uneven leaves, the published shape that is hardest on a gang; links 7:1 up
BUSY, GANG = 30, 8  # nodes that other jobs hold, pods of the gang
DRAWS, SHOWN = range(1, 13), 3  # draws of those nodes by chance, and the one in the pictures: not a flattering one
JOBS = 400  # of the stream
_NAMES = {
    "none": "no extender",
    "binpack": "binpack",
    "greedy": "greedy with mates",
    "railwright": "railwright",
    "optimum": "exact optimum",
}


class GangPlacement(msgspec.Struct, frozen=True):
    """Where the gang landed under one policy, and what that is worth."""

    policy: str
    bandwidth: float  # modelled, of an ideal placement
    leaves: int
    crossings: int  # ring edges between leaves
    hosts: tuple[int, ...]  # of each rank


class _Held:
    """A chooser before which some nodes are already taken: by the jobs that ran when the scene begins."""

    def __init__(self, inner: choosers.Chooser, busy: Sequence[int]) -> None:
        self._inner, self._busy = inner, busy
        self.scale = inner.scale
        self.submitted, self.points, self.placed = inner.submitted, inner.points, inner.placed
        self.undone, self.bound, self.ended = inner.undone, inner.bound, inner.ended

    def whole(self, job: streams.Job, free: world.Free) -> Sequence[int] | None:
        """The node of a job that ran before; everything else as the chooser inside has it."""
        return [self._busy[job.number]] if job.before else self._inner.whole(job, free)


def scene() -> str:
    """Markdown: the table of the one gang."""
    rows = [
        f"| {_NAMES[each.policy]} | {each.leaves} | {each.crossings} | {each.bandwidth:.2f} | {mean(each.policy):.2f} |"
        for each in place_gang()
    ]
    return "\n".join(
        [
            "| placed by | leaves | ring edges between leaves | modelled bandwidth | mean of 12 draws |",
            "|---|---|---|---|---|",
            *rows,
        ]
    )


def study() -> str:
    """Markdown: the table of a stream of jobs."""
    rows = [
        f"| {_NAMES[each.policy]} | {each.summary.modelled_busbw_of_optimum:.2f} | {each.summary.worst_gang:.2f} "
        f"| {each.summary.leaves_of_fewest:.2f} | {each.summary.avoidable_crossings} |"
        for each in _run_study()
    ]
    head = (
        "| placed by | of the optimum's bandwidth | worst gang | leaves, of the fewest possible | avoidable crossings |"
    )
    return "\n".join(
        [head, "|---|---|---|---|---|", *rows, "", f"{_run_study()[0].summary.gangs} gangs in {JOBS} jobs."]
    )


def pictures() -> dict[str, str]:
    """SVG text by the name of the file."""
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
    return {**drawn, "placement-study.svg": drawings.bars("Modelled bandwidth of gangs, of the optimum's", bars)}


@functools.cache
def place_gang(draw: int = SHOWN) -> tuple[GangPlacement, ...]:
    """The gang, by each policy of the simulator, on the same free nodes."""
    return tuple(_place_by(policy, busy_nodes(draw)) for policy in studies.POLICIES)


def mean(policy: str) -> float:
    """The modelled bandwidth of the gang under one policy, over all draws."""
    return statistics.fmean(each.bandwidth for draw in DRAWS for each in place_gang(draw) if each.policy == policy)


def _place_by(policy: str, busy: Sequence[int]) -> GangPlacement:

    def make(on: world.World) -> choosers.Chooser:
        inner = ours.Railwright(on, announced=True) if policy == "railwright" else choosers.RIVALS[policy](on)
        return _Held(inner, busy)

    before = [streams.Job(number, 0.0, 9e9, 1, sites.GPUS, died=False, before=True) for number in range(BUSY)]
    gang = streams.Job(BUSY, 1.0, 60.0, GANG, sites.GPUS, died=False)
    found = loops.Run(_site(), make, schedulers.Settings()).play([*before, gang]).placed[-1]
    crossings = _crossings(found.hosts)
    return GangPlacement(policy, found.value, found.leaves, crossings, found.hosts)


def _crossings(hosts: Sequence[int]) -> int:
    """Ring edges of a gang by rank that lie between two leaves."""
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
    """The nodes that other jobs hold."""
    nodes = range(len(_site().nodes))
    return tuple(random.Random(draw).sample(nodes, BUSY))  # noqa: S311 - a scene has to repeat, not to be secret


def _leaves() -> tuple[dict[str, list[int]], dict[str, str]]:
    """(nodes of each leaf, the spine of each leaf), by name; a leaf's name is without its spine's."""
    on = world.World(_site())
    leaves: dict[str, list[int]] = {}
    spines: dict[str, str] = {}
    for index, host in enumerate(on.hosts):
        leaf, spine = (on.domains[number].name.partition(" in ")[0] for number in host.chain[:2])
        leaves.setdefault(leaf, []).append(index)
        spines[leaf] = spine
    return leaves, spines
