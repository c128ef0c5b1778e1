"""Creates nodes of one shape and gangs of pods with claims, and reads the devices that each pod was allocated."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

from plane import api, gangs, manifests, nodes, plane


@contextlib.asynccontextmanager
async def offer(on: plane.Plane, shape: Any, count: int) -> AsyncIterator[Sequence[str]]:
    """Create nodes of a shape (shapes.Shape) named SHAPE-00..., their slices and classes; remove them at the end."""
    made = nodes.Nodes(on.api)
    names = [f"{shape.name}-{number:02}" for number in range(count)]
    for tree in shape.build_classes():
        await on.api.create(tree)
    try:
        await asyncio.gather(*(made.make_with_slices(name, shape.build_slices(name)) for name in names))
        yield names
    finally:
        await made.remove()
        for tree in shape.build_classes():
            await on.api.delete("DeviceClass", tree["metadata"]["name"])


def build_fabric_pod(name: str, gang: str, gpus: int) -> api.Object:
    """Return a pod of a gang as a user writes it with railwright: GPUs, and the label of the fabric."""
    limits = {"nvidia.com/gpu": gpus}
    return manifests.pod(name, "claimed", limits=limits, labels={gangs.GROUP: gang}, terminationGracePeriodSeconds=0)


async def list_results(client: api.Api, namespace: str) -> dict[str, api.Objects]:
    """Return the devices allocated to each pod that owns claims: entries with request, pool (the node) and device."""
    results: dict[str, api.Objects] = {}
    for claim in await client.list("ResourceClaim", namespace):
        (owner,) = claim["metadata"]["ownerReferences"]
        allocated = claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ())
        results.setdefault(owner["name"], []).extend(allocated)
    return results


async def list_devices(client: api.Api, namespace: str) -> dict[str, list[str]]:
    """Return the names of the devices allocated to each pod that owns claims."""
    results = await list_results(client, namespace)
    return {pod: [result["device"] for result in allocated] for pod, allocated in results.items()}
