"""Devices of kubelet: a rail that fails, and restarts of device plugin and kubelet under running pods."""

import signal
import time

import pytest
from plane import waiting
from realnode import hardware, layout, pods, rails

pytestmark = pytest.mark.main
NODE = layout.NODES[0]
RESOURCE = "nvidia.com/mlx5_1"


async def find_problem(installed) -> str:
    """Return the text of `railwright check` about dead rails, "" without any."""
    report = await installed.check()
    (row,) = [check for check in report["checks"] if check["check"] == "rail-dead" and check["subject"] == "roce"]
    return "" if row["state"] == "ok" else row["detail"]


def describe_failure(name: str) -> list[dict]:
    """Return the node's resources, all devices of one of them unhealthy."""
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
    """Return a copy of a pod for creation, without a node."""
    metadata = {"name": "another", **{key: pod["metadata"][key] for key in ("labels", "annotations")}}
    return {"metadata": metadata, "spec": {key: value for key, value in pod["spec"].items() if key != "nodeName"}}


async def test_check_names_a_failed_rail_until_its_devices_are_healthy(installed):
    node = installed.site.nodes[NODE]
    node.offer(describe_failure(RESOURCE))
    problem = await waiting.wait(lambda: find_problem(installed), describe="check to name the rail")
    assert f"{NODE}: 0 of 16 {RESOURCE} allocatable" in problem
    node.offer(hardware.list_resources())

    async def is_back() -> bool:
        return not await find_problem(installed)

    await waiting.wait(is_back, describe="check to be content again")


@pytest.mark.parametrize("program", ["deviceplugin", "kubelet"])
async def test_pods_keep_their_devices_when_the_device_plugin_and_kubelet_restart(installed, running_pod, program):
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
