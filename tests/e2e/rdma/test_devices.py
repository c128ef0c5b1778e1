"""Preflight against RDMA devices of a real kernel: soft RoCE, and soft iWARP (siw), because eRDMA is an iWARP.

Preflight runs as in a pod: in a network namespace with a macvlan interface on each rail. `test_traffic` has real pods.
"""

import re
import sys

import pytest
import pytest_asyncio
from plane import releases
from realnode import layout

pytestmark = pytest.mark.timeout(900)
READY = ", ".join(f"rail{rail} mlx5_{rail} 192.168.{rail + 2}.9 GID \\d+ mtu 9000" for rail in range(layout.RAILS))


@pytest.fixture(scope="module")
def node(virtual_nodes):
    """Return a node without pods."""
    return virtual_nodes[layout.VIRTUAL_NODES[0]]


async def run_script(node, script: str) -> str:
    """Run shell lines in the node until one fails."""
    return await node.run("sh", "-ec", script)


async def add_namespace(node) -> None:
    """Make a network namespace like that of a pod with four rails."""
    lines = ["ip netns add pod", "ip -n pod link set lo up"]
    for rail in range(layout.RAILS):
        lower = layout.name_interface(rail)
        lines += [
            f"ip link add net{rail + 1} link {lower} mtu 9000 netns pod type macvlan mode bridge",
            f"ip -n pod addr add 192.168.{rail + 2}.9/24 dev net{rail + 1}",
            f"ip -n pod link set net{rail + 1} up",
        ]
    await run_script(node, "\n".join(lines))


@pytest_asyncio.fixture(loop_scope="session")
async def preflight(node):
    """Yield `await preflight(...)`: run preflight in a pod's namespace; return its exit code and output."""
    rows = [f"--rail=rail{rail},device=mlx5_{rail},interface=net{rail + 1}" for rail in range(layout.RAILS)]
    program = ("ip", "netns", "exec", "pod", "env", f"PYTHONPATH={releases.ROOT}", sys.executable, "-m")

    async def run_preflight(*options: str, transport: str = "roce", rails: list[str] = rows) -> tuple[int, str]:
        return await node.attempt(*program, "railwright.preflight", f"--transport={transport}", *rails, *options)

    await add_namespace(node)
    yield run_preflight
    await node.run("ip", "netns", "delete", "pod")


async def test_preflight_reports_the_soft_roce_device_of_each_rail_as_ready(preflight):
    code, output = await preflight("--mtu=9000", "--wait=20")
    assert code == 0, output
    assert re.fullmatch(rf"railwright preflight 4 rails ready: {READY}(; warning: GID indexes: .*)?", output.strip()), (
        output
    )


@pytest.mark.parametrize(
    ("breaks", "repairs", "mtu", "problems"),
    [
        ("true", "true", 9100, [f"rail{r} mlx5_{r}: net{r + 1} has MTU 9000, less than 9100" for r in range(4)]),
        (
            "ip -n pod link set net2 down",
            "true",
            9000,
            ["rail1 mlx5_1: interface net2 is administratively down"],
        ),
        ("ip -n pod addr del 192.168.4.9/24 dev net3", "true", 9000, ["rail2 mlx5_2: net3 has no address"]),
        (
            "rdma link delete mlx5_2; ip link set lan5 down",
            "rdma link add mlx5_2 type rxe netdev lan4; ip link set lan5 up",
            9000,
            ["rail2 mlx5_2: device not found (found: mlx5_0, mlx5_1, mlx5_3)", "rail3 mlx5_3: port 1 is DOWN"],
        ),
    ],
    ids=["small-mtu", "set-down", "no-address", "port-down-and-no-device"],
)
async def test_preflight_reports_exactly_the_rails_with_a_fault(preflight, node, breaks, repairs, mtu, problems):
    await run_script(node, breaks)
    try:
        code, output = await preflight(f"--mtu={mtu}", "--wait=0")
    finally:
        await run_script(node, repairs)
    assert code == 1, output
    assert re.findall(r"rail\d mlx5_\d: (?:[^:,(]|\([^)]*\)|, less)+", output) == problems


async def test_preflight_does_not_find_devices_of_another_network_namespace(preflight, node):
    await run_script(node, "ip netns delete pod; rdma system set netns exclusive")
    await add_namespace(node)
    try:
        code, output = await preflight("--wait=0")
    finally:
        await run_script(node, "ip netns delete pod; rdma system set netns shared; ip netns add pod")
    assert code == 1, output
    for rail in range(layout.RAILS):
        assert f"rail{rail} mlx5_{rail}: device not found (found: none)" in output
    assert "rdma system" in output


async def test_a_soft_iwarp_device_is_ready_for_erdma_but_lacks_a_gid_for_roce(preflight, node):
    await run_script(node, "/run/modprobe siw; rdma link add erdma_0 type siw netdev lan2")
    try:
        code, output = await preflight("--wait=0", transport="erdma", rails=["--rail=rail0,device=erdma_0"])
        assert code == 0, output
        assert re.fullmatch(r"railwright preflight 1 rail ready: rail0 erdma_0( .*)?", output.strip()), output
        code, output = await preflight("--wait=0", rails=["--rail=rail0,device=erdma_0,interface=net1"])
        assert code == 1, output
        assert "rail0 erdma_0: no RoCE v2 GID of net1 (192.168.2.9" in output
    finally:
        await node.run("rdma", "link", "delete", "erdma_0")
