"""Defines the placement policies that are compared: how each makes the scheduler place one pod of a gang.

Owns the baselines (no extender, binpack, greedy) and the optimum, which places gangs directly. Railwright's
policy runs the real placement engine, and reports the simulated cluster to it as the extender's watches and scheduler
events would. Each policy knows only what an extender would know.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import msgspec

from railwright.fabric import intent, names, node_views, resources, views
from railwright.fabric.placement import engine, scheduling_request
from railwright.fabric.placement.gangs import gang_memory
from railwright.fabric.placement.state import assumed_pods, cluster_state
from railwright.fabric.policy import presets
from railwright.fabric.workloads import membership, volcano
from simulator import bandwidth_model, cluster, job_stream


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

    def score(self, task: Task, offered: Sequence[int]) -> Sequence[float] | None:  # noqa: ARG002 - see above
        """Return 0..100 for each offered host; None if the policy does not score."""
        return None

    def on_assume(self, task: Task, host: int) -> None:
        """Handle that the scheduler chose a host for a pod."""

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

    def on_end(self, job: job_stream.Job) -> None:
        """Remove the job's peers."""
        self._peer_chains.pop(job.number, None)


class Optimal(PlacementPolicy):
    """Places each gang at its optimum on what is free at that moment."""

    def place_gang(self, job: job_stream.Job, free: cluster.FreeCapacity) -> Sequence[int] | None:
        """Return the hosts of the optimum. A single pod gets the fullest node, preferably without a NUMA split."""
        if job.pods > 1:
            best = bandwidth_model.find_best(self._cluster, free, job.pods)
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

# --- railwright's placement engine as a policy ------------------------------------------------------------

_NAMESPACE = "train"
_DIGEST = "sha256:simulated"  # of the policy, constant during a run


class RailwrightPolicy(PlacementPolicy):
    """Railwright's extender as a policy of the simulation."""

    def __init__(self, sim_cluster: cluster.Cluster) -> None:
        super().__init__(sim_cluster)
        self.state = cluster_state.ClusterState()
        self.state.replace_nodes(sim_cluster.spec.nodes)
        self.assumed = self.state.assumed
        self.scale = 10.0  # as for Volcano
        self.seconds, self.decisions = 0.0, 0
        self._domains = presets.list_domain_keys(sim_cluster.spec.fabric.placement)
        self._engine = engine.PlacementEngine(self.state)
        self._memory = gang_memory.EMPTY
        self._names = [host.name for host in sim_cluster.hosts]
        self._pods: dict[int, list[views.Pod]] = {}
        sim_cluster.listeners.append(self._on_host_change)
        self._unreported: dict[int, None] = {}  # hosts whose NodeResourceTopology is outdated
        self._rail_needs: dict[int, tuple[resources.FrozenAmounts, tuple[intent.Need, ...]]] = {}

    def on_submit(self, job: job_stream.Job) -> None:
        """Add the pods and their PodGroup to the cluster state."""
        self.state.upsert_size(volcano.POD_GROUPS, _build_pod_group(job))
        pods = self._pods[job.number] = [self._build_pod(job, rank) for rank in range(job.pods)]
        for pod in pods:
            self.state.upsert_pod(pod)

    def score(self, task: Task, offered: Sequence[int]) -> Sequence[float] | None:
        """Return the engine's scores."""
        started = time.process_time()
        request = self._build_request(task, offered)
        decision = self._engine.score(request, self._memory)
        self._memory = decision.memory
        scores = [decision.scores[name] for name in request.nodes]
        self.seconds += time.process_time() - started
        self.decisions += 1
        return scores

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
                requests=self._get_requests_and_needs(task.job, pod)[0],
                state=assumed_pods.State.ALLOCATED,
                since=0.0,
            )
        )

    def on_bind(self, job: job_stream.Job, hosts: Sequence[int]) -> None:
        """Report the bound pods, as the watch would."""
        for pod, host in zip(self._pods[job.number], hosts, strict=True):
            self.state.upsert_pod(_bind(pod, self._cluster.hosts[host].name))
            self.assumed.forget(pod.metadata.uid)
        self._report_hosts()

    def on_end(self, job: job_stream.Job) -> None:
        """Remove the pods and their PodGroup."""
        for pod in self._pods.pop(job.number):
            self.state.remove_pod(pod.metadata.uid)
        self._report_hosts()
        self.state.remove_size(volcano.POD_GROUPS, _build_pod_group(job))

    def _on_host_change(self, host: int, state: cluster.State) -> None:
        del state  # the NodeResourceTopology is written together with the pods that the watch shows
        self._unreported[host] = None

    def _report_hosts(self) -> None:
        for host in self._unreported:
            self.state.upsert_topology(_build_topology(self._cluster, host))
        self._unreported.clear()

    def _build_request(self, task: Task, offered: Sequence[int]) -> scheduling_request.SchedulingRequest:
        pod, spec = self._pods[task.job.number][task.rank], self._cluster.spec
        requests, needs = self._get_requests_and_needs(task.job, pod)
        return scheduling_request.SchedulingRequest(
            uid=pod.metadata.uid,
            namespace=_NAMESPACE,
            name=pod.metadata.name,
            spec=pod.spec,
            gang=membership.find_gang(pod),
            rank=membership.find_rank(pod),
            requests=requests,
            fabric_name=spec.fabric_name,
            fabric=spec.fabric,
            domains=self._domains,
            needs=needs,
            accelerators=spec.policy.accelerators,
            nodes=[self._names[host] for host in offered],
            shapes=spec.policy.node_shapes,
            policy=_DIGEST,
        )

    def _get_requests_and_needs(
        self, job: job_stream.Job, pod: views.Pod
    ) -> tuple[resources.FrozenAmounts, tuple[intent.Need, ...]]:
        """Return the requests and rail needs of the job's pods; they depend on its number of GPUs only."""
        cached = self._rail_needs.get(job.gpus)
        if cached is None:
            requests = resources.compute_requests(pod.spec)
            cached = requests, intent.find_needs(pod, requests, self._cluster.spec.fabric)
            self._rail_needs[job.gpus] = cached
        return cached

    def _build_pod(self, job: job_stream.Job, rank: int) -> views.Pod:
        """Return a pod as it is after admission."""
        spec, demand = self._cluster.spec, self._cluster.build_demand(job.gpus)
        chosen = spec.fabric.rails[: demand.rails]
        pool, accelerator = chosen[0].resource, spec.policy.accelerators[0]
        requests: dict[str, views.RawQuantity] = {accelerator: job.gpus, pool: len(chosen)}
        record = {"fabric": spec.fabric_name, "rails": [rail.name for rail in chosen]}
        meta = views.ObjectMeta(
            name=f"{_format_group_name(job)}-worker-{rank}",
            namespace=_NAMESPACE,
            uid=f"{job.number}/{rank}",
            labels_or_none={names.FABRIC: spec.fabric_name, volcano.TASK_INDEX: str(rank)},
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


def _build_pod_group(job: job_stream.Job) -> views.PodGroup:
    meta = views.ObjectMeta(name=_format_group_name(job), namespace=_NAMESPACE)
    return views.PodGroup(metadata=meta, spec=views.PodGroupSpec(min_member=job.pods))


def _format_group_name(job: job_stream.Job) -> str:
    return f"job-{job.number}"


def _build_topology(sim_cluster: cluster.Cluster, host: int) -> node_views.NodeResourceTopology:
    """Return the node's NUMA nodes with their free devices."""
    return node_views.NodeResourceTopology(
        metadata=node_views.TopologyMeta(name=sim_cluster.hosts[host].name),
        zones_or_none=[
            _build_zone(sim_cluster, host, node) for node in range(len(sim_cluster.hosts[host].hardware.gpus))
        ],
    )


def _build_zone(sim_cluster: cluster.Cluster, host: int, node: int) -> node_views.TopologyZone:
    hardware, (gpus, devices) = sim_cluster.hosts[host].hardware, sim_cluster.states[host]
    total, free = Counter[str](), Counter[str]()
    accelerator = sim_cluster.spec.policy.accelerators[0]
    total[accelerator], free[accelerator] = hardware.gpus[node], gpus[node]
    for number, rail in enumerate(sim_cluster.spec.fabric.rails):
        if hardware.numa_of_rail[number] == node:
            total[rail.resource] += hardware.devices[number]
            free[rail.resource] += devices[number]
    return node_views.TopologyZone(
        name=f"node-{node}",
        type="Node",
        resources_or_none=[
            node_views.ZoneResource(name=name, allocatable=count, available=free[name]) for name, count in total.items()
        ],
    )
