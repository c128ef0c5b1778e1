"""Devices as kubelet sees them: a rail that fails, and restarts of device plugin and kubelet under running pods."""

import signal
import time

import pytest
from plane import conditions, waiting
from realnode import hardware, layout, pods, rails

pytestmark = pytest.mark.main
NODE = layout.NODES[0]
RESOURCE = "nvidia.com/mlx5_1"


async def find_problem(installed) -> str:
    """Return the text of `railwright check` about dead rails, "" without any."""
    report = await installed.check()
    (row,) = [check for check in report["checks"] if check["check"] == "rail-dead" and check["subject"] == "roce"]
    return "" if row["state"] == "ok" else row["detail"]


def fail(name: str) -> list[dict]:
    """Return the node's resources with all devices of one unhealthy."""
    resources = hardware.list_resources()
    for resource in resources:
        if resource["name"] == name:
            for device in resource["devices"]:
                device["unhealthy"] = True
    return resources


async def count_allocatable(installed) -> int:
    node = await installed.plane.api.get("Node", NODE)
    return int(node["status"]["allocatable"].get(RESOURCE, "0"))


@pytest.fixture
async def running_pod(installed, create):
    """Return a pod of four rails on the node."""
    await create(pods.describe("holder", "roce", on=NODE))
    return await pods.wait_ready(installed.plane.api, rails.NAMESPACE, "holder")


def describe_another(pod: dict) -> dict:
    """Return a pod like another, not on a node yet."""
    metadata = {"name": "another", **{key: pod["metadata"][key] for key in ("labels", "annotations")}}
    return {"metadata": metadata, "spec": {key: value for key, value in pod["spec"].items() if key != "nodeName"}}


async def test_a_failed_rail_is_named_by_check_until_it_is_back(installed):
    node = installed.site.nodes[NODE]
    node.offer(fail(RESOURCE))
    problem = await waiting.wait(lambda: find_problem(installed), describe="check to name the rail")
    assert f"{NODE}: {RESOURCE} 0 of 16" in problem
    node.offer(hardware.list_resources())

    async def is_back() -> bool:
        return not await find_problem(installed)

    await waiting.wait(is_back, describe="check to be content again")


@pytest.fixture
async def waiting_gang(installed):
    """360 Smart Cloud's job of two pods of eight GPUs, which waits because one node is cordoned."""
    plane = installed.plane
    await plane.call_extender()
    await plane.kubectl("cordon", layout.NODES[1])
    await plane.api.create(rails.describe_job("lost-rail"))

    async def find_pods() -> list[str]:
        pods_of_job = await plane.api.list("Pod", rails.NAMESPACE, labels="volcano.sh/job-name=lost-rail")
        return [pod["metadata"]["name"] for pod in pods_of_job] if len(pods_of_job) == 2 else []

    yield await waiting.wait(find_pods, describe="both pods of the job")
    await plane.kubectl("uncordon", layout.NODES[1])
    installed.site.nodes[NODE].offer(hardware.list_resources())
    await plane.remove_pods(rails.NAMESPACE)


async def test_a_lost_rail_is_in_the_answer_within_a_second(installed, waiting_gang):
    pod = await installed.plane.api.get("Pod", waiting_gang[0], rails.NAMESPACE)

    async def is_accepted() -> bool:
        return await installed.ask_extender(pod, rails.NAMESPACE, NODE) == ""

    async def is_lost() -> bool:
        return await count_allocatable(installed) == 0

    seconds: list[float] = []
    while len(seconds) < 3 and min(seconds, default=1) >= 1:  # a busy machine only adds to them
        installed.site.nodes[NODE].offer(hardware.list_resources())
        await waiting.wait(is_accepted, describe="the extender to accept the pod")
        installed.site.nodes[NODE].offer(fail(RESOURCE))
        await waiting.wait(is_lost, describe=f"{NODE} to offer no {RESOURCE}")
        began = time.monotonic()
        rejection = await waiting.wait(
            lambda: installed.ask_extender(pod, rails.NAMESPACE, NODE), describe="the extender to know"
        )
        seconds.append(time.monotonic() - began)
        assert "rail1 dead or absent" in rejection
    assert min(seconds) < 1, seconds

    async def find_reasons() -> bool:
        explanation = (await installed.explain_pod(rails.NAMESPACE, waiting_gang[0]))["placement"]
        (row,) = [row for row in explanation["nodes"] if row["node"] == NODE]
        assert row["rejection"]["message"] == "rail1 dead or absent", row
        return True

    await waiting.wait(find_reasons, describe="explain to name the rail")
    installed.site.nodes[NODE].offer(hardware.list_resources())
    await installed.plane.kubectl("uncordon", layout.NODES[1])
    await conditions.running(installed.plane.api, rails.NAMESPACE, "volcano.sh/job-name=lost-rail", 2)


@pytest.mark.parametrize("program", ["deviceplugin", "kubelet"])
async def test_restarts_of_node_programs_keep_devices(installed, running_pod, program):
    begun = time.time()
    await installed.site.nodes[NODE].signal(program, signal.SIGKILL)
    log = installed.site.nodes[NODE].logs / "deviceplugin.log"

    async def is_back() -> bool:
        assert log.stat().st_mtime > begun, "the plugin registers again"
        return await count_allocatable(installed) == 16

    async def is_accepted() -> bool:
        return await installed.ask_extender(describe_another(running_pod), rails.NAMESPACE, NODE) == ""

    await waiting.wait(is_back, seconds=180, describe=f"{RESOURCE} to be offered again")
    await waiting.wait(is_accepted, describe="the extender to accept another pod on the node")
    pod = await pods.wait_ready(installed.plane.api, rails.NAMESPACE, "holder")
    assert pod["status"]["containerStatuses"] == running_pod["status"]["containerStatuses"], "the same container"

    async def list_devices() -> set[str]:  # a kubelet that has just started may not know its pods yet
        return set((await installed.site.execute(rails.NAMESPACE, "holder", "ls", "/dev/infiniband")).split())

    devices = await waiting.wait(list_devices, describe="kubelet to execute a command in the pod")
    assert {f"uverbs{rail}" for rail in range(layout.RAILS)} <= devices
