"""Preflight in pods on real nodes: its init container reads the pod's own interfaces, devices and GIDs.

The devices' sysfs is made of files, because no module of the machine can be loaded; GIDs follow the pod's addresses.
"""

import re

import pytest
from realnode import layout, pods, rails

pytestmark = pytest.mark.main


@pytest.fixture
def start(create):
    """Return a function that creates a pod of a fabric and returns its name."""

    async def start_pod(fabric: str) -> str:
        pod = await create(pods.describe(f"preflight-{fabric}", fabric, restartPolicy="Never"))
        return pod["metadata"]["name"]

    return start_pod


async def test_a_pod_with_ready_rails_starts(installed, start):
    name = await start("checked")
    pod = await pods.wait_ready(installed.plane.api, rails.NAMESPACE, name)
    (preflight,) = pod["status"]["initContainerStatuses"]
    assert preflight["state"]["terminated"]["exitCode"] == 0
    line = await installed.plane.kubectl(
        "logs", f"--namespace={rails.NAMESPACE}", name, f"--container={preflight['name']}"
    )
    assert f"{layout.RAILS} rails ready" in line
    addresses = await installed.site.execute(rails.NAMESPACE, name, "ip", "-o", "-4", "addr")
    for rail in range(layout.RAILS):
        (address,) = re.findall(rf"net{rail + 1}\s+inet ([\d.]+)/", addresses)
        assert address in line, f"the GID of rail {rail} is that of the pod's address"


async def test_preflight_stops_a_pod_whose_rails_have_a_smaller_mtu_than_the_policy(installed, start):
    name = await start("oversized")
    message = await pods.wait_preflight(installed.plane.api, rails.NAMESPACE, name, "Failed")
    for rail in range(layout.RAILS):
        assert f"net{rail + 1}" in message
    assert "9000" in message
    assert "9100" in message
