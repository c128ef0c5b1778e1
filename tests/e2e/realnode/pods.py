"""Small pods for real nodes, and waiting for them."""

from collections.abc import Mapping, Sequence
from typing import Any

from plane import api, manifests, waiting

from railwright.fabric import names
from realnode import images


def describe(
    name: str,
    fabric: str = "",
    *,
    on: str = "",
    command: Sequence[str] = ("sleep", "100000"),
    image: str = images.BUSYBOX,
    limits: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
    skip: str = "",
    annotations: Mapping[str, str] | None = None,
    **more: Any,
) -> api.Object:
    """Return a pod of one container with a shell, which ends at once when the pod is deleted.

    A pod with a fabric has a GPU unless `limits` say otherwise; `skip` names parts not to inject. `on` is a node that a
    scheduler has to choose.
    """
    if limits is None:
        limits = manifests.ONE_GPU if fabric else {}
    variables = [{"name": variable, "value": value} for variable, value in (env or {}).items()]
    container = {"name": "main", "image": image, "command": list(command), "env": variables}
    place = {"nodeSelector": {"kubernetes.io/hostname": on}} if on else {}
    spec = {"container": container, "terminationGracePeriodSeconds": 0, **place, **more}
    added = {**(annotations or {}), **({names.SKIP: skip} if skip else {})}
    return manifests.pod(name, fabric, limits=limits, annotations=added or None, **spec)


async def wait_preflight(client: api.Api, namespace: str, name: str, phase: str, *, seconds: float = 180) -> str:
    """Wait until a pod has a phase, and return the message of its preflight, which has ended."""

    async def find_message() -> str:
        status = (await client.get("Pod", name, namespace))["status"]
        assert status["phase"] == phase, status
        (preflight,) = status["initContainerStatuses"]
        assert preflight["state"]["terminated"]["exitCode"] == (1 if phase == "Failed" else 0)
        return str(preflight["state"]["terminated"]["message"])

    return await waiting.wait(find_message, seconds=seconds, describe=f"preflight of {name} to end, and {phase}")


async def wait_ready(client: api.Api, namespace: str, name: str, *, seconds: float = 180) -> api.Object:
    """Wait until a pod is ready and return it; its state and events are in the failure."""

    async def is_ready() -> api.Object | None:
        pod = await client.get("Pod", name, namespace)
        conditions = {condition["type"]: condition["status"] for condition in pod["status"].get("conditions", [])}
        return pod if conditions.get("Ready") == "True" else None

    async def explain() -> str:
        pod = await client.get("Pod", name, namespace)
        events = await client.list("v1/Event", namespace, fields=f"involvedObject.name={name}")
        lines = [f"{event['reason']}: {event['message']}" for event in events]
        return "\n".join([f"pod {namespace}/{name} to be ready; its status: {pod['status']}", *lines])

    ready = await waiting.wait(is_ready, seconds=seconds, describe=explain)
    assert ready is not None
    return ready
