"""Gangs for Volcano on leaves of nodes: the policy, the scheduler's configuration, jobs, and where their pods are.

Pods are written as the webhook equips them, so that a test of placement needs no webhook. A node's name is its leaf's
and a number; owns nothing that runs.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from plane import api, nodes, plane, reverse_proxy, servers, site, volcano, waiting

GPU = "nvidia.com/gpu"
RAILS = ("nvidia.com/mlx5_0", "nvidia.com/mlx5_1")
LEAF, SPINE = "fabric.topograph.run/tier-0", "fabric.topograph.run/tier-1"
LINGERS = "railwright.test/lingers"  # kwok lets a deleted pod with this annotation stay (kwok-stages.yaml)
JOB = "batch.volcano.sh/v1alpha1/Job"
POD_GROUP = "scheduling.volcano.sh/v1beta1/PodGroup"
WHOLE = {GPU: "8", **dict.fromkeys(RAILS, "1")}  # what a pod takes that takes a node's GPUs and rails


def policy(**placement: Any) -> str:
    """Return a policy with the fabric `ib` of two rails and these keys of `placement`."""
    rails = [{"name": f"rail{k}", "resource": name, "device": f"mlx5_{k}"} for k, name in enumerate(RAILS)]
    places = {"rails": "preferred", "domains": [LEAF, SPINE], **placement}
    fabric = {"transport": "infiniband", "rails": rails, "placement": places}
    document = {"apiVersion": "railwright.io/v1alpha1", "kind": "FabricPolicy", "fabrics": {"ib": fabric}}
    return json.dumps(document)


def conf(
    url: str,
    *,
    actions: str = "enqueue, allocate, backfill",
    without: Sequence[str] = (),
    plugins: Sequence[Mapping[str, Any]] = (),
    managed: tuple[str, ...] = RAILS,
    **arguments: Any,
) -> dict[str, Any]:
    """Return the chart's configuration with our extender at `url`, these actions and plugins, and without others."""
    made = volcano.conf()
    tiers = [[plugin for plugin in tier["plugins"] if plugin["name"] not in without] for tier in made["tiers"]]
    ours = {"name": "extender", "arguments": volcano.extender(f"{url}/volcano", managed=managed, **arguments)}
    cached = [{"name": name, "arguments": {"predicateErrorCacheEnable": False}} for name in ("preempt", "reclaim")]
    return {
        "actions": actions,
        "tiers": [{"plugins": plugins_of_tier} for plugins_of_tier in (*tiers, [*plugins, ours])],
        "configurations": [*made["configurations"], *cached],
    }


def job(
    name: str,
    workers: int,
    *,
    master: bool = False,
    takes: Mapping[str, str] = WHOLE,
    queue: str = "default",
    priority: str = "",
    least: int | None = None,
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> api.Object:
    """Return a Volcano Job that starts with all pods, or with a minimum of workers. A master is one more pod."""
    container = {"name": "c", "image": "i", "resources": {"requests": dict(takes), "limits": dict(takes)}}
    metadata = {"labels": {"railwright.io/fabric": "ib"}, "annotations": dict(annotations or {})}
    template = {"metadata": metadata, "spec": {"containers": [container]}}
    if priority:
        template["spec"]["priorityClassName"] = priority
    counts = ({"master": 1} if master else {}) | {"worker": workers}
    needed = counts | ({"worker": least} if least is not None else {})
    tasks = [
        {"name": role, "replicas": count, "minAvailable": needed[role], "template": template}
        for role, count in counts.items()
    ]
    gang = {"minAvailable": sum(needed.values()), "schedulerName": "volcano", "queue": queue, "tasks": tasks}
    classed = {"priorityClassName": priority} if priority else {}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {**gang, **classed, **spec},
    }


def holder(node: str, *, takes: Mapping[str, str] = WHOLE, annotations: Mapping[str, str] | None = None) -> api.Object:
    """Return a pod that no scheduler placed and that holds a node's devices."""
    container = {"name": "c", "image": "i", "resources": {"requests": dict(takes), "limits": dict(takes)}}
    spec = {"nodeName": node, "containers": [container]}
    metadata = {"name": f"on-{node}", "annotations": dict(annotations or {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


async def make_leaf(
    plane_nodes: nodes.Nodes, leaf: str, size: int, *, spine: str = "spine", first: int = 0
) -> list[str]:
    """Return nodes of one leaf, each with 8 GPUs and one device a rail; their names."""
    names = [f"{leaf}-{number:02}" for number in range(first, first + size)]
    labels = {LEAF: leaf, SPINE: spine}
    await asyncio.gather(*(plane_nodes.make(name, rails=dict.fromkeys(RAILS, 1), labels=labels) for name in names))
    return names


async def make_leaves(plane_nodes: nodes.Nodes, *, first: int = 0, **sizes: int) -> list[list[str]]:
    """Leaves by name, below one spine; the names of each one's nodes."""
    return await asyncio.gather(*(make_leaf(plane_nodes, leaf, size, first=first) for leaf, size in sizes.items()))


async def pods(client: api.Api, namespace: str, name: str) -> api.Objects:
    """Return the pods of a job, by rank: its master, then its workers by number."""
    listed = await client.list("Pod", namespace, labels=f"volcano.sh/job-name={name}")
    return sorted(listed, key=_rank)


async def running(client: api.Api, namespace: str, name: str, count: int, *, seconds: float = 90) -> api.Objects:
    """Return the pods of a job by rank, once exactly this number runs."""

    async def all_running() -> api.Objects:
        listed = await pods(client, namespace, name)
        phases = {pod["metadata"]["name"]: pod["status"].get("phase") for pod in listed}
        assert list(phases.values()) == ["Running"] * count, phases
        return listed

    return await waiting.wait(all_running, seconds=seconds, describe=f"{count} running pods of job {name}")


async def let_go(client: api.Api, leaving: api.Objects) -> None:
    """Let terminating pods end, as kubelet does at last, and wait until they are gone."""
    change = {"metadata": {"annotations": {LINGERS: None}}}
    for pod in leaving:
        metadata = pod["metadata"]
        await client.patch("Pod", metadata["name"], change, metadata["namespace"])

    async def have_ended() -> bool:
        names = [(pod["metadata"]["name"], pod["metadata"]["namespace"]) for pod in leaving]
        present = [await client.get_or_none("Pod", *name) for name in names]
        return all(
            now is None or now["metadata"]["uid"] != old["metadata"]["uid"]
            for now, old in zip(present, leaving, strict=True)
        )

    await waiting.wait(have_ended, describe="the pods to be gone")


async def unschedulable(client: api.Api, namespace: str, name: str, *, seconds: float = 60) -> str:
    """Wait until Volcano has said of a job's PodGroup that it cannot be placed; its words."""

    async def read_message() -> str:
        groups = await client.list(POD_GROUP, namespace)
        mine = [group for group in groups if group["metadata"]["name"].startswith(f"{name}-")]
        conditions = [condition for group in mine for condition in group.get("status", {}).get("conditions", ())]
        words = [condition.get("message", "") for condition in conditions if condition["type"] == "Unschedulable"]
        assert words, f"conditions {conditions}"
        return str(words[-1])

    return await waiting.wait(read_message, seconds=seconds, describe=f"job {name} to be found unschedulable")


def leaf_of(pod: api.Object) -> str:
    """Return the leaf of the node a pod is on; "" if it is on none."""
    return str(pod["spec"].get("nodeName", "")).rpartition("-")[0]


def leaves_of(placed: api.Objects) -> list[str]:
    """Return the leaves that pods are in, each once for each stretch of ranks in it."""
    leaves = [leaf_of(pod) for pod in placed]
    return [leaf for number, leaf in enumerate(leaves) if number == 0 or leaf != leaves[number - 1]]


async def install(
    running_plane: plane.Plane,
    installation: site.Site,
    opened: reverse_proxy.ReverseProxy,
    text: str,
    configuration: Mapping[str, Any],
) -> servers.Server:
    """Return the policy and the extender behind the proxy, and Volcano told of it."""
    await installation.policy(text)
    extender = await installation.start_extender()
    opened.backend = extender.port
    await running_plane.schedulers.volcano(conf=configuration)
    return extender


def _rank(pod: api.Object) -> tuple[bool, int]:
    role, _, number = str(pod["metadata"]["name"]).rpartition("-")
    return not role.endswith("master"), int(number)


async def list_refusals(running_plane: plane.Plane, url: str, namespace: str, names: Sequence[str]) -> dict[str, str]:
    """Return the reason of each filtered node for a pod that uses a whole node and requires its rails."""
    container = {"name": "c", "resources": {"requests": WHOLE}}
    metadata = {"name": "probe", "namespace": namespace, "uid": "probe", "labels": {"railwright.io/fabric": "ib"}}
    body = {"Pod": {"metadata": metadata, "spec": {"containers": [container]}}, "Nodes": None, "NodeNames": names}
    async with running_plane.session.post(f"{url}/scheduler/filter", json=body) as answer:
        refusals: dict[str, str] = (await answer.json())["FailedNodes"]
        return refusals
