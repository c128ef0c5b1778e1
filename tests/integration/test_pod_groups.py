"""Gangs by PodGroup (scheduling.k8s.io/v1beta1, feature gates on) under kube-scheduler with the extender."""

import asyncio

import plane_fixtures
import pytest
import pytest_asyncio
from plane import api as apis
from plane import commands, gangs, waiting
from plane import plane as planes

GROUPS = "scheduling.k8s.io/v1beta1"
POD_GROUP = f"{GROUPS}/PodGroup"


class Plane(planes.Plane):
    """A control plane in which kube-scheduler places PodGroups."""

    gates = ("GenericWorkload", "TopologyAwareWorkloadScheduling", "WorkloadWithJob")
    apis = (GROUPS,)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def plane():
    async with plane_fixtures.run_plane(Plane) as running:
        yield running


def build_group(name: str, minimum: int, key: str = "") -> apis.Object:
    spec = {"schedulingPolicy": {"gang": {"minCount": minimum}}}
    if key:
        spec["schedulingConstraints"] = {"topology": [{"key": key}]}
    return {"apiVersion": GROUPS, "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}


def build_pods(name: str, size: int) -> list[apis.Object]:
    group = {"podGroupName": name}
    return [gangs.pod(f"{name}-{rank}", labels={"of": name}, schedulingGroup=group) for rank in range(size)]


async def start(plane, namespace, name, size, key) -> None:
    """Create the pods, then the PodGroup, at which kube-scheduler starts."""
    await gangs.create(plane.api, namespace, build_pods(name, size))
    await plane.api.create(build_group(name, size, key), namespace=namespace)


async def wait_bound(plane, namespace, name, size) -> apis.Objects:
    return await gangs.wait_bound(plane.api, namespace, size, f"of={name}")


async def wait_refused(plane, namespace, name) -> None:
    """Wait until kube-scheduler reports that a PodGroup fits nowhere."""

    async def is_refused() -> bool:
        group = await plane.api.get(POD_GROUP, name, namespace)
        said = [row.get("message", "") for row in group.get("status", {}).get("conditions", ())]
        assert any("placements are available" in message or "schedulable" in message for message in said), said
        return True

    await waiting.wait(is_refused, describe=f"PodGroup {name} to be refused")


@pytest.mark.parametrize(("size", "key"), [(24, ""), (12, gangs.LEAF)], ids=["no key", "leaf key"])
async def test_a_gang_that_fits_nowhere_does_not_block_the_next_gang(plane, kube, nodes, namespace, size, key):
    await gangs.make_leaves(nodes, few=4, right=8, many=11)
    await gangs.create(plane.api, namespace, build_pods("next", 8))
    await start(plane, namespace, "big", size, key)
    await wait_refused(plane, namespace, "big")
    await plane.api.create(build_group("next", 8), namespace=namespace)
    assert set(gangs.list_leaves(await wait_bound(plane, namespace, "next", 8))) == {"right"}


@pytest.mark.parametrize("key", ["", gangs.LEAF], ids=["no key", "leaf key"])
async def test_two_simultaneous_gangs_get_a_leaf_each(plane, kube, nodes, namespace, key):
    await gangs.make_leaves(nodes, one=6, two=6, few=2)
    for name in ("left", "right"):
        await gangs.create(plane.api, namespace, build_pods(name, 6))
    await asyncio.gather(
        *(plane.api.create(build_group(name, 6, key), namespace=namespace) for name in ("left", "right"))
    )
    leaves = [set(gangs.list_leaves(await wait_bound(plane, namespace, name, 6))) for name in ("left", "right")]
    assert sorted(leaves, key=str) == [{"one"}, {"two"}]


async def test_a_job_without_a_group_size_is_a_gang_of_as_many_pods_as_its_parallelism(plane, kube, nodes, namespace):
    await gangs.make_leaves(nodes, few=4, right=8, many=11)
    await gangs.start_job(kube, namespace, gangs.job("train", 8))
    placed = await gangs.wait_bound(plane.api, namespace, 8, f"{gangs.JOB_NAME}=train")
    assert all("schedulingGroup" in pod["spec"] for pod in placed)
    assert set(gangs.list_leaves(placed)) == {"right"}
    explanation = await commands.explain(plane, kube.extender, namespace, placed[0]["metadata"]["name"])
    assert explanation["gang"]["size"] == 8
