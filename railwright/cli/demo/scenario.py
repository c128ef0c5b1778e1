"""Simulates a fabric for `railwright demo`, and admits and places a gang there with the code of both servers.

Volcano is modelled: it gives each pod a node with the best score, and chooses among equal ones at random.
"""

import importlib.resources
import json
import random
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import yaml

from extender import state as states
from railwright.cli import overview_tables
from railwright.cli.explanation import previews, templates
from railwright.cluster import policies, snapshots
from railwright.fabric import views
from railwright.fabric.overview import overview_builder, overview_types
from railwright.fabric.placement import engine, scheduling_request
from railwright.fabric.placement.gangs import gang_memory
from railwright.fabric.policy import model
from railwright.fabric.workloads import volcano

FABRIC = "roce"  # in the policy
LEAF_LABEL, SPINE_LABEL = "fabric.topograph.run/tier-0", "fabric.topograph.run/tier-1"
# 64 H100 nodes in 15 leaf groups under two superpods (marin-community/marin issue 6950)
SPINES = {"superpod-a": (1, 2, 2, 3, 3, 5, 5, 6, 6, 8), "superpod-b": (1, 2, 3, 6, 11)}
_RAILS = {f"nvidia.com/mlx5_{rail}": "100" for rail in range(4)}  # network-operator's shared plugin: 100 per rail
_SEED = 7  # of random choices of nodes; any other seed works as well
_BUSY_SHARE = 0.2  # of the nodes, which pods of other jobs fill

Tree = dict[str, Any]


class Cluster(NamedTuple):
    """The simulated fabric of the demo, and the job to place."""

    policy: model.Policy
    job: Tree
    nodes: Sequence[Tree]
    busy: frozenset[str]  # names of nodes with pods of other jobs
    objects: Sequence[Tree]  # all, with the nodes and pods

    @property
    def idle(self) -> Sequence[str]:
        """Return the names of the nodes without pods of other jobs."""
        return [node["metadata"]["name"] for node in self.nodes if node["metadata"]["name"] not in self.busy]


class Outcome(NamedTuple):
    """The result of the demo: the job's pods, and their gang as placed with and without railwright, both over RDMA."""

    pods: Sequence[Tree]  # after admission
    placed: overview_types.Gang
    without: overview_types.Gang
    overview: overview_builder.OverviewBuilder  # of the cluster with the gang as railwright has placed it


# --- the cluster --------------------------------------------------------------------------------------------


def build_cluster() -> Cluster:
    """Return the simulated cluster, and the job that ships with the demo."""
    data = importlib.resources.files("railwright.cli.demo")
    policy = policies.read((data / "policy.yaml").read_text(encoding="utf-8"))
    assert isinstance(policy, model.Policy)  # noqa: S101 - it ships with the demo
    nodes = list(build_nodes(SPINES, _RAILS))
    names = [node["metadata"]["name"] for node in nodes]
    busy = random.Random(_SEED).sample(names, round(_BUSY_SHARE * len(names)))  # noqa: S311 - it has to repeat
    requests = {"nvidia.com/gpu": "8", **dict.fromkeys(_RAILS, "1")}
    pods = [build_pod(f"other-{index}", "research", node, requests) for index, node in enumerate(busy)]
    job = yaml.safe_load((data / "job.yaml").read_text(encoding="utf-8"))
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": job["metadata"]["namespace"]}}
    kind = {"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition"}
    networks = [
        {**kind, "metadata": {"namespace": namespace, "name": name}}
        for namespace, name in (rail.network_key or ("", "") for rail in policy.document.fabrics[FABRIC].rails)
    ]
    return Cluster(policy, job, nodes, frozenset(busy), [*nodes, *pods, namespace, *networks])


def build_nodes(spines: Mapping[str, Sequence[int]], rails: Mapping[str, str]) -> Iterator[Tree]:
    """Yield nodes with eight GPUs, named by their leaf.

    `spines` has the leaf sizes under each spine, `rails` the devices of each resource per node.
    """
    amounts = {"cpu": "128", "memory": "2Ti", "pods": "110", "nvidia.com/gpu": "8", **rails}
    leaves = [(spine, size) for spine, sizes in spines.items() for size in sizes]
    for leaf, (spine, size) in enumerate(leaves):
        for index in range(size):
            name = f"gpu-{leaf:02}-{index:02}"
            labels = {LEAF_LABEL: f"leaf-{leaf:02}", SPINE_LABEL: spine, "kubernetes.io/hostname": name}
            conditions = [{"type": "Ready", "status": "True"}]
            yield {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "uid": f"node-{name}", "labels": labels},
                "spec": {},
                "status": {"capacity": amounts, "allocatable": amounts, "conditions": conditions},
            }


def build_pod(name: str, namespace: str, node: str, requests: Mapping[str, str]) -> Tree:
    """Return a pod bound to a node."""
    resources = {"requests": dict(requests), "limits": dict(requests)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "uid": f"pod-{name}"},
        "spec": {"nodeName": node, "containers": [{"name": "main", "resources": resources}]},
        "status": {"phase": "Running"},
    }


# --- the job ------------------------------------------------------------------------------------------------


def admit_and_place(cluster: Cluster) -> Outcome:
    """Admit the job's pods, and place them twice: with railwright, and at random."""
    pods = list(_build_pods(cluster.job))
    caches = previews.fill_caches(snapshots.read(_format_list(cluster.objects)))
    admitted = [previews.preview_admission(pod, cluster.policy, caches).after for pod in pods]
    overview, placed = _assess_placement(cluster, admitted, _choose_nodes(cluster, admitted))
    by_chance = random.Random(_SEED).sample(cluster.idle, len(pods))  # noqa: S311 - it has to repeat
    _, without = _assess_placement(cluster, admitted, by_chance)
    return Outcome(admitted, placed, without, overview)


def _build_pods(job: Tree) -> Iterator[templates.Template]:
    """Yield the pods that Volcano's controller creates for the job, each as a template."""
    for template in templates.list_templates(job, templates.DEFAULT_NAMESPACE):
        metadata = template.pod["metadata"]  # of the first pod of a task
        for index in range(template.pods or 0):
            own = {
                "name": f"{metadata['name'].removesuffix('0')}{index}",
                "labels": {**metadata["labels"], volcano.TASK_INDEX: str(index)},
                "uid": str(uuid.uuid4()),
            }
            yield msgspec.structs.replace(template, pod={**template.pod, "metadata": {**metadata, **own}})


def _choose_nodes(cluster: Cluster, pods: Sequence[Tree]) -> list[str]:
    """Return the node of each pod of the gang, as Volcano chooses: score the idle nodes, take one of the best.

    A pod takes all GPUs of its node, and Volcano's own scores of idle nodes are equal, so the extender's decide.
    """
    state = _fill_state(cluster, pods)
    placement, memory = engine.PlacementEngine(state.cluster), gang_memory.EMPTY
    left, rng = list(cluster.idle), random.Random(_SEED)  # noqa: S311 - it has to repeat
    chosen = []
    for pod in pods:
        waiting = msgspec.convert(pod, views.Pod)
        requests = state.cluster.compute_requests(waiting)
        request = scheduling_request.build_request(waiting, cluster.policy, state.pools, left, requests=requests)
        assert request is not None  # noqa: S101 - the pod is opted in
        decision = placement.score(request, memory)
        memory, best = decision.memory, max(decision.scores.values())
        node = rng.choice([name for name, score in decision.scores.items() if score == best])
        state.cluster.upsert_pod(msgspec.convert(_bind_pod(pod, node), views.Pod))
        left.remove(node)
        chosen.append(node)
    return chosen


def _assess_placement(
    cluster: Cluster, pods: Sequence[Tree], nodes: Sequence[str]
) -> tuple[overview_builder.OverviewBuilder, overview_types.Gang]:
    """Return the overview of the cluster with the pods on these nodes, and their gang."""
    state = _fill_state(cluster, [_bind_pod(pod, node) for pod, node in zip(pods, nodes, strict=True)])
    builder = overview_tables.assess_gangs(state, cluster.policy)
    [gang] = builder.build_overview().gangs
    return builder, gang


def _bind_pod(pod: Tree, node: str) -> Tree:
    return {**pod, "spec": {**pod["spec"], "nodeName": node}, "status": {"phase": "Running"}}


def _fill_state(cluster: Cluster, pods: Sequence[Tree]) -> states.State:
    """Return the extender's state of the cluster with these additional pods."""
    state = states.State()
    overview_tables.fill_caches(states.list_watches(state), snapshots.read(_format_list([*cluster.objects, *pods])))
    return state


def _format_list(objects: Sequence[Tree]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
