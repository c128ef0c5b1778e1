"""Gangs in segments, each in one NVLink domain, under a real kube-scheduler and Volcano."""

import pytest_asyncio
from plane import conditions, gangs, manifests
from plane.manifests import LEAF

CLIQUE, SEGMENT = "nvidia.com/gpu.clique", "railwright.io/segment"
RAILS = [{"name": f"rail{number}", "resource": resource} for number, resource in enumerate(gangs.RAILS)]
FABRIC = manifests.fabric(
    RAILS, transport="roce", gpusPerNode=4, nvlinkSegment=1, placement={"domains": [CLIQUE, LEAF]}
)
POLICY = manifests.policy({"gb200": FABRIC})


@pytest_asyncio.fixture(loop_scope="session")
async def installed(plane, namespace, module_site):
    """Install railwright, and configure its extender in kube-scheduler."""
    await module_site.install(POLICY, namespace)
    await module_site.install_extender(POLICY)
    await plane.schedulers.kube(gangs.entry(module_site.proxy.url))
    yield module_site
    await module_site.unregister()


async def make_racks(nodes, gpus, **sizes):
    """Create NVLink domains with these numbers of nodes, each with these GPUs, under one leaf."""
    for rack, size in sizes.items():
        for number in range(size):
            name = f"{rack}-{number}"
            labels = {CLIQUE: f"6f1c-{rack}.1", LEAF: "leaf-0"}
            await nodes.make(name, gpus=gpus, rails=gangs.ONE_EACH, labels=labels)


def list_racks(pods):
    """Return the NVLink domains of each pair of ranks."""
    racks = [gangs.get_node(pod)[0] for pod in pods]
    return [set(racks[rank : rank + 2]) for rank in range(0, len(racks), 2)]


async def test_kube_scheduler_keeps_each_segment_in_one_nvlink_domain(plane, nodes, installed, namespace):
    """Two domains of three nodes could hold the gang of six, but not in segments of two."""
    await make_racks(nodes, 4, a=3, b=3, c=2)
    kinds = {"rails": {}, "fabric": "gb200", "annotations": {SEGMENT: "2"}}
    await plane.api.create(gangs.job("train", 6, gpus=4, **kinds), namespace=namespace)
    pods = await gangs.wait_bound(plane.api, namespace, 6, f"{gangs.JOB_NAME}=train")
    assert [len(racks) for racks in list_racks(pods)] == [1, 1, 1]
    await plane.api.create(gangs.job("late", 2, gpus=4, **kinds), namespace=namespace)
    await conditions.wait_event(plane.api, namespace, "FailedScheduling", "is another NVLink domain")


async def test_volcano_keeps_each_segment_in_one_nvlink_domain(nodes, volcano_gangs):
    await make_racks(nodes, 8, a=3, b=3, c=2)
    fabric = {**FABRIC, "gpusPerNode": 8, "nvlinkSegment": 2}
    await volcano_gangs.install(manifests.policy({"gb200": fabric}), arguments={"predicateVerb": "predicate"})
    pods = await volcano_gangs.run("train", 6, fabric="gb200")
    assert [len(racks) for racks in list_racks(pods)] == [1, 1, 1]
