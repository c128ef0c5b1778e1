"""Annotations of a pod when it gets a node: its position in the fabric and the devices of that node, by both
schedulers, whatever else happened to the pod meanwhile.
"""

import asyncio
import contextlib
import json

import admitting
import pytest
import pytest_asyncio
from plane import conditions, gangs, manifests, volcano, waiting
from plane.manifests import LEAF, RAILS

PLACEMENT, CONF = "railwright.io/placement", "railwright.io/nccl.conf"
DEVICES = {"old": ("mlx5_0", "mlx5_1"), "new": ("mlx5_4", "mlx5_5")}
POLICY = manifests.policy(
    {
        "rails": manifests.fabric(
            [{"name": f"rail{rail}", "resource": resource} for rail, resource in enumerate(RAILS)],
            placement={"rails": "preferred", "domains": [LEAF]},
        )
    },
    nodeShapes=[
        {"name": name, "match": {"gpu": name}, "devices": {f"rail{rail}": device for rail, device in enumerate(names)}}
        for name, names in DEVICES.items()
    ],
)
BOTH = pytest.mark.parametrize("scheduler", ["volcano", "default-scheduler"])


def workload(scheduler: str, count: int, annotations: dict | None = None) -> list[dict]:
    """Return so many pods that take a whole node's GPUs: a Volcano Job of them, or bare ones."""
    kinds = {"limits": {"nvidia.com/gpu": 8}, "annotations": annotations or {}}
    if scheduler == "volcano":
        return [manifests.volcano_job("train", manifests.pod("unused", "rails", **kinds), {"w": count})]
    return [manifests.pod(f"train-{index}", "rails", **kinds) for index in range(count)]


class Seen:
    """Collects every version of every pod from a watch."""

    def __init__(self) -> None:
        self.pods: list[dict] = []

    async def follow(self, plane, namespace: str) -> None:
        async for _, pod in plane.api.watch("Pod", namespace):
            self.pods.append(pod)

    def bound(self) -> list[dict]:
        return [pod for pod in self.pods if pod["spec"].get("nodeName")]


@pytest_asyncio.fixture(loop_scope="session")
async def seen(plane, namespace):
    watched = Seen()
    task = asyncio.create_task(watched.follow(plane, namespace))
    yield watched
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def proxy(plane, module_site):
    """Yield the proxy by which Volcano calls the extender."""
    await module_site.policy(POLICY)
    await module_site.start_extender()
    url = f"{module_site.proxy.url}/volcano"
    await plane.schedulers.volcano(volcano.extender(url, managed=RAILS, httpTimeout="60s"))
    return module_site.proxy


@pytest_asyncio.fixture(loop_scope="session")
async def installed(proxy, installed):
    """Yield the installation, which Volcano asks."""
    return installed


async def running(plane, namespace: str, count: int) -> list[dict]:
    return await conditions.running(plane.api, namespace, "", count)


async def pending(plane, namespace: str) -> dict:
    async def there():
        return await plane.api.list("Pod", namespace)

    (pod,) = await waiting.wait(there, seconds=60, describe="the pod to be created")
    return pod


def read_annotations(pod: dict) -> tuple[dict, str]:
    annotations = pod["metadata"]["annotations"]
    return json.loads(annotations[PLACEMENT]), annotations.get(CONF, "")


@BOTH
async def test_placement_and_devices_come_with_the_node(plane, namespace, nodes, installed, seen, scheduler):
    for shape in DEVICES:
        await nodes.make(f"gpu-{shape}", rails=gangs.ONE_EACH, labels={"gpu": shape, LEAF: f"leaf-{shape}"})
    await gangs.create(plane.api, namespace, workload(scheduler, 2))
    pods = await running(plane, namespace, 2)
    assert {pod["spec"]["nodeName"] for pod in pods} == {"gpu-old", "gpu-new"}
    for pod in pods:
        shape = pod["spec"]["nodeName"].removeprefix("gpu-")
        placement, conf = read_annotations(pod)
        expected = {"node": f"gpu-{shape}", "shape": shape, "rails": ["rail0", "rail1"], "domains": [f"leaf-{shape}"]}
        assert placement == expected
        assert conf == f"NCCL_IB_HCA=={','.join(DEVICES[shape])}\n"
        (container,) = pod["spec"]["containers"]
        assert "NCCL_IB_HCA" not in [variable["name"] for variable in container["env"]]
        assert "/etc/nccl.conf" in [volume_mount["mountPath"] for volume_mount in container["volumeMounts"]]
    bound = seen.bound()
    assert {pod["metadata"]["name"] for pod in bound} == {pod["metadata"]["name"] for pod in pods}
    for pod in bound:
        assert read_annotations(pod)[0]["node"] == pod["spec"]["nodeName"], (
            "a version of the pod had a node and not its place"
        )
        assert read_annotations(pod)[1]


async def wait_until_webhook_removes(plane, installed, pod: dict, key: str) -> None:
    """Wait until the webhook would remove an annotation of this old version of a pod from a Binding."""
    metadata = {part: pod["metadata"][part] for part in ("name", "namespace", "uid", "annotations")}
    binding = {"metadata": metadata, "target": {"kind": "Node", "name": "gpu-old"}}
    body = json.loads(admitting.review(binding, name="admission-bindings-admin.json", dryRun=True))
    body["request"] |= {part: metadata[part] for part in ("name", "namespace")}
    url = f"https://127.0.0.1:{installed.webhook.port}/mutate/bindings"
    removal = {"op": "remove", "path": f"/metadata/annotations/{key}"}

    async def is_removed() -> bool:
        async with plane.session.post(url, json=body) as answer:
            operations = admitting.operations((await answer.json())["response"])
        assert removal in operations, operations
        return True

    await waiting.wait(is_removed, describe="the webhook to see the change of the pod")


async def test_a_changed_annotation_survives_volcanos_binding(plane, namespace, nodes, installed, proxy):
    """Volcano binds with the annotations of the pod as its session began, and the API server writes them all."""
    changed = []

    async def change_in_the_session(request):
        if request.path == "/volcano/allocate" and not changed:
            pod = await pending(plane, namespace)
            fresh = {"changed": "new", "removed": None, "added": "new"}
            await plane.api.patch("Pod", pod["metadata"]["name"], {"metadata": {"annotations": fresh}}, namespace)
            changed.append(pod["metadata"]["annotations"])
            await wait_until_webhook_removes(plane, installed, pod, "removed")  # Volcano waits for this answer

    proxy.hook = change_in_the_session
    await nodes.make("gpu-old", rails=gangs.ONE_EACH, labels={"gpu": "old", LEAF: "leaf-0"})
    await gangs.create(
        plane.api, namespace, workload("volcano", 1, {"changed": "old", "removed": "old", "same": "old"})
    )
    (pod,) = await running(plane, namespace, 1)
    proxy.hook = None
    assert changed[0]["changed"] == "old"
    annotations = pod["metadata"]["annotations"]
    assert {key: annotations.get(key) for key in ("changed", "removed", "added", "same")} == {
        "changed": "new",
        "removed": None,
        "added": "new",
        "same": "old",
    }
    assert read_annotations(pod)[0]["node"] == "gpu-old"
    assert read_annotations(pod)[1] == "NCCL_IB_HCA==mlx5_0,mlx5_1\n"
    assert json.loads(annotations["railwright.io/injection"])["fabric"] == "rails"
