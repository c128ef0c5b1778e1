"""Devices as kubelet sees them: a rail that fails, and restarts of device plugin and kubelet under running pods."""

import signal
import time

import pytest
from plane import waiting
from realnode import hardware, layout, pods, rails

NODE = layout.NODES[0]
RESOURCE = "nvidia.com/mlx5_1"
HOSTNAME = "kubernetes.io/hostname"


async def find_problem(installed) -> str:
    """Return what `railwright check` says of dead rails; empty where there is none."""
    report = await installed.check()
    (row,) = [check for check in report["checks"] if check["check"] == "rail-dead" and check["subject"] == "roce"]
    return "" if row["state"] == "ok" else row["detail"]


async def count_allocatable(installed) -> int:
    node = await installed.plane.api.get("Node", NODE)
    return int(node["status"]["allocatable"].get(RESOURCE, "0"))


@pytest.fixture
async def running_pod(installed):
    """A pod of four rails on the node."""
    pod = pods.describe(
        "holder", labels={"railwright.io/fabric": "roce"}, limits={"nvidia.com/gpu": "1"}, nodeSelector={HOSTNAME: NODE}
    )
    await installed.plane.api.create(pod, namespace=rails.NAMESPACE)
    yield await pods.wait_ready(installed.plane.api, rails.NAMESPACE, "holder")
    await installed.plane.api.delete("Pod", "holder", rails.NAMESPACE, grace=0)


async def test_a_failed_rail_is_named_by_check_until_it_is_back(installed):
    resources = hardware.list_resources()
    for resource in resources:
        if resource["name"] == RESOURCE:
            for device in resource["devices"]:
                device["unhealthy"] = True
    node = installed.site.nodes[NODE]
    node.offer(resources)
    problem = await waiting.wait(lambda: find_problem(installed), describe="check to name the rail")
    assert f"{NODE}: {RESOURCE} 0 of 16" in problem
    node.offer(hardware.list_resources())

    async def is_back() -> bool:
        return not await find_problem(installed)

    await waiting.wait(is_back, describe="check to be content again")


@pytest.mark.parametrize("program", ["deviceplugin", "kubelet"])
async def test_a_running_pod_keeps_its_devices_while_a_program_of_the_node_restarts(installed, running_pod, program):
    begun = time.time()
    await installed.site.nodes[NODE].signal(program, signal.SIGKILL)
    log = installed.site.nodes[NODE].logs / "deviceplugin.log"

    async def is_back() -> bool:
        assert log.stat().st_mtime > begun, "the plugin registers again"
        return await count_allocatable(installed) == 16

    await waiting.wait(is_back, seconds=60, describe=f"{RESOURCE} to be offered again")
    pod = await pods.wait_ready(installed.plane.api, rails.NAMESPACE, "holder")
    assert pod["status"]["containerStatuses"] == running_pod["status"]["containerStatuses"], "the same container"
    devices = await installed.site.execute(rails.NAMESPACE, "holder", "ls", "/dev/infiniband")
    assert {f"uverbs{rail}" for rail in range(layout.RAILS)} <= set(devices.split())
