"""Models the schedulers' part of a choice: which nodes they offer, their own scores, and how they add the extender's.

Sources: volcano-sh/volcano pkg/scheduler/util/scheduler_helper.go and plugins/nodeorder; kubernetes
pkg/scheduler/schedule_one.go and extender.go. Knows no policy and no gang.
"""

import random
from collections.abc import Sequence

import msgspec

from railwright.fabric.placement.nodes import score_terms
from railwright.simulator import cluster, kubelet

MIN_FEASIBLE, MIN_PERCENT, BASE_PERCENT, NODES_PER_PERCENT = 100, 5, 50, 125  # both schedulers' adaptive sample
CORES, CORES_PER_GPU = 128.0, 12.0  # of a node, and requested by training pods
MEMORY, MEMORY_PER_GPU = 2048.0, 200.0  # GiB
AGENT_CORES, AGENT_MEMORY = 24.0, 64.0  # upper bound of other pods of uneven size on every node, the noise
KUBE_WEIGHT = 5  # as in the example configuration of manifests/
_KUBE_SCALE = 10  # MaxNodeScore / MaxExtenderPriority


class Settings(msgspec.Struct, frozen=True):
    """The settings of a run's scheduler."""

    kind: str = "volcano"  # or kube
    sample_all: bool = True
    seed: int = 1
    reports: bool = True  # current NodeResourceTopology objects exist; else NUMA is inferred from node shapes


class Scheduler:
    """Offers and chooses hosts. One for each run."""

    def __init__(self, sim_cluster: cluster.Cluster, settings: Settings) -> None:
        self.settings = settings
        self._cluster = sim_cluster
        self._start = 0
        self._rng = random.Random(settings.seed)  # noqa: S311 - a simulation has to be repeatable
        self._agents = [
            (self._rng.uniform(0, AGENT_CORES) / CORES, self._rng.uniform(0, AGENT_MEMORY) / MEMORY)
            for _ in sim_cluster.hosts
        ]
        self._scores: dict[int, list[float]] = {}  # GPUs of the pod -> own score of each host
        sim_cluster.listeners.append(self._update_scores)

    def offer_hosts(self, capacity: cluster.CapacityIndex) -> list[int]:
        """Return the feasible hosts, or the sample of them that the scheduler would find."""
        slots = capacity.slots
        limit = len(slots) if self.settings.sample_all else count_nodes_to_find(len(slots))
        if limit >= len(slots):
            return [host for host, count in enumerate(slots) if count]
        feasible = []
        for step in range(len(slots)):
            host = (self._start + step) % len(slots)
            if slots[host]:
                feasible.append(host)
                if len(feasible) == limit:
                    self._start = (host + 1) % len(slots)
                    break
        return feasible

    def choose_host(
        self, offered: Sequence[int], scores: Sequence[float | None], gpus: int, scale: float
    ) -> int | None:
        """Return the host with the highest total; None if all are filtered.

        `scores`: the extender's, 0..100, None for a filtered host.
        """
        own_scores = self._get_own_scores(gpus)
        if self.settings.kind == "kube":
            step = KUBE_WEIGHT * _KUBE_SCALE
            by_score = score_terms.KubePriorities(
                best=max((score for score in scores if score is not None), default=0.0)
            )
            totals = [
                -1.0 if score is None else by_score[score] * step + own_scores[host]
                for host, score in zip(offered, scores, strict=True)
            ]
        else:
            totals = [(score or 0.0) * scale + own_scores[host] for host, score in zip(offered, scores, strict=True)]
        highest = max(totals)
        if highest < 0:
            return None
        ties = [host for host, total in zip(offered, totals, strict=True) if total == highest]
        return ties[0] if len(ties) == 1 else self._rng.choice(ties)

    def _get_own_scores(self, gpus: int) -> list[float]:
        scores = self._scores.get(gpus)
        if scores is None:
            scores = [self._compute_own_score(host, state, gpus) for host, state in enumerate(self._cluster.states)]
            self._scores[gpus] = scores
        return scores

    def _update_scores(self, host: int, state: kubelet.State) -> None:
        for gpus, scores in self._scores.items():
            scores[host] = self._compute_own_score(host, state, gpus)

    def _compute_own_score(self, host: int, state: kubelet.State, gpus: int) -> float:
        """Return LeastAllocated plus BalancedAllocation of CPU and memory with the pod on the host: 0..200."""
        gpus_in_use = sum(self._cluster.hosts[host].hardware.gpus) - sum(state[0]) + gpus
        cores = self._agents[host][0] + gpus_in_use * CORES_PER_GPU / CORES
        memory = self._agents[host][1] + gpus_in_use * MEMORY_PER_GPU / MEMORY
        return 100 * (1 - (cores + memory) / 2) + 100 * (1 - abs(cores - memory) / 2)


def count_nodes_to_find(nodes: int) -> int:
    """Return the number of feasible nodes after which both schedulers stop searching, by default."""
    if nodes <= MIN_FEASIBLE:
        return nodes
    percent = max(MIN_PERCENT, BASE_PERCENT - nodes // NODES_PER_PERCENT)
    return max(MIN_FEASIBLE, nodes * percent // 100)
