"""Defines the placement policies that are compared: how each makes the scheduler place one pod of a gang.

Owns the baselines (no extender, binpack, greedy) and the optimum, which places gangs directly. Railwright's
policy runs the real placement engine, and reports the simulated cluster to it as the extender's watches and scheduler
events would. Each policy knows only what an extender would know.
"""

import json
from collections.abc import Callable, Mapping, Sequence

import msgspec

from railwright.fabric import intent, names, resources, views
from railwright.fabric.placement import engine, scheduling_request
from railwright.fabric.placement.gangs import gang_memory
from railwright.fabric.placement.state import assumed_pods, cluster_state
from railwright.fabric.policy import model, presets
from railwright.fabric.workloads import membership, volcano
from simulator import cluster


class Job(msgspec.Struct, frozen=True):
    """One job: `pods` equal pods of `gpus` GPUs each. Several pods take whole nodes."""

    number: int  # negative if the job ran when the simulation started
    arrival: float  # seconds from the start
    duration: float  # seconds
    pods: int
    gpus: int

    @property
    def gpu_seconds(self) -> float:
        """Return the GPU time of all pods, in GPU seconds."""
        return self.pods * self.gpus * self.duration


class Task(msgspec.Struct, frozen=True):
    """One pod to be placed."""

    job: Job
    rank: int


class PlacementPolicy:
    """A policy beside a scheduler. It ignores all events, and leaves each pod to the scheduler's own scores."""

    scale = 0.0  # factor of its scores 0..100 in schedulers that add them unscaled

    def __init__(self, sim_cluster: cluster.Cluster) -> None:
        self._cluster = sim_cluster

    def on_submit(self, job: Job) -> None:
        """Handle that a job was created and waits."""

    def score(self, task: Task, offered: Sequence[int]) -> Sequence[float] | None:  # noqa: ARG002 - see above
        """Return 0..100 for each offered host; None if the policy does not score."""
        return None

    def on_assume(self, task: Task, host: int) -> None:
        """Handle the scheduler's choice of a host for a pod."""

    def on_bind(self, job: Job, hosts: Sequence[int]) -> None:
        """Handle that all pods of a gang were bound."""

    def on_end(self, job: Job) -> None:
        """Handle that a job ended."""

    def place_gang(self, job: Job) -> Sequence[int] | None:  # noqa: ARG002
        """Return the hosts of the whole gang, bypassing the simulated scheduler; None to go pod by pod."""
        return None


class Binpack(PlacementPolicy):
    """Prefers the fullest node: Volcano's binpack over accelerators, kube-scheduler's MostAllocated."""

    scale = 10.0  # binpack.weight of Volcano's own example

    def score(self, task: Task, offered: Sequence[int]) -> Sequence[float] | None:
        """Return the percentage of each node's GPUs in use with the pod on it."""
        return [100 * compute_gpu_share(self._cluster, host, task.job.gpus) for host in offered]


class Greedy(PlacementPolicy):
    """Prefers nodes near the peers placed so far, then the fullest; it has no plan, so the first pod goes anywhere."""

    scale = 10.0
    _LEAF, _SPINE, _PACKING = 75.0, 25.0, 25.0

    def __init__(self, sim_cluster: cluster.Cluster) -> None:
        super().__init__(sim_cluster)
        self._peer_chains: dict[int, list[tuple[int, ...]]] = {}

    def score(self, task: Task, offered: Sequence[int]) -> Sequence[float] | None:
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

    def on_end(self, job: Job) -> None:
        """Remove the job's peers."""
        self._peer_chains.pop(job.number, None)


class Optimal(PlacementPolicy):
    """Places each gang at its optimum on what is free at that moment."""

    def place_gang(self, job: Job) -> Sequence[int] | None:
        """Return the hosts of the optimum. A single pod gets the fullest node."""
        if job.pods > 1:
            return cluster.find_best(self._cluster, job.pods)
        return [min(self._cluster.list_fitting(job.gpus), key=lambda host: self._cluster.free[host])]


def compute_gpu_share(sim_cluster: cluster.Cluster, host: int, gpus: int) -> float:
    """Return the share of a host's GPUs in use with `gpus` more."""
    return (cluster.GPUS - sim_cluster.free[host] + gpus) / cluster.GPUS


# --- railwright's placement engine as a policy ------------------------------------------------------------

_NAMESPACE = "train"
_FABRIC = "simulated"
_DIGEST = "sha256:simulated"  # of the policy, constant during a run


class RailwrightPolicy(PlacementPolicy):
    """Railwright's extender as a policy of the simulation."""

    scale = 10.0  # as for Volcano

    def __init__(self, sim_cluster: cluster.Cluster) -> None:
        super().__init__(sim_cluster)
        self.state = cluster_state.ClusterState()
        self.state.replace_nodes(sim_cluster.nodes)
        self.assumed = self.state.assumed
        self._fabric = _build_fabric(sim_cluster.oversubscription)
        self._domains = presets.list_domain_keys(self._fabric.placement)
        self._engine = engine.PlacementEngine(self.state)
        self._memory = gang_memory.EMPTY
        self._pods: dict[int, list[views.Pod]] = {}

    def on_submit(self, job: Job) -> None:
        """Add the pods and their PodGroup to the cluster state."""
        self.state.upsert_size(volcano.POD_GROUPS, _build_pod_group(job))
        pods = self._pods[job.number] = [_build_pod(job, rank) for rank in range(job.pods)]
        for pod in pods:
            self.state.upsert_pod(pod)

    def score(self, task: Task, offered: Sequence[int]) -> Sequence[float] | None:
        """Return the engine's scores."""
        request = self._build_request(task, offered)
        decision = self._engine.score(request, self._memory)
        self._memory = decision.memory
        return [decision.scores[name] for name in request.nodes]

    def on_assume(self, task: Task, host: int) -> None:
        """Report an assumed pod, by Volcano's event."""
        pod = self._pods[task.job.number][task.rank]
        self.assumed.assume(
            assumed_pods.AssumedPod(
                uid=pod.metadata.uid,
                key=f"{_NAMESPACE}/{pod.metadata.name}",
                gang=membership.find_gang(pod),
                rank=membership.find_rank(pod),
                node=self._cluster.hosts[host].name,
                requests=resources.compute_requests(pod.spec),
                state=assumed_pods.State.ALLOCATED,
                since=0.0,
            )
        )

    def on_bind(self, job: Job, hosts: Sequence[int]) -> None:
        """Report the bound pods, as the watch would."""
        for pod, host in zip(self._pods[job.number], hosts, strict=True):
            self.state.upsert_pod(_bind(pod, self._cluster.hosts[host].name))
            self.assumed.forget(pod.metadata.uid)

    def on_end(self, job: Job) -> None:
        """Remove the pods and their PodGroup."""
        for pod in self._pods.pop(job.number):
            self.state.remove_pod(pod.metadata.uid)
        self.state.remove_size(volcano.POD_GROUPS, _build_pod_group(job))

    def _build_request(self, task: Task, offered: Sequence[int]) -> scheduling_request.SchedulingRequest:
        pod = self._pods[task.job.number][task.rank]
        requests = resources.compute_requests(pod.spec)
        return scheduling_request.SchedulingRequest(
            uid=pod.metadata.uid,
            namespace=_NAMESPACE,
            name=pod.metadata.name,
            spec=pod.spec,
            gang=membership.find_gang(pod),
            rank=membership.find_rank(pod),
            requests=requests,
            fabric_name=_FABRIC,
            fabric=self._fabric,
            domains=self._domains,
            needs=intent.find_needs(pod, requests, self._fabric),
            accelerators=(cluster.GPU,),
            nodes=[self._cluster.hosts[host].name for host in offered],
            shapes=(),
            policy=_DIGEST,
        )


def _build_fabric(oversubscription: Sequence[float]) -> model.Fabric:
    """Return the fabric that all simulated jobs use."""
    return msgspec.convert(
        {
            "transport": "roce",
            "rails": [{"name": f"rail{rail}", "resource": cluster.POOL} for rail in range(cluster.RAILS)],
            "railsPerPod": "proportional",
            "gpusPerNode": cluster.GPUS,
            "placement": {"domains": cluster.LEVELS, "oversubscription": oversubscription},
        },
        model.Fabric,
    )


def _build_pod(job: Job, rank: int) -> views.Pod:
    """Return a pod as it is after admission, with a rail for each GPU."""
    requests: dict[str, views.RawQuantity] = {cluster.GPU: job.gpus, cluster.POOL: job.gpus}
    record = {"fabric": _FABRIC, "rails": [f"rail{rail}" for rail in range(job.gpus)]}
    meta = views.ObjectMeta(
        name=f"{_format_group_name(job)}-worker-{rank}",
        namespace=_NAMESPACE,
        uid=f"{job.number}/{rank}",
        labels_or_none={names.FABRIC: _FABRIC, volcano.TASK_INDEX: str(rank)},
        annotations_or_none={
            volcano.GROUP_ANNOTATION: _format_group_name(job),
            names.INJECTION: json.dumps(record),
        },
    )
    container = views.Container(name="main", resources=views.ResourceRequirements(requests_or_none=requests))
    return views.Pod(metadata=meta, spec=views.PodSpec(containers_or_none=[container]))


def _bind(pod: views.Pod, node: str) -> views.Pod:
    spec = views.PodSpec(containers_or_none=pod.spec.containers_or_none, node_name=node)
    return views.Pod(metadata=pod.metadata, spec=spec, status=views.PodStatus(phase="Running"))


def _build_pod_group(job: Job) -> views.PodGroup:
    meta = views.ObjectMeta(name=_format_group_name(job), namespace=_NAMESPACE)
    return views.PodGroup(metadata=meta, spec=views.PodGroupSpec(min_member=job.pods))


def _format_group_name(job: Job) -> str:
    return f"job-{job.number}"


POLICIES: Mapping[str, Callable[[cluster.Cluster], PlacementPolicy]] = {
    "none": PlacementPolicy,
    "binpack": Binpack,
    "greedy": Greedy,
    "railwright": RailwrightPolicy,
    "optimum": Optimal,
}
