"""Claim templates on the real API server and its allocator: pods name them, and railwright writes them."""

import devices
import pytest
import pytest_asyncio
from plane import claim_gangs, conditions, gangs, manifests

POLICY = manifests.policy({"efa": manifests.fabric_of_claims(transport="efa", railsPerPod="proportional")})
CLASSES = (devices.GPU_CLASS, devices.NIC_CLASS)
pytestmark = pytest.mark.usefixtures("device_classes")


@pytest_asyncio.fixture(loop_scope="session")
async def p4d(nodes):
    """Create a node like EKS p4d, with all devices in ResourceSlices."""
    await nodes.make_with_slices("p4d-0")


def build_pod(name, gpus, **more):
    return gangs.pod(name, gpus=gpus, rails={}, fabric="efa", labels={"name": name}, **more)


def build_job(name, size, gpus):
    return gangs.job(name, size, gpus=gpus, rails={}, fabric="efa")


async def list_devices(plane, namespace, pod):
    """Return the devices of a bound pod by request."""
    results = (await claim_gangs.list_results(plane.api, namespace))[pod["metadata"]["name"]]
    assert {result["pool"] for result in results} == {gangs.get_node(pod)}
    return {result["request"]: result["device"] for result in results}


async def list_rails(plane, namespace, pods):
    """Return the rails of each pod, from the names of the allocated requests."""
    held = [await list_devices(plane, namespace, pod) for pod in pods]
    return [tuple(sorted(request for request in requests if request.startswith("rail"))) for requests in held]


def find_pairs(held, gpus_of_nic):
    """Return the PCIe roots of the NICs and GPUs that were allocated for each group."""
    roots = [devices.ROOT_OF[device] for request, device in sorted(held.items()) if not request.startswith("gpu")]
    gpus = [devices.ROOT_OF[held[f"gpu{number}"]] for number in range(len(roots) * gpus_of_nic)]
    return roots, gpus


async def list_templates(plane, namespace):
    return {tree["metadata"]["name"]: tree for tree in await plane.api.list("ResourceClaimTemplate", namespace)}


async def test_pods_of_a_gang_share_a_claim_template_and_get_the_rails_that_the_template_names(
    plane, installed, namespace, nodes, p4d
):
    await nodes.make_with_slices("p4d-1")
    rails = {"first": ("rail0", "rail1"), "second": ("rail2", "rail3")}
    for name, named in rails.items():
        job = build_job(name, 2, gpus=4)
        job["spec"]["template"]["metadata"].setdefault("annotations", {})["railwright.io/rails"] = ",".join(named)
        await plane.api.create(job, namespace=namespace)
    for name, named in rails.items():
        pods = await gangs.wait_bound(plane.api, namespace, 2, f"{gangs.JOB_NAME}={name}")
        assert {*await list_rails(plane, namespace, pods)} == {named}
        for pod in pods:
            assert pod["spec"]["containers"][0]["resources"]["limits"] == {"railwright.io/rails": "0"}
            roots, gpus = find_pairs(await list_devices(plane, namespace, pod), 2)
            assert gpus == [root for root in roots for _ in range(2)]
    assert len(await list_templates(plane, namespace)) == 2
    job = await plane.api.get("batch/v1/Job", "first", namespace)
    resources = job["spec"]["template"]["spec"]["containers"][0]["resources"]
    assert resources == {"claims": [{"name": "railwright"}]}  # no queue waits for GPUs that no node reports


async def test_pods_created_before_their_claim_template_start_once_it_exists(plane, namespace, p4d, installed):
    await plane.api.create(build_pod("probe", gpus=8), namespace=namespace)
    (entry,) = (await plane.api.get("Pod", "probe", namespace))["spec"]["resourceClaims"]
    name = entry["resourceClaimTemplateName"]
    assert await gangs.wait_for_node(plane.api, namespace, "probe") == "p4d-0"
    await plane.api.delete("Pod", "probe", namespace, grace=0)
    await installed.webhook.stop()
    await plane.api.delete("ResourceClaimTemplate", name, namespace)
    pod = build_pod("late", gpus=0)
    pod["spec"]["resourceClaims"] = [{"name": "railwright", "resourceClaimTemplateName": name}]
    pod["spec"]["containers"][0]["resources"] = {"claims": [{"name": "railwright"}]}
    await plane.unregister_webhook(namespaces=[namespace])
    await plane.api.create(pod, namespace=namespace)
    await installed.start_webhook()
    assert await gangs.wait_for_node(plane.api, namespace, "late") == "p4d-0"
    assert list(await list_templates(plane, namespace)) == [name]


async def test_the_claim_template_of_a_job_is_created_before_the_job(plane, installed, namespace, p4d):
    job = build_job("j", 1, gpus=4)
    job["spec"]["suspend"] = True
    await plane.api.create(job, namespace=namespace, dry_run=True)
    assert not await list_templates(plane, namespace)
    made = await plane.api.create(job, namespace=namespace)
    (entry,) = made["spec"]["template"]["spec"]["resourceClaims"]
    assert list(await list_templates(plane, namespace)) == [entry["resourceClaimTemplateName"]]


async def test_a_claim_template_that_cannot_be_written_is_reported_by_an_event_on_the_pod(
    plane, installed, namespace, p4d
):
    hard = {"count/resourceclaimtemplates.resource.k8s.io": "0"}
    await plane.api.create(manifests.build("ResourceQuota", "q", spec={"hard": hard}), namespace=namespace)
    await conditions.wait_object(plane.api, "ResourceQuota", "q", namespace, status={"hard": hard})
    await plane.api.create(build_pod("p", 8), namespace=namespace)
    await conditions.wait_event(plane.api, namespace, "ClaimTemplateNotWritten", "exceeded quota: q")
    await plane.api.delete("ResourceQuota", "q", namespace)
    assert await gangs.wait_for_node(plane.api, namespace, "p") == "p4d-0"


async def test_a_quota_of_a_device_class_counts_claimed_devices(plane, installed, namespace, p4d):
    resource = "dranet.deviceclass.resource.k8s.io/devices"
    await plane.api.create(manifests.build("ResourceQuota", "q", spec={"hard": {resource: "8"}}), namespace=namespace)
    await plane.api.create(build_job("j", 1, gpus=8), namespace=namespace)
    await gangs.wait_bound(plane.api, namespace, 1, f"{gangs.JOB_NAME}=j")
    await conditions.wait_object(plane.api, "ResourceQuota", "q", namespace, status={"used": {resource: "4"}})
