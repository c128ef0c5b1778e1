"""railwright beside kube-scheduler for the tests of a file: policy, extender, proxy and scheduler configuration, once.

Pods here ask for their rails themselves, so no webhook is needed. Owns their manifests and where they landed.
"""

import asyncio
import contextlib
import dataclasses
import itertools
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from plane import api, plane, reverse_proxy, site, volcano, waiting

LEAF, SPINE = "fabric.topograph.run/tier-0", "fabric.topograph.run/tier-1"
RAILS = ("nvidia.com/mlx5_0", "nvidia.com/mlx5_1")
ONE_EACH: Mapping[str, int] = dict.fromkeys(RAILS, 1)  # exclusive
SHARED: Mapping[str, int] = dict.fromkeys(RAILS, 100)
VOLCANO_JOB = "volcano.sh/job-name"
JOB_NAME, JOB_INDEX = "batch.kubernetes.io/job-name", "batch.kubernetes.io/job-completion-index"
GROUP = "scheduling.x-k8s.io/pod-group"
_EVENT_SECONDS = 15.0  # a test that needs no such event takes less
NEVER = "railwright: the node cannot give rail0: 1 nvidia.com/mlx5_0 needed, 0 allocatable"
BUSY = "railwright: rail0 is busy: 0 of 1 nvidia.com/mlx5_0 free, 1 needed"
_FABRIC = """
  {name}:
    transport: infiniband
    rails:
    - {{name: rail0, resource: nvidia.com/mlx5_0, device: mlx5_0}}
    - {{name: rail1, resource: nvidia.com/mlx5_1, device: mlx5_1}}
    placement: {{rails: {rails}, domains: [{leaf}, {spine}]}}
"""
POLICY = "apiVersion: railwright.io/v1alpha1\nkind: FabricPolicy\nfabrics:" + "".join(
    _FABRIC.format(name=name, rails=name, leaf=LEAF, spine=SPINE) for name in ("required", "preferred")
)


@dataclasses.dataclass
class Kube:
    """A running installation and the proxy by which kube-scheduler reaches its extender."""

    plane: plane.Plane
    site: site.Site
    proxy: reverse_proxy.ReverseProxy

    async def restart_extender(self) -> None:
        """Another extender behind the same proxy."""
        self.proxy.backend = (await self.site.start_extender()).port


@contextlib.asynccontextmanager
async def running(on: plane.Plane, *, ignored: bool, ignorable: bool = False) -> AsyncIterator[Kube]:
    """Yield both fabrics, an extender, and kube-scheduler configured for it; all taken away again."""
    installation = site.Site(on)
    opened = await reverse_proxy.ReverseProxy().open()
    try:
        await installation.prepare()
        await installation.policy(POLICY)
        opened.backend = (await installation.start_extender()).port
        await on.schedulers.kube(entry(opened.url, ignored=ignored, ignorable=ignorable))
        yield Kube(on, installation, opened)
    finally:
        await on.schedulers.reset()
        await installation.remove()
        await opened.close()


@contextlib.asynccontextmanager
async def beside_volcano(on: plane.Plane) -> AsyncIterator[Kube]:
    """The same, and Volcano asking the same extender; the rails are left to it."""
    async with running(on, ignored=True) as scheduler:
        await on.schedulers.volcano(
            volcano.extender(f"{scheduler.proxy.url}/volcano", managed=RAILS, predicateVerb="predicate")
        )
        yield scheduler


def entry(url: str, *, ignored: bool, ignorable: bool = False) -> dict[str, Any]:
    """Return the extender entry of kube-scheduler's configuration. `ignored`: kube-scheduler leaves the rails to us."""
    return {
        "urlPrefix": f"{url}/scheduler",
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "weight": 5,
        "nodeCacheCapable": True,
        "httpTimeout": "5s",
        "ignorable": ignorable,
        "managedResources": [{"name": name, "ignoredByScheduler": ignored} for name in RAILS],
    }


def pod(
    name: str,
    *,
    gpus: int = 8,
    rails: Mapping[str, int] = ONE_EACH,
    fabric: str = "required",
    labels: Mapping[str, str] | None = None,
    **spec: Any,
) -> api.Object:
    """Return a training pod that asks for its GPUs and rails."""
    resources = {"nvidia.com/gpu": gpus, **rails}
    limits = {resource: str(count) for resource, count in resources.items() if count}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"railwright.io/fabric": fabric, **(labels or {})}},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": limits}}], **spec},
    }


def job(name: str, size: int, **kinds: Any) -> api.Object:
    """Return an indexed batch Job of training pods."""
    made = pod("unused", **kinds)
    template = {"metadata": {"labels": made["metadata"]["labels"]}, "spec": {**made["spec"], "restartPolicy": "Never"}}
    spec = {"completions": size, "parallelism": size, "completionMode": "Indexed", "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def volcano_job(name: str, size: int, **kinds: Any) -> api.Object:
    """Return a Volcano Job of training pods that start all or none."""
    made = pod("unused", **kinds)
    template = {"metadata": {"labels": made["metadata"]["labels"]}, "spec": made["spec"]}
    spec = {
        "minAvailable": size,
        "schedulerName": "volcano",
        "tasks": [{"name": "worker", "replicas": size, "template": template}],
    }
    return {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


async def create(client: api.Api, namespace: str, manifests: Sequence[api.Object]) -> None:
    """Create objects one after the other."""
    for manifest in manifests:
        await client.create(manifest, namespace=namespace)


async def release(client: api.Api, namespace: str, *gangs: Sequence[api.Object]) -> None:
    """Create the gangs' pods held back by a gate, then let them go to the scheduler in turns, as a job queue does.

    So all of a gang is there to be seen when its first pod is placed.
    """
    gated = {"schedulingGates": [{"name": "test/queue"}]}
    turns = [pod for turn in itertools.zip_longest(*gangs) for pod in turn if pod]
    for pod in turns:  # in their order: kube-scheduler sorts by the time it first saw a pod
        await client.create({**pod, "spec": {**pod["spec"], **gated}}, namespace=namespace)
    for pod in turns:
        await client.patch("Pod", pod["metadata"]["name"], {"spec": {"schedulingGates": None}}, namespace)


async def make_leaves(nodes: Any, rails: Mapping[str, int] = ONE_EACH, *, spine: str = "s0", **sizes: int) -> None:
    """Create the nodes `a-00`, `a-01`, ... of each leaf."""
    await asyncio.gather(
        *(
            nodes.make(f"{leaf}-{index:02}", rails=rails, labels={LEAF: leaf, SPINE: spine})
            for leaf, size in sizes.items()
            for index in range(size)
        )
    )


async def bound(client: api.Api, namespace: str, count: int, labels: str = "", *, seconds: float = 60) -> api.Objects:
    """Wait until exactly `count` pods of a label selector have their nodes; in the order of their ranks.

    kube-scheduler tries a waiting pod again at the event that frees a device, and then after five minutes. The extender
    of a busy machine may see that event too late. So a node changes every `_EVENT_SECONDS`, as nodes of a cluster do.
    """
    began = time.monotonic()
    changes = 0

    async def all_bound() -> api.Objects:
        nonlocal changes
        if time.monotonic() - began > (changes + 1) * _EVENT_SECONDS:
            changes += 1
            await _change_a_node(client, changes)
        listed = await client.list("Pod", namespace, labels=labels)
        places = {pod["metadata"]["name"]: node_of(pod) for pod in listed}
        assert len(places) == count, places
        assert all(places.values()), places
        return sorted(listed, key=rank_of)

    return await waiting.wait(all_bound, seconds=seconds, describe=f"{count} bound pods with labels {labels!r}")


async def _change_a_node(client: api.Api, number: int) -> None:
    """Set a label of a node. kube-scheduler then tries pods again that an extender rejected."""
    nodes = await client.list("Node")
    if nodes:
        label = {"metadata": {"labels": {"changed-by-test": str(number)}}}
        await client.patch("Node", nodes[0]["metadata"]["name"], label)


async def place(client: api.Api, namespace: str, name: str, **kinds: Any) -> str:
    """Create a pod and wait for its node."""
    await client.create(pod(name, labels={"name": name}, **kinds), namespace=namespace)
    return await where(client, namespace, name)


async def where(client: api.Api, namespace: str, name: str) -> str:
    """Wait for the node of a pod that `place` made, or one with a label `name`."""
    (pod,) = await bound(client, namespace, 1, f"name={name}")
    return node_of(pod)


async def run_gang(client: api.Api, namespace: str, name: str, size: int) -> api.Objects:
    """Wait until all pods of a new gang are bound; by rank."""
    manifests = [pod(f"{name}-{index}", labels={GROUP: name}) for index in range(size)]
    await release(client, namespace, manifests)
    return await bound(client, namespace, size, f"{GROUP}={name}")


async def event(client: api.Api, namespace: str, name: str, *parts: str) -> str:
    """Wait for a FailedScheduling event of a pod that holds all of these; returns its message."""

    async def find_message() -> str:
        events = await client.list("Event", namespace, fields=f"reason=FailedScheduling,involvedObject.name={name}")
        messages = [event.get("message") or event.get("note", "") for event in events]
        matches = [message for message in messages if all(part in message for part in parts)]
        assert matches, messages
        return matches[0]

    return await waiting.wait(find_message, seconds=60, describe=f"an event of pod {name} with {parts}")


async def list_refusals(kube: Kube, names: Sequence[str]) -> dict[str, str]:
    """Return the reason of each filtered node for a pod that requires each rail.

    The request also has a node that the extender does not know. If all were refused, the extender would look again,
    as often as it does for kube-scheduler in that second (docs/schedulers.md).
    """
    probe = pod("probe", gpus=0)
    probe["metadata"] |= {"namespace": "probe", "uid": "probe"}
    body = {"Pod": probe, "Nodes": None, "NodeNames": [*names, "unknown"]}
    url = f"http://127.0.0.1:{kube.site.extender.port}/scheduler/filter"
    async with kube.plane.session.post(url, json=body) as answer:
        document = json.loads(await answer.read())
    refusals: dict[str, str] = document["FailedNodes"] | document["FailedAndUnresolvableNodes"]
    return refusals


async def wait_for_refusals(kube: Kube, expected: Mapping[str, str]) -> None:
    """Wait until the extender refuses these nodes for these reasons.

    It learns of a binding by its watch, which may be late on a loaded machine. With the rails left to it, the next pod
    would get the same devices until then (docs/schedulers.md).
    """

    async def are_refused() -> bool:
        refusals = await list_refusals(kube, [*expected])
        assert refusals == expected, refusals
        return True

    await waiting.wait(are_refused, describe=f"the extender to refuse {', '.join(expected)}")


def rank_of(pod: api.Object) -> int:
    """Return a pod's rank: its completion index, else the number its name ends with, else 0."""
    metadata = pod["metadata"]
    text = metadata.get("labels", {}).get(JOB_INDEX, metadata["name"].rpartition("-")[2])
    return int(text) if text.isdigit() else 0


def node_of(pod: api.Object) -> str:
    """Return the node of a pod; "" if the pod is not bound."""
    node: str = pod["spec"].get("nodeName", "")
    return node


def leaves_of(pods: Sequence[api.Object]) -> list[str]:
    """Return the leaf of each pod, by the names that `make_leaves` gives."""
    return [node_of(pod).rpartition("-")[0] for pod in pods]


def runs_of(leaves: Sequence[str]) -> list[str]:
    """Return the leaves in the order the ranks go through them; one that is left and entered again is there twice."""
    return [leaf for index, leaf in enumerate(leaves) if index == 0 or leaves[index - 1] != leaf]
