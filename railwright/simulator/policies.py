"""Defines the placement policies that are compared: how each makes the scheduler place one pod of a gang.

Owns the baselines (no extender, binpack, greedy) and the optimum, which places gangs directly. `railwright_policy`
adapts the real code. Each policy knows only what an extender would know.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from railwright.simulator import cluster, job_stream, optimum


class Task(msgspec.Struct, frozen=True):
    """One pod to be placed."""

    job: job_stream.Job
    rank: int


class PlacementPolicy:
    """A policy beside a scheduler. It ignores all events, and leaves each pod to the scheduler's own scores."""

    scale = 0.0  # factor of its scores 0..100 in schedulers that add them unscaled

    def __init__(self, sim_cluster: cluster.Cluster) -> None:
        self._cluster = sim_cluster

    def on_submit(self, job: job_stream.Job) -> None:
        """Handle that a job was created and waits."""

    def score(self, task: Task, offered: Sequence[int]) -> Sequence[float | None] | None:  # noqa: ARG002 - see above
        """Return 0..100 for each offered host, None for a filtered host; None if the policy does not score."""
        return None

    def on_assume(self, task: Task, host: int) -> None:
        """Handle that the scheduler chose a host for a pod."""

    def on_forget(self, task: Task) -> None:
        """Handle that the scheduler rolled a pod back."""

    def on_bind(self, job: job_stream.Job, hosts: Sequence[int]) -> None:
        """Handle that all pods of a gang were bound."""

    def on_end(self, job: job_stream.Job) -> None:
        """Handle that a job ended."""

    def place_gang(self, job: job_stream.Job, free: cluster.FreeCapacity) -> Sequence[int] | None:  # noqa: ARG002
        """Place the whole gang directly, bypassing the simulated scheduler; None to go pod by pod."""
        return None


class Binpack(PlacementPolicy):
    """Prefers the fullest node: Volcano's binpack over accelerators, kube-scheduler's MostAllocated."""

    scale = 10.0  # binpack.weight of Volcano's own example

    def score(self, task: Task, offered: Sequence[int]) -> Sequence[float | None] | None:
        """Return the percentage of each node's GPUs in use with the pod on it."""
        return [100 * compute_gpu_share(self._cluster, host, task.job.gpus) for host in offered]


class Greedy(PlacementPolicy):
    """Prefers nodes near the peers placed so far, then the fullest; it has no plan, so the first pod goes anywhere."""

    scale = 10.0
    _LEAF, _SPINE, _PACKING = 75.0, 25.0, 25.0

    def __init__(self, sim_cluster: cluster.Cluster) -> None:
        super().__init__(sim_cluster)
        self._peer_chains: dict[int, list[tuple[int, ...]]] = {}

    def score(self, task: Task, offered: Sequence[int]) -> Sequence[float | None] | None:
        """Score a peer's leaf above a peer's spine above all others, and within these fuller nodes first."""
        peers = self._peer_chains.get(task.job.number, ())
        leaves, spines = {chain[:1] for chain in peers}, {chain[1:2] for chain in peers}
        scores = []
        for host in offered:
            chain = self._cluster.hosts[host].chain
            locality = self._LEAF if chain[:1] in leaves else self._SPINE if chain[1:2] in spines else 0.0
            scores.append(locality + self._PACKING * compute_gpu_share(self._cluster, host, task.job.gpus))
        return scores

    def on_assume(self, task: Task, host: int) -> None:
        """Store the node of the placed peer."""
        self._peer_chains.setdefault(task.job.number, []).append(self._cluster.hosts[host].chain)

    def on_forget(self, task: Task) -> None:
        """Remove the last peer: a scheduler rolls back in reverse order."""
        self._peer_chains[task.job.number].pop()

    def on_end(self, job: job_stream.Job) -> None:
        """Remove the job's peers."""
        self._peer_chains.pop(job.number, None)


class Optimal(PlacementPolicy):
    """Places each gang at its optimum on what is free at that moment."""

    def place_gang(self, job: job_stream.Job, free: cluster.FreeCapacity) -> Sequence[int] | None:
        """Return the hosts of the optimum. A single pod gets the fullest node, preferably without a NUMA split."""
        if job.pods > 1:
            best = optimum.find_best(self._cluster, free, job.pods)
            return best.hosts if best else None
        fitting = [host for host, grants in enumerate(free.grants) if grants]

        def rank_host(host: int) -> tuple[bool, float, int]:
            return free.grants[host][0].split, -compute_gpu_share(self._cluster, host, job.gpus), host

        return [min(fitting, key=rank_host)]


def compute_gpu_share(sim_cluster: cluster.Cluster, host: int, gpus: int) -> float:
    """Return the share of a host's GPUs in use with `gpus` more."""
    total = sum(sim_cluster.hosts[host].hardware.gpus)
    return (total - sum(sim_cluster.states[host][0]) + gpus) / total


BASELINES: Mapping[str, Callable[[cluster.Cluster], PlacementPolicy]] = {
    "none": PlacementPolicy,
    "binpack": Binpack,
    "greedy": Greedy,
    "optimum": Optimal,
}
