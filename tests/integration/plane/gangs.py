"""Creates a policy, nodes in leaves, and gangs of pods that request rails themselves, and reads placements.

No webhook is needed. A node's name is its leaf's and a number.
"""

import asyncio
import contextlib
import itertools
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from plane import api, conditions, diagnosis, manifests, plane, servers, site, volcano, waiting
from plane.manifests import LEAF, RAILS, SPINE
from plane.nodes import Nodes

ONE_EACH: Mapping[str, int] = dict.fromkeys(RAILS, 1)  # exclusive
WHOLE: Mapping[str, int] = {"nvidia.com/gpu": 8, **ONE_EACH}  # what a pod takes that takes a node's GPUs and rails
VOLCANO_JOB = "volcano.sh/job-name"
JOB_NAME, JOB_INDEX = "batch.kubernetes.io/job-name", "batch.kubernetes.io/job-completion-index"
GROUP = "scheduling.x-k8s.io/pod-group"
_FAR = 2  # steps of kube-scheduler that a node with room leaves to one that scores nothing
_EVENT_SECONDS = 15.0  # a test that needs no such event takes less
SHORT = f"Insufficient {RAILS[0]}"  # what kube-scheduler says where the devices of a rail are taken


def policy(**placement: Any) -> str:
    """Return a policy with the fabric `rails`."""
    return manifests.policy({"rails": manifests.fabric(2, placement={"domains": [LEAF, SPINE], **placement})})


POLICY = policy()


@contextlib.asynccontextmanager
async def running(on: plane.Plane, *, ignorable: bool = False) -> AsyncIterator[site.Site]:
    """Yield an installation with POLICY, an extender, and kube-scheduler configured for it."""
    async with site.running(on) as installation:
        await installation.policy(POLICY)
        await installation.start_extender()
        await on.schedulers.kube(entry(installation.proxy.url, ignorable=ignorable))
        yield installation


@contextlib.asynccontextmanager
async def beside_volcano(on: plane.Plane) -> AsyncIterator[site.Site]:
    """Yield the installation of `running` with Volcano as a second caller of its extender, also after a restart."""
    async with running(on) as installation:
        url = f"{installation.proxy.url}/volcano"
        arguments = volcano.extender(url, managed=RAILS, predicateVerb="predicate", httpTimeout="60s")
        await on.schedulers.volcano(volcano.conf(arguments))
        yield installation


def entry(url: str, *, ignorable: bool = False, managed: Sequence[str] = RAILS) -> dict[str, Any]:
    """Return the extender entry of kube-scheduler's configuration, which counts the rails, as shipped."""
    return {
        "urlPrefix": f"{url}/scheduler",
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "weight": 5,
        "nodeCacheCapable": True,
        "httpTimeout": "5s",
        "ignorable": ignorable,
        "managedResources": [{"name": name, "ignoredByScheduler": False} for name in managed],
    }


def pod(
    name: str,
    *,
    gpus: int = 8,
    rails: Mapping[str, int] = ONE_EACH,
    fabric: str = "rails",
    **more: Any,
) -> api.Object:
    """Return a training pod that asks for its GPUs and rails."""
    limits = {resource: count for resource, count in {"nvidia.com/gpu": gpus, **rails}.items() if count}
    return manifests.pod(name, fabric, limits=limits, **more)


def job(name: str, size: int, **kinds: Any) -> api.Object:
    """Return an indexed batch Job of training pods."""
    return manifests.workload(
        "Job", pod("unused", **kinds), name=name, replicas=size, completions=size, completionMode="Indexed"
    )


def volcano_job(name: str, size: int, **kinds: Any) -> api.Object:
    """Return a Volcano Job of training pods that start all or none."""
    return manifests.volcano_job(name, pod("unused", **kinds), {"worker": size})


async def create(client: api.Api, namespace: str, manifests: Sequence[api.Object]) -> None:
    """Create objects one after the other."""
    for manifest in manifests:
        await client.create(manifest, namespace=namespace)


async def start_job(installation: site.Site, namespace: str, tree: api.Object) -> None:
    """Create a suspended Job, and resume it once the extender knows it, so that its first pod is one of a gang."""
    client, extender = installation.plane.api, installation.extender
    assert extender is not None
    await client.create({**tree, "spec": {**tree["spec"], "suspend": True}}, namespace=namespace)

    await _wait_until_known(client, extender, "batch/v1/Job", "jobs.batch")
    await client.patch("batch/v1/Job", tree["metadata"]["name"], {"spec": {"suspend": False}}, namespace)


async def _wait_until_known(client: api.Api, extender: servers.Server, kind: str, cache: str) -> None:
    async def are_known() -> bool:
        known = await site.read_metric(extender, "railwright_cache_objects", kind=cache)
        return known == len(await client.list(kind))

    await waiting.wait(are_known, describe=f"the extender to know all {cache}")


async def release(
    client: api.Api, namespace: str, *gangs: Sequence[api.Object], seen_by: servers.Server | None = None
) -> None:
    """Create the gangs' pods with a scheduling gate, then remove the gates, gang by gang in turns, as a job queue does.

    So all pods of a gang exist, and the given extender knows them, before its first pod is placed.
    """
    gated = {"schedulingGates": [{"name": "test/queue"}]}
    turns = [pod for turn in itertools.zip_longest(*gangs) for pod in turn if pod]
    for pod in turns:  # in their order: kube-scheduler sorts by the time it first saw a pod
        await client.create({**pod, "spec": {**pod["spec"], **gated}}, namespace=namespace)
    if seen_by is not None:
        await _wait_until_known(client, seen_by, "Pod", "pods")
    for pod in turns:
        await client.patch("Pod", pod["metadata"]["name"], {"spec": {"schedulingGates": None}}, namespace)


async def make_leaves(
    nodes: Nodes,
    rails: Mapping[str, int] | None = ONE_EACH,
    *,
    spine: str = "s0",
    first: int = 0,
    **sizes: int,
) -> list[list[str]]:
    """Create the nodes `a-00`, `a-01`, ... of each leaf; return their names by leaf.

    Without `rails`, the devices of `devices` are in ResourceSlices.
    """
    names = [[f"{leaf}-{index:02}" for index in range(first, first + size)] for leaf, size in sizes.items()]
    calls = [
        nodes.make_with_slices(name, labels={LEAF: leaf, SPINE: spine})
        if rails is None
        else nodes.make(name, rails=rails, labels={LEAF: leaf, SPINE: spine})
        for leaf, members in zip(sizes, names, strict=True)
        for name in members
    ]
    await asyncio.gather(*calls)
    return names


async def hold_devices(
    client: api.Api, namespace: str, *names: str, limits: Mapping[str, Any] = WHOLE, **metadata: Any
) -> None:
    """Create other jobs' pods that hold devices of these nodes, and wait until they run."""
    pods = [manifests.holder(name, limits, labels={"other": "job"}, **metadata) for name in names]
    await asyncio.gather(*(client.create(pod, namespace=namespace) for pod in pods))
    for name in names:
        await conditions.wait_object(client, "Pod", f"on-{name}", namespace, status={"phase": "Running"})


async def wait_bound(
    client: api.Api, namespace: str, count: int, labels: str = "", *, seconds: float = 60
) -> api.Objects:
    """Wait until exactly `count` pods of a label selector are bound; return them in the order of their ranks.

    kube-scheduler tries a waiting pod again at the event that frees a device, and then after five minutes. The extender
    of a busy machine may see that event too late. So a node changes every `_EVENT_SECONDS`, as nodes of a cluster do.
    """
    began = time.monotonic()
    changes = 0

    async def are_bound() -> api.Objects:
        nonlocal changes
        if time.monotonic() - began > (changes + 1) * _EVENT_SECONDS:
            changes += 1
            await _change_a_node(client, changes)
        listed = await client.list("Pod", namespace, labels=labels)
        places = {pod["metadata"]["name"]: get_node(pod) for pod in listed}
        assert len(places) == count, places
        assert all(places.values()), places
        return sorted(listed, key=get_rank)

    awaited = f"{count} bound pods with labels {labels!r}"
    return await waiting.wait(
        are_bound, seconds=seconds, describe=lambda: diagnosis.describe(client, namespace, awaited)
    )


async def _change_a_node(client: api.Api, number: int) -> None:
    """Set a label of a node. kube-scheduler then tries pods again that an extender rejected."""
    nodes = await client.list("Node")
    if nodes:
        label = {"metadata": {"labels": {"changed-by-test": str(number)}}}
        await client.patch("Node", nodes[0]["metadata"]["name"], label)


async def place(client: api.Api, namespace: str, name: str, **kinds: Any) -> str:
    """Create a pod and wait for its node."""
    await client.create(pod(name, labels={"name": name}, **kinds), namespace=namespace)
    return await wait_for_node(client, namespace, name)


async def wait_for_node(client: api.Api, namespace: str, name: str) -> str:
    """Wait until the pod with the label `name` is bound; return its node."""
    (pod,) = await wait_bound(client, namespace, 1, f"name={name}")
    return get_node(pod)


async def run_gang(installation: site.Site, namespace: str, name: str, size: int, label: str = GROUP) -> api.Objects:
    """Create a gang and wait until all its pods are bound; return them by rank."""
    client = installation.plane.api
    await release(client, namespace, build_gang(name, size, label), seen_by=installation.extender)
    return await wait_bound(client, namespace, size, f"{label}={name}")


def build_gang(name: str, size: int, label: str = GROUP, **kinds: Any) -> api.Objects:
    """Return the pods of a gang, with a common label."""
    return [pod(f"{name}-{rank}", labels={label: name}, **kinds) for rank in range(size)]


async def wait_event(client: api.Api, namespace: str, name: str, *parts: str) -> str:
    """Wait for a FailedScheduling event of a pod with all `parts`; return its message."""
    return conditions.read_message(await conditions.wait_event(client, namespace, "FailedScheduling", *parts, of=name))


async def wait_for_refusals(installation: site.Site, expected: Mapping[str, str]) -> None:
    """Wait until the extender refuses the `expected` nodes, for these reasons, to a pod with each rail.

    The request also has a node that the extender does not know. If all were refused, the extender would look again, as
    often as it does for kube-scheduler in that second (docs/schedulers.md).
    """

    async def are_refused() -> bool:
        answer = await _ask(installation, "filter", pod("probe", gpus=0), [*expected, "unknown"])
        refusals = answer["FailedAndUnresolvableNodes"]
        assert refusals == expected, refusals
        return True

    await waiting.wait(are_refused, describe=f"the extender to refuse {', '.join(expected)}")


async def list_full(installation: site.Site, names: Sequence[str], *, gpus: int = 0) -> set[str]:
    """Return the nodes on which the extender counts no room for a pod with each rail and these GPUs.

    A node with room ranks far above one that the extender does not know, which scores nothing.
    """
    full = set()
    for name in names:
        rows = await _ask(installation, "prioritize", pod("probe", gpus=gpus), [name, "unknown"])
        score = {row["Host"]: row["Score"] for row in rows}
        if score["unknown"] > _FAR or score["unknown"] == score[name]:
            full.add(name)
    return full


async def _ask(installation: site.Site, verb: str, probe: api.Object, names: Sequence[str]) -> Any:
    metadata = {"namespace": "probe", **probe["metadata"], "uid": "probe"}
    body = {"Pod": {**probe, "metadata": metadata}, "Nodes": None, "NodeNames": names}
    assert installation.extender is not None
    url = f"http://127.0.0.1:{installation.extender.port}/scheduler/{verb}"
    async with installation.plane.session.post(url, json=body) as answer:
        return json.loads(await answer.read())


async def wait_until_taken(installation: site.Site, *names: str) -> None:
    """Wait until these nodes have no room for a pod of `list_full`.

    Use it where the placement of the next pod depends on what the extender knows of the last one: its watch may be
    late on a loaded machine.
    """

    async def are_taken() -> bool:
        full = await list_full(installation, names)
        assert full == {*names}, full
        return True

    await waiting.wait(are_taken, describe=f"the extender to see {', '.join(names)} taken")


async def wait_until_free(installation: site.Site, *names: str) -> None:
    """Wait until these nodes have room for a pod of `list_full`."""

    async def are_free() -> bool:
        full = await list_full(installation, names)
        assert not full, full
        return True

    await waiting.wait(are_free, describe=f"the extender to see {', '.join(names)} free")


def get_rank(pod: api.Object) -> tuple[bool, int]:
    """Return a sort key: a master first, then the completion index, else the number that ends the name, else 0."""
    metadata = pod["metadata"]
    role, _, number = metadata["name"].rpartition("-")
    text = metadata.get("labels", {}).get(JOB_INDEX, number)
    return not role.endswith("master"), int(text) if text.isdigit() else 0


def get_node(pod: api.Object) -> str:
    """Return the node of a pod; "" if the pod is not bound."""
    node: str = pod["spec"].get("nodeName", "")
    return node


def list_leaves(pods: Sequence[api.Object]) -> list[str]:
    """Return the leaf of each pod, by the names that `make_leaves` gives."""
    return [get_node(pod).rpartition("-")[0] for pod in pods]


def list_runs(pods: Sequence[api.Object]) -> list[str]:
    """Return the leaf of each run of consecutive ranks on one leaf."""
    return [leaf for leaf, _ in itertools.groupby(list_leaves(pods))]
