"""NVLink domains on the real API server, its allocator and kube-scheduler, with the kinds of NVIDIA's DRA driver.

The test is the driver: it writes the template of each ComputeDomain, and the slices of the nodes, as
k8s-dra-driver-gpu does (templates/compute-domain-workload-claim-template.tmpl.yaml and
cmd/compute-domain-kubelet-plugin/deviceinfo.go, 15 May 2026).
"""

import pathlib

import devices
import pytest_asyncio
import yaml
from plane import conditions, gangs, manifests, waiting
from plane.manifests import LEAF

CLIQUE, SEGMENT = "nvidia.com/gpu.clique", "railwright.io/segment"
DRIVER = "compute-domain.nvidia.com"
DEFINITION = pathlib.Path(__file__).parents[1] / "data" / "nvlink" / "computedomains.yaml"
CLASSES = (
    devices.build_class(
        "compute-domain-default-channel.nvidia.com",
        f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'channel' && "
        f"device.attributes['{DRIVER}'].id == 0",
    ),
)
RAILS = [{"name": f"rail{number}", "resource": resource} for number, resource in enumerate(gangs.RAILS)]
FABRIC = manifests.fabric(
    RAILS, transport="roce", gpusPerNode=4, nvlink={}, placement={"rails": "required", "domains": [CLIQUE, LEAF]}
)
POLICY = manifests.policy({"gb200": FABRIC})


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def definition(plane):
    tree = yaml.safe_load(DEFINITION.read_text())
    await plane.api.create(tree)
    await conditions.established(plane.api, tree["metadata"]["name"])
    yield
    await plane.api.delete("CustomResourceDefinition", tree["metadata"]["name"])


@pytest_asyncio.fixture(loop_scope="session")
async def installed(plane, definition, device_classes, namespace, module_site):
    """Install railwright beside kube-scheduler."""
    await module_site.install(POLICY, namespace, options=("--unused-template-seconds=2",))
    await module_site.install_extender(POLICY)
    await plane.schedulers.kube(gangs.entry(module_site.proxy.url, ignored=False))
    yield module_site
    await module_site.unregister()


async def make_racks(nodes, **sizes):
    """Create NVLink domains with so many nodes, under one leaf."""
    for rack, size in sizes.items():
        for number in range(size):
            name = f"{rack}-{number}"
            labels = {CLIQUE: f"6f1c-{rack}.1", LEAF: "leaf-0"}
            await nodes.make_with_slices(name, [build_slice(name)], gpus=4, rails=gangs.ONE_EACH, labels=labels)


def build_slice(node):
    kinds = {"channel": "channel-0", "daemon": "daemon-0"}
    published = [
        {"name": name, "attributes": {"type": {"string": kind}, "id": {"int": 0}}} for kind, name in kinds.items()
    ]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": published}
    kind = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"}
    return {**kind, "metadata": {"name": f"{node}-{DRIVER}"}, "spec": spec}


async def write_templates(plane, namespace, count):
    """Write the templates of `count` ComputeDomains, as the driver's controller does."""

    async def list_domains():
        domains = await plane.api.list("ComputeDomain", namespace)
        assert len(domains) == count
        return domains

    domains = await waiting.wait(list_domains, seconds=30, describe=f"{count} ComputeDomains")
    for domain in domains:
        name = domain["spec"]["channel"]["resourceClaimTemplate"]["name"]
        request = {"name": "channel", "exactly": {"deviceClassName": CLASSES[0]["metadata"]["name"]}}
        parameters = {
            "apiVersion": "resource.nvidia.com/v1beta1",
            "kind": "ComputeDomainChannelConfig",
            "domainID": domain["metadata"]["uid"],
            "allocationMode": "Single",
        }
        config = {"requests": ["channel"], "opaque": {"driver": DRIVER, "parameters": parameters}}
        spec = {"requests": [request], "config": [config]}
        if await plane.api.get_or_none("ResourceClaimTemplate", name, namespace) is None:
            await plane.api.create(manifests.claim_template(name, spec), namespace=namespace)
    return domains


async def test_each_gang_gets_a_compute_domain_and_one_nvlink_domain(plane, nodes, installed, namespace):
    await make_racks(nodes, a=2, b=2)
    for name in ("first", "second"):
        job = gangs.job(name, 2, gpus=4, rails={}, fabric="gb200")
        await plane.api.create(job, namespace=namespace)
    await write_templates(plane, namespace, 2)
    domains = {}
    for name in ("first", "second"):
        bound = await gangs.bound(plane.api, namespace, 2, f"{gangs.JOB_NAME}={name}")
        (domains[name],) = {gangs.node_of(pod)[0] for pod in bound}  # one rack
        for pod in bound:
            (entry,) = pod["status"]["resourceClaimStatuses"]
            claim = await plane.api.get("ResourceClaim", entry["resourceClaimName"], namespace)
            (result,) = claim["status"]["allocation"]["devices"]["results"]
            assert (result["pool"], result["device"]) == (gangs.node_of(pod), "channel-0")
            assert {"name": "NCCL_CUMEM_ENABLE", "value": "1"} in pod["spec"]["containers"][0]["env"]
    assert set(domains.values()) == {"a", "b"}


async def test_a_gang_that_ends_leaves_no_compute_domain(plane, nodes, installed, namespace):
    await make_racks(nodes, a=2)
    await plane.api.create(gangs.job("short", 2, gpus=4, rails={}, fabric="gb200"), namespace=namespace)
    (domain,) = await write_templates(plane, namespace, 1)
    await gangs.bound(plane.api, namespace, 2, f"{gangs.JOB_NAME}=short")
    await plane.api.delete("Job", "short", namespace)
    await plane.api.delete_all("Pod", namespace, grace=0)
    await conditions.gone(plane.api, "ComputeDomain", domain["metadata"]["name"], namespace)


def list_racks(pods):
    """Return the racks of each two ranks."""
    racks = [gangs.node_of(pod)[0] for pod in pods]
    return [set(racks[rank : rank + 2]) for rank in range(0, len(racks), 2)]


async def test_kube_scheduler_keeps_each_segment_in_one_nvlink_domain(plane, nodes, installed, namespace):
    """Two domains of three nodes could hold the gang of six, but not in segments of two."""
    await make_racks(nodes, a=3, b=3, c=2)
    kinds = {"rails": {}, "fabric": "gb200", "annotations": {SEGMENT: "2"}}
    await plane.api.create(gangs.job("train", 6, gpus=4, **kinds), namespace=namespace)
    await write_templates(plane, namespace, 1)
    pods = await gangs.bound(plane.api, namespace, 6, f"{gangs.JOB_NAME}=train")
    assert [len(racks) for racks in list_racks(pods)] == [1, 1, 1]
    await plane.api.create(gangs.job("late", 2, gpus=4, **kinds), namespace=namespace)
    await write_templates(plane, namespace, 2)
    await conditions.event(plane.api, namespace, "FailedScheduling", "needs room for 2 pods in one NVLink domain")


async def test_volcano_keeps_each_segment_in_one_nvlink_domain(nodes, volcano_gangs):
    for rack, size in {"a": 3, "b": 3, "c": 2}.items():
        for number in range(size):
            labels = {CLIQUE: f"6f1c-{rack}.1", LEAF: "leaf-0"}
            await nodes.make(f"{rack}-{number}", rails=gangs.ONE_EACH, labels=labels)
    fabric = {**FABRIC, "gpusPerNode": 8, "nvlink": {"segment": 2, "computeDomain": "none"}}
    await volcano_gangs.install(manifests.policy({"gb200": fabric}), predicateVerb="predicate")
    pods = await volcano_gangs.run("train", 6, fabric="gb200")
    assert [len(racks) for racks in list_racks(pods)] == [1, 1, 1]
