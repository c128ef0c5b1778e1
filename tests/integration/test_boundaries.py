"""A boundary that only slices name, as dranet publishes Azure's placement groups, under kube-scheduler."""

import pytest_asyncio
from plane import conditions, gangs
from plane import site as sites

DRIVER, GROUP = "dra.net", "azure.dra.net/placementGroupId"
KEY = f"attribute/{GROUP}"


@pytest_asyncio.fixture(loop_scope="session")
async def installed(plane):
    async with sites.running(plane) as running:
        await running.policy(gangs.policy(domains=[KEY], boundary=KEY))
        await running.start_extender()
        await plane.schedulers.kube(gangs.entry(running.proxy.url, ignored=False))
        yield running


def build_slice(node, group):
    offered = [{"name": "pci-0101-00-00-0", "attributes": {GROUP: {"string": group}}}]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": offered}
    kind = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"}
    return {**kind, "metadata": {"name": f"{node}-{DRIVER}"}, "spec": spec}


async def test_a_gang_gets_nodes_of_one_placement_group_or_waits(plane, nodes, installed, namespace):
    for group, size in {"a": 2, "b": 3}.items():
        for number in range(size):
            name = f"{group}-{number}"
            await nodes.make_with_slices(name, [build_slice(name, f"pg-{group}")], gpus=8, rails=gangs.ONE_EACH)
    await gangs.release(plane.api, namespace, gangs.build_gang("large", 4), seen_by=installed.extender)
    words = "the gang needs room for 4 pods in one domain"
    await conditions.event(plane.api, namespace, "FailedScheduling", words, "pg-b has room for 3")
    placed = await gangs.run_gang(installed, namespace, "train", 3)
    assert {gangs.node_of(pod)[0] for pod in placed} == {"b"}
