"""Rails and GPUs that come by Dynamic Resource Allocation, on the real API server and its allocator."""

import asyncio

import devices
import pytest_asyncio
from plane import kube as kubes
from plane import waiting

GROUP = "scheduling.volcano.sh/v1beta1/PodGroup"
NO_DEVICES = "cannot allocate all claims"  # kube-scheduler's own filter, which runs before it asks an extender


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def claims(plane):
    """Yield the installation beside kube-scheduler, and the device classes."""
    for tree in devices.CLASSES:
        await plane.api.create(tree)
    async with kubes.running(plane, ignored=True) as running:
        yield running
    for tree in devices.CLASSES:
        await plane.api.delete("resource.k8s.io/v1/DeviceClass", tree["metadata"]["name"])


@pytest_asyncio.fixture(loop_scope="session")
async def offer(plane, nodes):
    """Makes nodes whose devices are in slices only; their slices go with the test."""
    made = []

    async def make(name, **slices):
        await nodes.make(name, gpus=0, rails={})
        for tree in devices.build_slices(name, **slices):
            await plane.api.create(tree)
            made.append(tree["metadata"]["name"])

    yield make
    for name in made:
        await plane.api.delete("resource.k8s.io/v1/ResourceSlice", name)


async def list_allocated(plane, namespace):
    """Return the devices that the claims of a namespace hold, by node and request."""
    held = await plane.api.list("resource.k8s.io/v1/ResourceClaim", namespace)
    results = [
        result
        for claim in held
        for result in claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ())
    ]
    return sorted((result["pool"], result["device"]) for result in results)


async def test_extended_resources_of_device_classes_are_rails(plane, claims, namespace, offer):
    await asyncio.gather(offer("slices-0"), offer("slices-1"))
    client = plane.api
    places = {await kubes.place(client, namespace, f"p{number}", gpus=1) for number in range(2)}
    assert places == {"slices-0", "slices-1"}  # each node has one device a rail
    held = await list_allocated(plane, namespace)
    assert [device for node, device in held if node == "slices-0" and device.startswith("pci")] == [
        "pci-0000-10-1b-0",
        "pci-0000-20-1b-0",
    ]
    await client.create(kubes.pod("p2", gpus=1, labels={"name": "p2"}), namespace=namespace)
    await kubes.event(client, namespace, "p2", NO_DEVICES)
    await client.delete("Pod", "p0", namespace, grace=0)
    assert await kubes.where(client, namespace, "p2") in places


async def test_nodes_with_a_device_plugin_and_nodes_with_slices_are_used_together(
    plane, claims, namespace, nodes, offer
):
    await asyncio.gather(offer("slices-0"), nodes.make("plugin-0", rails=kubes.ONE_EACH))
    places = {await kubes.place(plane.api, namespace, f"p{number}", gpus=1) for number in range(2)}
    assert places == {"slices-0", "plugin-0"}


async def test_a_tainted_device_takes_its_rail_out_and_puts_it_back(plane, claims, namespace, offer):
    await offer("slices-0", taints={"pci-0000-10-1b-0": "NoSchedule"})
    client = plane.api
    await client.create(kubes.pod("p", gpus=1, labels={"name": "p"}), namespace=namespace)
    await kubes.event(client, namespace, "p", NO_DEVICES)
    healthy = devices.build_slices("slices-0")[0]["spec"]
    await client.patch("resource.k8s.io/v1/ResourceSlice", "slices-0-dra.net", {"spec": healthy})
    assert await kubes.where(client, namespace, "p") == "slices-0"


async def test_a_rule_that_taints_a_device_takes_its_rail_out_and_puts_it_back(plane, claims, namespace, offer):
    await offer("slices-0")
    client = plane.api
    selector = {"driver": "dra.net", "pool": "slices-0", "device": "pci-0000-10-1b-0"}
    taint = {"key": "example.com/broken", "effect": "NoSchedule"}
    rule = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {"name": "broken"},
        "spec": {"deviceSelector": selector, "taint": taint},
    }
    await client.create(rule)
    try:
        await client.create(kubes.pod("p", gpus=1, labels={"name": "p"}), namespace=namespace)
        await kubes.event(client, namespace, "p", NO_DEVICES)
    finally:
        await client.delete("resource.k8s.io/v1/DeviceTaintRule", "broken")
    assert await kubes.where(client, namespace, "p") == "slices-0"


async def test_a_pod_with_claims_alone_is_placed_where_its_rails_are_free(plane, claims, namespace, offer):
    await asyncio.gather(offer("slices-0"), offer("slices-1"))
    client = plane.api
    requests = [
        {"name": name, "exactly": {"deviceClassName": device_class}}
        for name, device_class in (("gpu", "gpu.nvidia.com"), ("nic0", "rail0"), ("nic1", "rail1"))
    ]
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "rails"},
        "spec": {"spec": {"devices": {"requests": requests}}},
    }
    await client.create(template, namespace=namespace)
    for name in ("p0", "p1"):
        pod = kubes.pod(name, gpus=0, rails={}, labels={"name": name})
        pod["spec"]["resourceClaims"] = [{"name": "rails", "resourceClaimTemplateName": "rails"}]
        # a managed resource, so that kube-scheduler calls the extender for a pod without extended resources
        pod["spec"]["containers"][0]["resources"] = {"claims": [{"name": "rails"}], "limits": {kubes.RAILS[0]: "0"}}
        await client.create(pod, namespace=namespace)
    places = {await kubes.where(client, namespace, name) for name in ("p0", "p1")}
    assert places == {"slices-0", "slices-1"}


async def test_volcano_schedules_no_pod_with_extended_resources_of_device_classes(plane, claims, namespace, offer):
    await asyncio.gather(offer("slices-0"), offer("slices-1"))
    client = plane.api
    limits, requests = (kubes.volcano_job(name, 1, gpus=1) for name in ("limits", "requests"))
    resources = requests["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["resources"]
    resources["requests"] = resources["limits"]
    await kubes.create(client, namespace, [limits, requests])

    async def find_rejections():
        groups = {tree["metadata"]["ownerReferences"][0]["name"]: tree for tree in await client.list(GROUP, namespace)}
        assert len(groups) == 2, groups
        assert groups["requests"]["spec"]["minResources"][kubes.RAILS[0]] == "1"
        assert groups["requests"].get("status", {}).get("phase") == "Pending", groups
        name = groups["requests"]["metadata"]["name"]
        events = await client.list("Event", namespace, fields=f"involvedObject.name={name}")
        overused = [event["message"] for event in events if f"overused {kubes.RAILS[0]}" in event["message"]]
        assert overused, events
        # minResources does not count limits alone: that job is queued, and its pod is created and waits
        pods = await client.list("Pod", namespace)
        assert [(pod["metadata"]["name"], kubes.node_of(pod)) for pod in pods] == [("limits-worker-0", "")]
        assert [condition["reason"] for condition in pods[0]["status"].get("conditions", ())] == ["Unschedulable"]
        return True

    await waiting.wait(find_rejections, seconds=30, describe="Volcano to leave both jobs without nodes")
    # the same pod is scheduled at once without Volcano
    assert await kubes.place(client, namespace, "kube", gpus=1) in ("slices-0", "slices-1")
