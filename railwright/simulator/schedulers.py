"""The schedulers' own part of a choice: which nodes they offer, what they think of them, how they add our points.

Sources: volcano-sh/volcano pkg/scheduler/util/scheduler_helper.go and plugins/nodeorder; kubernetes
pkg/scheduler/schedule_one.go and extender.go. Knows no policy and no gang.
"""

import random
from collections.abc import Sequence

import msgspec

from railwright.fabric.placement import priorities
from railwright.simulator import kubelet, world

LEAST_OFFERED, LEAST_PERCENT, BASE_PERCENT, NODES_A_PERCENT = 100, 5, 50, 125  # both schedulers' adaptive sample
CORES, CORES_A_GPU = 128.0, 12.0  # of a node, and what training pods ask of them
MEMORY, MEMORY_A_GPU = 2048.0, 200.0  # GiB
AGENTS_CORES, AGENTS_MEMORY = 24.0, 64.0  # daemons of uneven size on every node take up to this: the noise
KUBE_WEIGHT = 5  # as in our example configuration
_KUBE_POINTS = 10  # MaxNodeScore / MaxExtenderPriority


class Settings(msgspec.Struct, frozen=True):
    """How a run's scheduler works."""

    kind: str = "volcano"  # or kube
    sample_all: bool = True
    seed: int = 1
    reports: bool = True  # NodeResourceTopology objects are there, up to date; else NUMA is inferred from node shapes


class Scheduler:
    """Offers nodes and weighs them; one for a run."""

    def __init__(self, on: world.World, settings: Settings) -> None:
        self.settings = settings
        self._on = on
        self._start = 0
        self._chance = random.Random(settings.seed)  # noqa: S311 - a simulation has to repeat
        self._agents = [
            (self._chance.uniform(0, AGENTS_CORES) / CORES, self._chance.uniform(0, AGENTS_MEMORY) / MEMORY)
            for _ in on.hosts
        ]
        self._own: dict[int, list[float]] = {}  # GPUs of the pod -> own points of each host
        on.watchers.append(self._renew)

    def offered(self, book: world.Book) -> list[int]:
        """The feasible hosts, or the sample of them that the scheduler looks at."""
        rooms = book.rooms
        wanted = len(rooms) if self.settings.sample_all else to_find(len(rooms))
        if wanted >= len(rooms):
            return [host for host, room in enumerate(rooms) if room]
        found = []
        for step in range(len(rooms)):
            host = (self._start + step) % len(rooms)
            if rooms[host]:
                found.append(host)
                if len(found) == wanted:
                    self._start = (host + 1) % len(rooms)
                    break
        return found

    def chosen(self, offered: Sequence[int], points: Sequence[float | None], gpus: int, scale: float) -> int | None:
        """The host with most points in all; None where all are refused. `points`: 0..100, None for a refused host."""
        own = self._points(gpus)
        if self.settings.kind == "kube":
            step = KUBE_WEIGHT * _KUBE_POINTS
            whole = priorities.Priorities(best=max((point for point in points if point is not None), default=0.0))
            totals = [
                -1.0 if point is None else whole[point] * step + own[host]
                for host, point in zip(offered, points, strict=True)
            ]
        else:
            totals = [(point or 0.0) * scale + own[host] for host, point in zip(offered, points, strict=True)]
        most = max(totals)
        if most < 0:
            return None
        ties = [host for host, total in zip(offered, totals, strict=True) if total == most]
        return ties[0] if len(ties) == 1 else self._chance.choice(ties)

    def _points(self, gpus: int) -> list[float]:
        found = self._own.get(gpus)
        if found is None:
            found = self._own[gpus] = [self._of(host, state, gpus) for host, state in enumerate(self._on.states)]
        return found

    def _renew(self, host: int, state: kubelet.State) -> None:
        for gpus, points in self._own.items():
            points[host] = self._of(host, state, gpus)

    def _of(self, host: int, state: kubelet.State, gpus: int) -> float:
        """LeastAllocated and BalancedAllocation, weight 1 each, of processors and memory with the pod there: 0..200."""
        busy = sum(self._on.hosts[host].hardware.gpus) - sum(state[0]) + gpus
        cores = self._agents[host][0] + busy * CORES_A_GPU / CORES
        memory = self._agents[host][1] + busy * MEMORY_A_GPU / MEMORY
        return 100 * (1 - (cores + memory) / 2) + 100 * (1 - abs(cores - memory) / 2)


def to_find(nodes: int) -> int:
    """Feasible nodes after which both schedulers stop looking, by default."""
    if nodes <= LEAST_OFFERED:
        return nodes
    percent = max(LEAST_PERCENT, BASE_PERCENT - nodes // NODES_A_PERCENT)
    return max(LEAST_OFFERED, nodes * percent // 100)
