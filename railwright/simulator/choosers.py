"""The policies that are compared: what each would have the scheduler do with one pod of a gang.

Owns the rivals (none, binpack, greedy with mates) and the optimum, which places directly. Ours is in `ours`, for it is
the real code. Each knows only what an extender in its place would know.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from railwright.simulator import optimum, streams, world


class Task(msgspec.Struct, frozen=True):
    """One pod to be placed."""

    job: streams.Job
    rank: int


class Chooser(Protocol):
    """A policy beside a scheduler. Events may be ignored."""

    scale: float  # what its 0..100 are multiplied with where scores are added raw

    def submitted(self, job: streams.Job) -> None:
        """A job waits."""

    def points(self, task: Task, offered: Sequence[int]) -> Sequence[float | None] | None:
        """0..100 for each offered host, None for one that is refused; None where there is nothing to say."""

    def placed(self, task: Task, host: int) -> None:
        """The scheduler took a host."""

    def undone(self, task: Task) -> None:
        """The scheduler took it back."""

    def bound(self, job: streams.Job, hosts: Sequence[int]) -> None:
        """The whole gang runs."""

    def ended(self, job: streams.Job) -> None:
        """The job is gone."""

    def whole(self, job: streams.Job, free: world.Free) -> Sequence[int] | None:
        """All hosts at once, for a policy that no scheduler stands before."""


class Silent:
    """No extender: the scheduler's own points decide (nodeorder: spread)."""

    scale = 0.0

    def __init__(self, on: world.World) -> None:
        self._on = on

    def submitted(self, job: streams.Job) -> None:
        """Nothing to remember."""

    def points(self, task: Task, offered: Sequence[int]) -> Sequence[float | None] | None:  # noqa: ARG002 - a protocol
        """Nothing to say."""
        return None

    def placed(self, task: Task, host: int) -> None:
        """Nothing to remember."""

    def undone(self, task: Task) -> None:
        """Nothing to forget."""

    def bound(self, job: streams.Job, hosts: Sequence[int]) -> None:
        """Nothing to remember."""

    def ended(self, job: streams.Job) -> None:
        """Nothing to forget."""

    def whole(self, job: streams.Job, free: world.Free) -> Sequence[int] | None:  # noqa: ARG002 - a protocol
        """The scheduler chooses."""
        return None


class Binpack(Silent):
    """The fullest node that fits: Volcano's binpack over accelerators, kube-scheduler's MostAllocated."""

    scale = 10.0  # binpack.weight of Volcano's own example

    def points(self, task: Task, offered: Sequence[int]) -> Sequence[float | None] | None:
        """The share of the node's GPUs in use with the pod there."""
        return [100 * share(self._on, host, task.job.gpus) for host in offered]


class Greedy(Silent):
    """Close to the mates placed so far, then the fullest node; no plan, so the first pod goes anywhere."""

    scale = 10.0
    _LEAF, _SPINE, _PACKING = 75.0, 25.0, 25.0

    def __init__(self, on: world.World) -> None:
        super().__init__(on)
        self._chains: dict[int, list[tuple[int, ...]]] = {}

    def points(self, task: Task, offered: Sequence[int]) -> Sequence[float | None] | None:
        """A mate's leaf before a mate's spine before all others; fuller nodes first inside."""
        mates = self._chains.get(task.job.number, ())
        leaves, spines = {chain[:1] for chain in mates}, {chain[1:2] for chain in mates}
        points = []
        for host in offered:
            chain = self._on.hosts[host].chain
            near = self._LEAF if chain[:1] in leaves else self._SPINE if chain[1:2] in spines else 0.0
            points.append(near + self._PACKING * share(self._on, host, task.job.gpus))
        return points

    def placed(self, task: Task, host: int) -> None:
        """A mate sits there."""
        self._chains.setdefault(task.job.number, []).append(self._on.hosts[host].chain)

    def undone(self, task: Task) -> None:
        """No mate there any more; they go in reverse order."""
        self._chains[task.job.number].pop()

    def ended(self, job: streams.Job) -> None:
        """Nobody asks again."""
        self._chains.pop(job.number, None)


class Optimal(Silent):
    """The optimum of each gang, placed directly: what could be had at that moment."""

    def whole(self, job: streams.Job, free: world.Free) -> Sequence[int] | None:
        """The hosts of the optimum; single pods go to the fullest node that takes them from the fewest NUMA nodes."""
        if job.pods > 1:
            found = optimum.best(self._on, free, job.pods)
            return found.hosts if found else None
        fitting = [host for host, grants in enumerate(free.grants) if grants]
        return [min(fitting, key=lambda host: (free.grants[host][0].split, -share(self._on, host, job.gpus), host))]


def share(on: world.World, host: int, gpus: int) -> float:
    """The share of a host's GPUs in use with so many more."""
    has = sum(on.hosts[host].hardware.gpus)
    return (has - sum(on.states[host][0]) + gpus) / has


RIVALS: Mapping[str, Callable[[world.World], Chooser]] = {
    "none": Silent,
    "binpack": Binpack,
    "greedy": Greedy,
    "optimum": Optimal,
}
