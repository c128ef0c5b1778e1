"""Claim templates on the real API server and its allocator: pods name them, and railwright writes and removes them."""

import devices
import pytest_asyncio
from plane import conditions, gangs, manifests, waiting
from plane import site as sites

POLICY = manifests.policy({"efa": manifests.fabric_of_claims(transport="efa", railsPerPod="proportional")})
CLASSES = (devices.GPU_CLASS, devices.NIC_CLASS)
ROOT_OF = {f"gpu-{number}": devices.ROOTS[number // 2] for number in range(8)} | {
    f"pci-0000-{root}-1b-0": root for root in devices.ROOTS
}
OPTIONS = ("--unused-template-seconds=2",)


@pytest_asyncio.fixture(loop_scope="session")
async def installed(
    namespace, module_site, device_classes
):  # in this order: it is unregistered before its namespace goes
    yield await module_site.install(POLICY, namespace, options=OPTIONS)
    await module_site.unregister()


@pytest_asyncio.fixture(loop_scope="session")
async def p4d(nodes):
    """Create a node like EKS p4d, whose devices are in slices only."""
    await nodes.make_with_slices("p4d-0")


def build_pod(name, gpus, **more):
    return gangs.pod(name, gpus=gpus, rails={}, fabric="efa", labels={"name": name}, **more)


def build_job(name, size, gpus):
    return gangs.job(name, size, gpus=gpus, rails={}, fabric="efa")


async def list_devices(plane, namespace, pod):
    """Return the devices of a bound pod by request."""
    claims = [entry["resourceClaimName"] for entry in pod["status"]["resourceClaimStatuses"]]
    held = {}
    for name in claims:
        claim = await plane.api.get("ResourceClaim", name, namespace)
        for result in claim["status"]["allocation"]["devices"]["results"]:
            assert result["pool"] == gangs.node_of(pod)
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
    return {tree["metadata"]["name"]: tree for tree in await plane.api.list("ResourceClaimTemplate", namespace)}


async def test_each_gang_keeps_its_rails_in_pairs(plane, installed, namespace, nodes, p4d):
    await nodes.make_with_slices("p4d-1")
    for name in ("first", "second"):
        await plane.api.create(build_job(name, 2, gpus=4), namespace=namespace)
    first = await gangs.bound(plane.api, namespace, 2, f"{gangs.JOB_NAME}=first")
    second = await gangs.bound(plane.api, namespace, 2, f"{gangs.JOB_NAME}=second")
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
        pods = await gangs.bound(plane.api, namespace, 2, f"{gangs.JOB_NAME}=second")
        assert gone not in {pod["metadata"]["name"] for pod in pods}
        return pods

    again = await waiting.wait(list_restarted_pods, seconds=60, describe="the restarted pod")
    assert {*await list_rails(plane, namespace, again)} == sets[1]


async def test_pods_that_came_first_start_when_the_template_appears(plane, namespace, p4d, installed):
    await installed.webhook.stop()
    name = "railwright-efa-8x4-0123456789"  # of an earlier policy
    pod = build_pod("late", gpus=0)
    pod["spec"]["resourceClaims"] = [{"name": "railwright", "resourceClaimTemplateName": name}]
    pod["spec"]["containers"][0]["resources"] = {"claims": [{"name": "railwright"}]}
    await plane.unregister_webhook(namespaces=[namespace])
    await plane.api.create(pod, namespace=namespace)
    await installed.start_webhook(*OPTIONS)
    assert await gangs.where(plane.api, namespace, "late") == "p4d-0"
    assert list(await list_templates(plane, namespace)) == [name]


async def test_a_single_pod_gets_free_rails_in_pairs(plane, installed, namespace, p4d):
    for number in range(4):
        await plane.api.create(build_pod(f"p{number}", 2), namespace=namespace)
    for number in range(4):
        assert await gangs.where(plane.api, namespace, f"p{number}") == "p4d-0"
        pod = await plane.api.get("Pod", f"p{number}", namespace)
        roots, gpus = find_pairs(await list_devices(plane, namespace, pod), 2)
        assert gpus == [root for root in roots for _ in range(2)]


OWN_TEMPLATE = manifests.claim_template(
    "mine", {"requests": [{"name": "nic", "exactly": {"deviceClassName": "dranet"}}]}
)


async def test_an_unused_template_of_railwright_is_removed(plane, installed, namespace, p4d):
    await plane.api.create(OWN_TEMPLATE, namespace=namespace)
    await plane.api.create(build_pod("p", 8), namespace=namespace)
    assert await gangs.where(plane.api, namespace, "p") == "p4d-0"
    assert len(await list_templates(plane, namespace)) == 2
    await plane.api.delete("Pod", "p", namespace, grace=0)

    async def is_removed():
        assert list(await list_templates(plane, namespace)) == ["mine"]
        return True

    await waiting.wait(is_removed, seconds=30, describe="the unused template to be gone")
    assert await sites.metric(installed.webhook, "railwright_claim_templates_total", outcome="removed") >= 1


async def test_an_unwritable_template_is_an_event_on_the_pod(plane, installed, namespace, p4d):
    hard = {"count/resourceclaimtemplates.resource.k8s.io": "0"}
    await plane.api.create(manifests.build("ResourceQuota", "q", spec={"hard": hard}), namespace=namespace)
    await conditions.has(plane.api, "ResourceQuota", "q", namespace, status={"hard": hard})
    await plane.api.create(build_pod("p", 8), namespace=namespace)
    await conditions.event(plane.api, namespace, "ClaimTemplateNotWritten", "exceeded quota: q")
    await plane.api.delete("ResourceQuota", "q", namespace)
    assert await gangs.where(plane.api, namespace, "p") == "p4d-0"


async def test_a_quota_of_a_device_class_counts_claimed_devices(plane, installed, namespace, p4d):
    resource = "dranet.deviceclass.resource.k8s.io/devices"
    await plane.api.create(manifests.build("ResourceQuota", "q", spec={"hard": {resource: "8"}}), namespace=namespace)
    await plane.api.create(build_job("j", 1, gpus=8), namespace=namespace)
    await gangs.bound(plane.api, namespace, 1, f"{gangs.JOB_NAME}=j")
    await conditions.has(plane.api, "ResourceQuota", "q", namespace, status={"used": {resource: "4"}})
