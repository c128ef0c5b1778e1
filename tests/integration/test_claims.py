"""Rails and GPUs of Dynamic Resource Allocation, on the real API server and its allocator."""

import devices
import pytest
import pytest_asyncio
from plane import claim_gangs, gangs

NO_DEVICES = "cannot allocate all claims"  # kube-scheduler's own filter, which runs before it asks an extender


def build_rail_class(rail):
    """Return the DeviceClass of a rail, with the extended resource name nvidia.com/mlx5_N."""
    expression = (
        'device.driver == "dra.net" && has(device.attributes["dra.net"].rdmaDevice)'
        f' && device.attributes["dra.net"].rdmaDevice == "{devices.RDMA_DEVICES[rail]}"'
    )
    return devices.build_class(f"rail{rail}", expression, f"nvidia.com/mlx5_{rail}")


CLASSES = (devices.GPU_CLASS, *(build_rail_class(rail) for rail in range(4)))
pytestmark = pytest.mark.usefixtures("device_classes")


@pytest_asyncio.fixture(loop_scope="session")
async def two_nodes(nodes):
    """Create two nodes with all devices in ResourceSlices."""
    for name in ("slices-0", "slices-1"):
        await nodes.make_with_slices(name)


async def test_rails_can_be_extended_resources_of_device_classes(plane, kube, namespace, two_nodes):
    client = plane.api
    places = {await gangs.place(client, namespace, f"p{number}", gpus=1) for number in range(2)}
    assert places == {"slices-0", "slices-1"}  # each node has one device a rail
    held = [result for results in (await claim_gangs.list_results(client, namespace)).values() for result in results]
    assert sorted(
        result["device"] for result in held if result["pool"] == "slices-0" and result["device"].startswith("pci")
    ) == ["pci-0000-10-1b-0", "pci-0000-20-1b-0"]
    await client.create(gangs.pod("p2", gpus=1, labels={"name": "p2"}), namespace=namespace)
    await gangs.wait_event(client, namespace, "p2", NO_DEVICES)
    await client.delete("Pod", "p0", namespace, grace=0)
    assert await gangs.wait_for_node(client, namespace, "p2") in places


async def test_nodes_with_device_plugins_and_nodes_with_slices_are_used_together(plane, kube, namespace, nodes):
    await nodes.make_with_slices("slices-0")
    await nodes.make("plugin-0", rails=gangs.ONE_EACH)
    first = await gangs.place(plane.api, namespace, "p0", gpus=1)
    if first == "plugin-0":  # kube-scheduler leaves its rails to the extender
        await gangs.wait_until_taken(kube, first)
    assert {first, await gangs.place(plane.api, namespace, "p1", gpus=1)} == {"slices-0", "plugin-0"}
