"""Small pods for real nodes, and waiting for them."""

from collections.abc import Mapping, Sequence
from typing import Any

from plane import api, waiting

from realnode import images


def describe(
    name: str,
    *,
    node: str = "",
    labels: Mapping[str, str] | None = None,
    command: Sequence[str] = ("sleep", "100000"),
    limits: Mapping[str, str] | None = None,
    **spec: Any,
) -> api.Object:
    """Return a pod of one container with a shell, which ends at once when it is deleted."""
    container = {
        "name": "main",
        "image": images.BUSYBOX,
        "command": list(command),
        "resources": {"limits": limits or {}},
    }
    place = {"nodeName": node} if node else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": dict(labels or {})},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [container], **place, **spec},
    }


async def wait_ready(client: api.Api, namespace: str, name: str, *, seconds: float = 60) -> api.Object:
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
