"""Gangs by PodGroup (scheduling.k8s.io/v1beta1, gates on) with the extender: preemption, simulations, sizes.

kube-scheduler draws the order of topology domains and ties between them, so `make test-slow PARTS=integration` runs
each case once more.
"""

import asyncio

import plane_fixtures
import pytest
import pytest_asyncio
from plane import api as apis
from plane import commands, gangs, manifests, waiting
from plane import plane as planes

GROUPS = "scheduling.k8s.io/v1beta1"
POD_GROUP = f"{GROUPS}/PodGroup"
PRIORITIES = {"low": 100, "high": 1000}
KEYS = pytest.mark.parametrize("key", ["", gangs.LEAF], ids=["no key", "leaf key"])
_MORE = pytest.param(1, marks=pytest.mark.slow)
RUNS = pytest.mark.parametrize("run", [0, _MORE], indirect=True)


class Plane(planes.Plane):
    """A control plane in which kube-scheduler places PodGroups."""

    gates = ("GenericWorkload", "TopologyAwareWorkloadScheduling", "WorkloadWithJob")
    apis = (GROUPS,)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def plane():
    async with plane_fixtures.run_plane(Plane) as running:
        for name, value in PRIORITIES.items():
            await running.api.create(manifests.build("PriorityClass", name, value=value))
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def counted(plane):
    """Yield railwright, called by a kube-scheduler that counts the rails, as in the shipped example."""
    async with gangs.running(plane) as running:
        yield running


@pytest.fixture(autouse=True)
def run(request):
    """Return the number of a case's run; `make test` does only the first."""
    return getattr(request, "param", 0)


def build_group(name: str, minimum: int, *, key: str = "", priority: str = "") -> apis.Object:
    spec = {"schedulingPolicy": {"gang": {"minCount": minimum}}}
    if key:
        spec["schedulingConstraints"] = {"topology": [{"key": key}]}
    if priority:
        spec["priorityClassName"] = priority
    return {"apiVersion": GROUPS, "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}


def build_pods(name: str, size: int, *, priority: str = "") -> list[apis.Object]:
    spec = {"schedulingGroup": {"podGroupName": name}} | ({"priorityClassName": priority} if priority else {})
    return [gangs.pod(f"{name}-{rank}", labels={"of": name}, **spec) for rank in range(size)]


async def start(plane, namespace, name, size, *, key="", priority="") -> None:
    """Create the pods, then the PodGroup, at which kube-scheduler starts."""
    await gangs.create(plane.api, namespace, build_pods(name, size, priority=priority))
    await plane.api.create(build_group(name, size, key=key, priority=priority), namespace=namespace)


async def bound(plane, namespace, name, size) -> apis.Objects:
    return await gangs.wait_bound(plane.api, namespace, size, f"of={name}")


async def wait_refused(plane, namespace, name) -> None:
    """Wait until kube-scheduler reports that a PodGroup fits nowhere."""

    async def is_refused() -> bool:
        group = await plane.api.get(POD_GROUP, name, namespace)
        said = [row.get("message", "") for row in group.get("status", {}).get("conditions", ())]
        assert any("placements are available" in message or "schedulable" in message for message in said), said
        return True

    await waiting.wait(is_refused, describe=f"PodGroup {name} to be refused")


async def list_staying(plane, namespace, labels="") -> apis.Objects:
    """Return the pods that are not terminating."""
    listed = await plane.api.list("Pod", namespace, labels=labels)
    return [pod for pod in listed if "deletionTimestamp" not in pod["metadata"]]


# --- preemption -----------------------------------------------------------------------------------------------


@RUNS
@KEYS
async def test_a_gang_of_higher_priority_evicts_as_many_pods_as_it_has(plane, counted, nodes, namespace, key):
    """kube-scheduler chooses the victims, in one leaf only if a topology key is set."""
    await gangs.make_leaves(nodes, a=4, b=4)
    await start(plane, namespace, "low", 8, priority="low")
    await bound(plane, namespace, "low", 8)
    await start(plane, namespace, "high", 4, key=key, priority="high")
    placed = await bound(plane, namespace, "high", 4)
    assert len(set(gangs.list_leaves(placed))) == 1 or not key, gangs.list_leaves(placed)
    assert len(await list_staying(plane, namespace, "of=low")) == 4


# --- simulations ----------------------------------------------------------------------------------------------


@RUNS
@pytest.mark.parametrize(("size", "key"), [(24, ""), (12, gangs.LEAF)], ids=["no key", "leaf key"])
async def test_the_next_gang_gets_its_leaf_after_one_that_fits_nowhere(plane, counted, nodes, namespace, size, key):
    await gangs.make_leaves(nodes, few=4, right=8, many=11)
    await gangs.create(plane.api, namespace, build_pods("next", 8))
    await start(plane, namespace, "big", size, key=key)
    await wait_refused(plane, namespace, "big")
    await plane.api.create(build_group("next", 8), namespace=namespace)
    assert set(gangs.list_leaves(await bound(plane, namespace, "next", 8))) == {"right"}


@RUNS
@KEYS
async def test_two_gangs_at_once_get_a_leaf_each(plane, counted, nodes, namespace, key):
    await gangs.make_leaves(nodes, one=6, two=6, few=2)
    for name in ("left", "right"):
        await gangs.create(plane.api, namespace, build_pods(name, 6))
    await asyncio.gather(
        *(plane.api.create(build_group(name, 6, key=key), namespace=namespace) for name in ("left", "right"))
    )
    leaves = [set(gangs.list_leaves(await bound(plane, namespace, name, 6))) for name in ("left", "right")]
    assert sorted(leaves, key=str) == [{"one"}, {"two"}]


# --- sizes -----------------------------------------------------------------------------------------------------


@RUNS
async def test_a_job_without_a_group_size_is_a_gang_of_its_parallelism(plane, counted, nodes, namespace):
    await gangs.make_leaves(nodes, few=4, right=8, many=11)
    await gangs.start_job(counted, namespace, gangs.job("train", 8))
    placed = await gangs.wait_bound(plane.api, namespace, 8, f"{gangs.JOB_NAME}=train")
    assert all("schedulingGroup" in pod["spec"] for pod in placed)
    assert set(gangs.list_leaves(placed)) == {"right"}
    explanation = await commands.explain(plane, counted.extender, namespace, placed[0]["metadata"]["name"])
    assert explanation["gang"]["size"] == 8
