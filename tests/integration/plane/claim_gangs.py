"""Pods with claims on nodes of one shape: made in gangs, allocated by the real scheduler, and counted.

It creates the nodes, slices, classes and pods of a measurement, and reads the devices of each pod.
"""

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from plane import api, diagnosis, gangs, manifests, nodes, plane, waiting

_AT_ONCE = 25  # objects created together
_STABLE_SECONDS = 5.0  # kube-scheduler tries a pod again after one or two seconds (components.kube_scheduler_conf)


@dataclasses.dataclass(frozen=True)
class Allocation:
    """A pod with its node and devices, or with the scheduler's `message` while it waits."""

    pod: str
    gang: str
    node: str
    devices: tuple[str, ...]
    message: str = ""


@contextlib.asynccontextmanager
async def offer(on: plane.Plane, shape: Any, count: int, **options: Any) -> AsyncIterator[Sequence[str]]:
    """Create nodes of a shape (shapes.Shape) named SHAPE-00..., their slices and classes; remove them at the end."""
    made = nodes.Nodes(on.api)
    names = [f"{shape.name}-{number:02}" for number in range(count)]
    for tree in shape.build_classes():
        await on.api.create(tree)
    try:
        await _in_batches(
            [lambda name=name: made.make_with_slices(name, shape.build_slices(name), **options) for name in names]
        )
        yield names
    finally:
        await made.remove()
        for tree in shape.build_classes():
            await on.api.delete("DeviceClass", tree["metadata"]["name"])


def build_claiming_pod(name: str, gang: str, template: str) -> api.Object:
    """Return a pod of a gang with a claim of a template, as a user would write it."""
    return manifests.claiming_pod(name, template, labels={gangs.GROUP: gang})


def build_fabric_pod(name: str, gang: str, gpus: int) -> api.Object:
    """Return a pod of a gang as a user writes it with railwright: GPUs, and the label of the fabric."""
    limits = {"nvidia.com/gpu": gpus}
    return manifests.pod(name, "claimed", limits=limits, labels={gangs.GROUP: gang}, terminationGracePeriodSeconds=0)


async def settle(
    on: plane.Plane, namespace: str, count: int, *, seconds: float = 120, until_bound: bool = False
) -> list[Allocation]:
    """Wait until each of `count` pods is bound, or none has been bound for some seconds and all were tried.

    With `until_bound`, wait until all are bound.
    """
    changed = time.monotonic()
    bound = -1

    async def is_settled() -> bool:
        nonlocal changed, bound
        pods = await on.api.list("Pod", namespace)
        now_bound = sum(bool(pod["spec"].get("nodeName")) for pod in pods)
        if now_bound != bound:
            bound, changed = now_bound, time.monotonic()
        tried = sum(bool(pod["spec"].get("nodeName") or _read_message(pod)) for pod in pods)
        assert (len(pods), tried) == (count, count), f"{len(pods)} pods, {now_bound} bound, {tried} tried"
        stable = not until_bound and time.monotonic() - changed > _STABLE_SECONDS
        assert now_bound == count or stable, f"{now_bound} bound"
        return True

    awaited = f"{count} pods to be bound or refused"
    await waiting.wait(is_settled, seconds=seconds, describe=lambda: diagnosis.describe(on.api, namespace, awaited))
    return await list_allocations(on.api, namespace)


async def list_allocations(client: api.Api, namespace: str) -> list[Allocation]:
    """Return the pods of a namespace with the devices of their claims."""
    pods, claims = await asyncio.gather(client.list("Pod", namespace), client.list("ResourceClaim", namespace))
    devices: dict[str, list[str]] = {}
    for claim in claims:
        results = claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ())
        for consumer in claim.get("status", {}).get("reservedFor", ()):
            devices.setdefault(consumer["uid"], []).extend(result["device"] for result in results)
    return [
        Allocation(
            pod["metadata"]["name"],
            pod["metadata"].get("labels", {}).get(gangs.GROUP, ""),
            pod["spec"].get("nodeName", ""),
            tuple(sorted(devices.get(pod["metadata"]["uid"], ()))) if pod["spec"].get("nodeName") else (),
            _read_message(pod),
        )
        for pod in sorted(pods, key=lambda pod: str(pod["metadata"]["name"]))
    ]


def _read_message(pod: api.Object) -> str:
    """Return why a pod waits; empty if no scheduler has tried it, or if it is bound."""
    conditions = pod.get("status", {}).get("conditions", ())
    return next(
        (
            f"{condition.get('reason', '')}: {condition.get('message', '')}"
            for condition in conditions
            if condition["type"] == "PodScheduled" and condition["status"] == "False"
        ),
        "",
    )


async def _in_batches(calls: Sequence[Callable[[], Any]]) -> None:
    for first in range(0, len(calls), _AT_ONCE):
        await asyncio.gather(*(call() for call in calls[first : first + _AT_ONCE]))
