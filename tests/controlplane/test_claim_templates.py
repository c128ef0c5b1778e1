"""Claim templates on the real API server and its allocator: pods name them, and railwright writes and removes them."""

import asyncio

import devices
import pytest_asyncio
from plane import kube as kubes
from plane import site as sites
from plane import waiting

TEMPLATE, CLAIM = "resource.k8s.io/v1/ResourceClaimTemplate", "resource.k8s.io/v1/ResourceClaim"
RAILS = "".join(f"\n    - {{name: rail{rail}, device: {device}}}" for rail, device in enumerate(devices.RDMA_DEVICES))
POLICY = f"""
apiVersion: railwright.io/v1alpha1
kind: FabricPolicy
fabrics:
  efa:
    transport: efa
    gpusPerNode: 8
    railsPerPod: proportional
    claims: {{deviceClass: dranet, accelerators: {{deviceClass: gpu.nvidia.com}}}}
    rails:{RAILS}
"""
CLASSES = (devices.GPU_CLASS, devices.build_class("dranet", 'device.driver == "dra.net"'))
ROOT_OF = {f"gpu-{number}": devices.ROOTS[number // 2] for number in range(8)} | {
    f"pci-0000-{root}-1b-0": root for root in devices.ROOTS
}
UNUSED_SECONDS = 2


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def classes(plane):
    for tree in CLASSES:
        await plane.api.create(tree)
    yield
    for tree in CLASSES:
        await plane.api.delete("resource.k8s.io/v1/DeviceClass", tree["metadata"]["name"])


@pytest_asyncio.fixture(loop_scope="session")
async def installed(namespace, module_site, classes):  # in this order: it is unregistered before its namespace goes
    yield await module_site.install(POLICY, namespace, options=(f"--unused-template-seconds={UNUSED_SECONDS}",))
    await module_site.unregister()


@pytest_asyncio.fixture(loop_scope="session")
async def offer(plane, nodes):
    """Makes nodes like EKS p4d, whose devices are in slices only; their slices go with the test."""
    made = []

    async def make(*names, **slices):
        for name in names:
            await nodes.make(name, gpus=0, rails={})
            for tree in devices.build_slices(name, **slices):
                await plane.api.create(tree)
                made.append(tree["metadata"]["name"])

    yield make
    for name in made:
        await plane.api.delete("resource.k8s.io/v1/ResourceSlice", name)


def build_pod(name, gpus, **more):
    return kubes.pod(name, gpus=gpus, rails={}, fabric="efa", **more)


def build_job(name, size, gpus):
    return kubes.job(name, size, gpus=gpus, rails={}, fabric="efa")


async def list_devices(plane, namespace, pod):
    """Return the devices of a bound pod by request."""
    claims = [entry["resourceClaimName"] for entry in pod["status"]["resourceClaimStatuses"]]
    held = {}
    for name in claims:
        claim = await plane.api.get(CLAIM, name, namespace)
        for result in claim["status"]["allocation"]["devices"]["results"]:
            assert result["pool"] == kubes.node_of(pod)
            held[result["request"]] = result["device"]
    return held


async def list_rails(plane, namespace, pods):
    """Return the rails of each pod, by the names of the requests that were allocated."""
    held = [await list_devices(plane, namespace, pod) for pod in pods]
    return [tuple(sorted(request for request in requests if request.startswith("rail"))) for requests in held]


def find_pairs(held, gpus_of_nic):
    """Return the PCIe roots of the NICs and of the GPUs that the requests of each group got."""
    roots = [ROOT_OF[device] for request, device in sorted(held.items()) if not request.startswith("gpu")]
    gpus = [ROOT_OF[held[f"gpu{number}"]] for number in range(len(roots) * gpus_of_nic)]
    return roots, gpus


async def list_templates(plane, namespace):
    return {tree["metadata"]["name"]: tree for tree in await plane.api.list(TEMPLATE, namespace)}


async def test_each_gang_keeps_its_rails_in_pairs(plane, installed, namespace, offer):
    await offer("p4d-0", "p4d-1")
    for name in ("first", "second"):
        await plane.api.create(build_job(name, 2, gpus=4), namespace=namespace)
    first = await kubes.bound(plane.api, namespace, 2, f"{kubes.JOB_NAME}=first")
    second = await kubes.bound(plane.api, namespace, 2, f"{kubes.JOB_NAME}=second")
    sets = {*await list_rails(plane, namespace, first)}, {*await list_rails(plane, namespace, second)}
    assert sorted(rails for (rails,) in map(list, sets)) == [("rail0", "rail1"), ("rail2", "rail3")]
    for pod in (*first, *second):
        assert pod["spec"]["containers"][0]["resources"]["limits"] == {"railwright.io/rails": "0"}
        roots, gpus = find_pairs(await list_devices(plane, namespace, pod), 2)
        assert gpus == [root for root in roots for _ in range(2)]
    job = await plane.api.get("batch/v1/Job", "first", namespace)
    resources = job["spec"]["template"]["spec"]["containers"][0]["resources"]
    assert resources == {"claims": [{"name": "railwright"}]}  # no queue waits for GPUs that no node reports
    gone = second[0]["metadata"]["name"]
    await plane.api.delete("Pod", gone, namespace, grace=0)

    async def list_restarted_pods():
        pods = await kubes.bound(plane.api, namespace, 2, f"{kubes.JOB_NAME}=second")
        assert gone not in {pod["metadata"]["name"] for pod in pods}
        return pods

    again = await waiting.wait(list_restarted_pods, seconds=60, describe="the restarted pod")
    assert {*await list_rails(plane, namespace, again)} == sets[1]


async def test_pods_that_came_first_start_when_the_template_appears(plane, namespace, offer, installed):
    await offer("p4d-0")
    await installed.webhook.stop()
    name = "railwright-efa-8x4-0123456789"  # of an earlier policy
    pod = build_pod("late", gpus=0, labels={"name": "late"})
    pod["spec"]["resourceClaims"] = [{"name": "railwright", "resourceClaimTemplateName": name}]
    pod["spec"]["containers"][0]["resources"] = {"claims": [{"name": "railwright"}]}
    await plane.unregister_webhook(namespaces=[namespace])
    await plane.api.create(pod, namespace=namespace)
    await installed.start_webhook(f"--unused-template-seconds={UNUSED_SECONDS}")
    assert await kubes.where(plane.api, namespace, "late") == "p4d-0"
    assert list(await list_templates(plane, namespace)) == [name]


async def test_a_single_pod_gets_free_rails_in_pairs(plane, installed, namespace, offer):
    await offer("p4d-0")
    for number in range(4):
        await plane.api.create(build_pod(f"p{number}", 2, labels={"name": f"p{number}"}), namespace=namespace)
    for number in range(4):
        assert await kubes.where(plane.api, namespace, f"p{number}") == "p4d-0"
        pod = await plane.api.get("Pod", f"p{number}", namespace)
        roots, gpus = find_pairs(await list_devices(plane, namespace, pod), 2)
        assert gpus == [root for root in roots for _ in range(2)]


OWN_TEMPLATE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "mine"},
    "spec": {"spec": {"devices": {"requests": [{"name": "nic", "exactly": {"deviceClassName": "dranet"}}]}}},
}


async def test_an_unused_template_of_railwright_is_removed(plane, installed, namespace, offer):
    await offer("p4d-0")
    await plane.api.create(OWN_TEMPLATE, namespace=namespace)
    await plane.api.create(build_pod("p", 8, labels={"name": "p"}), namespace=namespace)
    assert await kubes.where(plane.api, namespace, "p") == "p4d-0"
    assert len(await list_templates(plane, namespace)) == 2
    await plane.api.delete("Pod", "p", namespace, grace=0)

    async def is_removed():
        assert list(await list_templates(plane, namespace)) == ["mine"]
        return True

    await waiting.wait(is_removed, seconds=30, describe="the unused template to be gone")
    assert await sites.metric(installed.webhook, "railwright_claim_templates_total", outcome="removed") >= 1


async def test_a_pod_with_a_template_of_its_author_keeps_it(plane, installed, namespace, offer):
    await offer("p4d-0")
    await plane.api.create(OWN_TEMPLATE, namespace=namespace)
    await asyncio.sleep(0.5)
    pod = build_pod("p", gpus=2, labels={"name": "p"})
    pod["spec"]["resourceClaims"] = [{"name": "mine", "resourceClaimTemplateName": "mine"}]
    pod["spec"]["containers"][0]["resources"]["claims"] = [{"name": "mine"}]
    await plane.api.create(pod, namespace=namespace)
    stored = await plane.api.get("Pod", "p", namespace)
    assert stored["spec"]["resourceClaims"] == [{"name": "mine", "resourceClaimTemplateName": "mine"}]


async def test_an_unwritable_template_is_an_event_on_the_pod(plane, installed, namespace, offer):
    await offer("p4d-0")
    quota = {"hard": {"count/resourceclaimtemplates.resource.k8s.io": "0"}}
    await plane.api.create(
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": quota}, namespace=namespace
    )

    async def is_enforced():
        status = (await plane.api.get("ResourceQuota", "q", namespace)).get("status", {})
        assert status.get("hard"), status
        return True

    await waiting.wait(is_enforced, describe="the quota")
    await plane.api.create(build_pod("p", 8, labels={"name": "p"}), namespace=namespace)

    async def read_event():
        events = await plane.api.list("Event", namespace, fields="reason=ClaimTemplateNotWritten")
        assert events
        return events[0]["message"]

    message = await waiting.wait(read_event, seconds=30, describe="the Event")
    assert "exceeded quota: q" in message
    await plane.api.delete("ResourceQuota", "q", namespace)
    assert await kubes.where(plane.api, namespace, "p") == "p4d-0"


async def test_a_quota_of_a_device_class_counts_claimed_devices(plane, installed, namespace, offer):
    await offer("p4d-0")
    resource = "dranet.deviceclass.resource.k8s.io/devices"
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {resource: "8"}}}
    await plane.api.create(quota, namespace=namespace)
    await plane.api.create(build_job("j", 1, gpus=8), namespace=namespace)
    await kubes.bound(plane.api, namespace, 1, f"{kubes.JOB_NAME}=j")

    async def is_counted():
        status = (await plane.api.get("ResourceQuota", "q", namespace))["status"]
        assert status["used"] == {resource: "4"}
        return True

    await waiting.wait(is_counted, describe="the quota to count four NICs")
