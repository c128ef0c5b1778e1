"""Claims that railwright writes, on nodes of published shapes, with the allocator of kube-scheduler.

Gangs of Volcano with claims are in test_gangs_of_any_rails.py.
"""

import asyncio

import pytest
import pytest_asyncio
import shapes
from plane import claim_gangs, gangs

GANG, NODES = 4, 4


@pytest_asyncio.fixture(loop_scope="session")
async def install(namespace, module_site):  # `namespace` first, so that it is deleted last
    """Return `await install(shape)`: install a policy whose claims fit the shape, in the namespace of the test."""

    async def run(shape):
        await module_site.install(shape.build_policy(), namespace)

    yield run
    await module_site.unregister()


async def create_two_gangs(plane, namespace, shape):
    """Create the pods of two gangs in turns; return the devices of each pod."""
    pods = [
        claim_gangs.build_fabric_pod(f"{gang}-{rank}", gang, shape.pod_gpus)
        for rank in range(GANG)
        for gang in ("first", "second")
    ]
    await asyncio.gather(*(plane.api.create(pod, namespace=namespace) for pod in pods))
    await gangs.wait_bound(plane.api, namespace, len(pods), seconds=120)
    return await claim_gangs.list_devices(plane.api, namespace)


@pytest.mark.parametrize("name", ["eks-p5", "oke-gb200"])
async def test_each_pod_gets_gpus_paired_with_their_own_nics(plane, namespace, install, name):
    shape = shapes.load(name)
    await install(shape)
    async with claim_gangs.offer(plane, shape, NODES):
        devices = await create_two_gangs(plane, namespace, shape)
        assert len(devices) == 2 * GANG
        for held in devices.values():
            assert shape.is_paired(held), held
            assert len(shapes.list_nics(held)) == shape.pod_nics
        await plane.remove_pods(namespace)


async def test_the_devices_of_a_large_pod_are_split_into_claims_without_splitting_pairs(plane, namespace, install):
    shape = shapes.load("eks-p5")
    await install(shape)
    async with claim_gangs.offer(plane, shape, 1):
        await plane.api.create(claim_gangs.build_fabric_pod("whole", "g", len(shape.gpus)), namespace=namespace)
        await gangs.wait_bound(plane.api, namespace, 1, seconds=120)
        devices = await claim_gangs.list_devices(plane.api, namespace)
        assert len(devices["whole"]) == len(shape.gpus) + len(shape.nics)
        claims = await plane.api.list("ResourceClaim", namespace)
        held = [
            [result["device"] for result in claim["status"]["allocation"]["devices"]["results"]] for claim in claims
        ]
        assert len(held) == 2
        assert all(len(devices) <= 32 and shape.is_paired(devices) for devices in held)
        await plane.remove_pods(namespace)
