"""Builds small clusters for placement tests: nodes with rails in leaves, pods of gangs, requests of both schedulers."""

from collections.abc import Mapping, Sequence
from itertools import zip_longest

import msgspec

from railwright.fabric import names, node_views, resources, views
from railwright.fabric.placement import decisions, engine, scheduling_request
from railwright.fabric.placement.explain import node_explainer, node_explanation
from railwright.fabric.placement.gangs import gang_memory
from railwright.fabric.placement.state import assumed_pods, cluster_state
from railwright.fabric.policy import model
from railwright.fabric.workloads import membership, volcano

LEAF, SPINE = "fabric.topograph.run/tier-0", "fabric.topograph.run/tier-1"
RAILS = tuple(f"rail{i}" for i in range(4))
RESOURCES = tuple(f"nvidia.com/mlx5_{i}" for i in range(4))
GPU = "nvidia.com/gpu"
TWO_SIDED = model.NodeShape(  # two NUMA nodes, each with half of the GPUs and rails
    name="s",
    match={},
    numa=(
        model.NumaNode(gpus=(0, 1, 2, 3), rails=RAILS[:2]),
        model.NumaNode(gpus=(4, 5, 6, 7), rails=RAILS[2:]),
    ),
)


def build_document(**placement: object) -> dict:
    """Return a policy as a user writes it."""
    return {
        "apiVersion": "railwright.io/v1alpha1",
        "defaultFabric": "roce",
        "fabrics": {
            "roce": {
                "transport": "roce",
                "rails": [{"name": n, "resource": r} for n, r in zip(RAILS, RESOURCES, strict=True)],
                "placement": {"domains": [LEAF, SPINE], **placement},
            }
        },
    }


def build_policy(*, shapes: Sequence[model.NodeShape] = (), **placement: object) -> model.Policy:
    converted = msgspec.convert(build_document(**placement), model.PolicyDocument)
    return model.Policy(msgspec.structs.replace(converted, node_shapes=tuple(shapes)), digest="sha256:test")


def change_fabric(given: model.Policy, **fields: object) -> model.Policy:
    """Return a policy whose fabric has other fields."""
    fabric = msgspec.structs.replace(given.document.fabrics["roce"], **fields)
    document = msgspec.structs.replace(given.document, fabrics={"roce": fabric})
    return model.Policy(document, digest="sha256:changed")


def build_node(name: str, leaf: str = "", spine: str = "s0", *, rails_each: int | Mapping[str, int] = 1, **kw: object):
    rail_devices = dict.fromkeys(RESOURCES, rails_each) if isinstance(rails_each, int) else dict(rails_each)
    have = {"cpu": "128", "memory": "2Ti", "pods": "110", GPU: "8"} | {k: str(v) for k, v in rail_devices.items() if v}
    labels = ({LEAF: leaf} if leaf else {}) | ({SPINE: spine} if spine else {})
    tree = {
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": labels | kw.pop("labels", {})},
        "status": {"allocatable": have, "capacity": have | kw.pop("capacity", {})},
        "spec": kw,
    }
    return msgspec.convert(tree, node_views.Node)


def mark_broken(node: node_views.Node, rails: str) -> node_views.Node:
    """Return a node with an annotation that names broken rails."""
    metadata = msgspec.structs.replace(node.metadata, annotations_or_none={names.BROKEN_RAILS: rails})
    return msgspec.structs.replace(node, metadata=metadata)


def build_leaves(**sizes: int):
    """Return the nodes of some leaves; leaves with the same first letter are below one spine."""
    return [
        build_node(f"{leaf}-{i:02}", leaf, spine=f"s-{leaf[0]}") for leaf, size in sizes.items() for i in range(size)
    ]


def build_pod(
    name: str, *, group: str = "", gpus: int = 8, on: str = "", label: str | None = "roce", rails: int = 1, **meta
):
    requests = {GPU: str(gpus)} | ({r: str(rails) for r in RESOURCES} if rails else {})
    metadata = {
        "name": name,
        "namespace": "train",
        "uid": f"uid-{name}",
        "labels": {"railwright.io/fabric": label} if label else {},
        "annotations": ({"scheduling.k8s.io/group-name": group} if group else {}) | meta.pop("annotations", {}),
    }
    tree = {
        "metadata": metadata,
        "spec": {"nodeName": on, "containers": [{"name": "c", "resources": {"requests": requests}}], **meta},
        "status": {"phase": "Running" if on else "Pending"},
    }
    return msgspec.convert(tree, views.Pod)


def change_pod(of: views.Pod, **parts: Mapping[str, object]) -> views.Pod:
    """Return a pod with other fields in its `metadata`, `spec` or `status`."""
    changed = {part: msgspec.structs.replace(getattr(of, part), **fields) for part, fields in parts.items()}
    return msgspec.structs.replace(of, **changed)


def build_pod_with(name: str, requests: Mapping[str, str], *, on: str = "", group: str = "") -> views.Pod:
    """Return a pod of one container with these requests."""
    container = views.Container(name="c", resources=views.ResourceRequirements(requests_or_none=dict(requests)))
    spec = views.PodSpec(node_name=on, containers_or_none=[container])
    return msgspec.structs.replace(build_pod(name, on=on, group=group), spec=spec)


def build_report(
    *free: int,
    name: str = "n",
    written: str = "",
    rails: Sequence[Sequence[str]] = (),
) -> node_views.NodeResourceTopology:
    """Return a report written at `written`, with `free` of 4 GPUs and `rails` free on each NUMA node."""
    nodes = [{GPU: (4, left)} | dict.fromkeys(here, (1, 1)) for left, here in zip_longest(free, rails, fillvalue=())]
    return build_topology(*nodes, name=name, written=written)


def build_topology(
    *nodes: Mapping[str, tuple[int, int]],
    name: str = "n",
    written: str = "",
) -> node_views.NodeResourceTopology:
    """Return a report of NUMA nodes, with (total, available) amounts by resource."""
    tree = {
        "metadata": {
            "name": name,
            "managedFields": [
                {"manager": "exporter", "time": written, "fieldsV1": {"f:zones": {}}},
                {"manager": "kubectl", "time": "2026-11-21T23:59:59Z", "fieldsV1": {"f:metadata": {"f:labels": {}}}},
            ]
            if written
            else [],
        },
        "zones": [
            {
                "name": f"node-{number}",
                "type": "Node",
                "resources": [
                    {"name": name, "capacity": str(total), "allocatable": str(total), "available": str(available)}
                    for name, (total, available) in amounts.items()
                ],
            }
            for number, amounts in enumerate(nodes)
        ],
    }
    return msgspec.convert(tree, node_views.NodeResourceTopology)


def build_cluster(nodes, pods=(), least: Mapping[str, int] | None = None) -> cluster_state.ClusterState:
    state = cluster_state.ClusterState()
    state.replace_nodes(nodes)
    state.replace_pods(list(pods))
    for key, least_members in (least or {}).items():
        state.sizes.upsert(volcano.POD_GROUPS, build_pod_group(*key.split("/"), least_members))
    return state


def build_pod_group(namespace: str, name: str, least_members: int) -> views.PodGroup:
    tree = {"metadata": {"namespace": namespace, "name": name}, "spec": {"minMember": least_members}}
    return msgspec.convert(tree, views.PodGroup)


def build_assumed_pod(
    of: views.Pod,
    on: str,
    *,
    state=assumed_pods.State.ALLOCATED,
    since: float = 0.0,
    requests: resources.Amounts | None = None,
    scope: str = assumed_pods.DEFAULT_SCOPE,
) -> assumed_pods.AssumedPod:
    """Return a pod that a scheduler has announced on a node; `requests` replace those of its containers."""
    return assumed_pods.AssumedPod(
        uid=of.metadata.uid,
        key=f"train/{of.metadata.name}",
        gang=membership.find_gang(of),
        rank=membership.find_rank(of),
        node=on,
        requests=resources.compute_requests(of.spec) if requests is None else requests,
        state=state,
        since=since,
        scope=scope,
    )


def build_request(of: views.Pod, candidates, given: model.Policy | None = None) -> scheduling_request.SchedulingRequest:
    given = given or build_policy()
    requests = resources.compute_requests(of.spec)
    built = scheduling_request.build_request(of, given, {}, list(candidates), requests=requests)
    assert built is not None
    return built


class RememberingEngine(engine.PlacementEngine):
    """The engine with the memory of its last decision, as the extender calls it."""

    memory = gang_memory.EMPTY

    def score(self, request: scheduling_request.SchedulingRequest) -> decisions.Decision:
        decision = super().score(request, self.memory)
        self.memory = decision.memory
        return decision


def score_once(
    request: scheduling_request.SchedulingRequest, cluster: cluster_state.ClusterState
) -> decisions.Decision:
    """Score every candidate node with empty caches and without memory."""
    return engine.PlacementEngine(cluster).score(request)


class ExplainedNode:
    """One node of a decision: its score, what it lacks, and the terms of its score, each with value and message."""

    def __init__(self, decision: decisions.Decision, row: node_explanation.NodeExplanation) -> None:
        self.node, self.fits, self.reasons = row.node, row.fits, row.reasons
        self.score = decision.score([self.node])[self.node]
        self.node_class = decision.view.get_class(self.node)
        self.terms = {name: (term.value, term.message) for name, term in row.terms.items()}


def explain(decision: decisions.Decision) -> dict[str, ExplainedNode]:
    """Return the explained nodes of a decision by name."""
    rows = node_explainer.explain_nodes(decision, cluster_state.ClusterState(), {})
    return {row.node: ExplainedNode(decision, row) for row in rows}


def list_with_slots(
    cluster: cluster_state.ClusterState,
    request: scheduling_request.SchedulingRequest,
) -> list[str]:
    """Return the candidate nodes that the plan may use."""
    view = engine.PlacementEngine(cluster).score(request).view
    known = ((name, view.get_class(name)) for name in request.nodes)
    return [name for name, node_class in known if node_class is not None and node_class.slot_numa_factors]
