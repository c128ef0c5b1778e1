"""360 Smart Cloud's job on real nodes: its users' manifest with one label, carried out by Volcano.

Looks from inside each container: interfaces, addresses, devices, limits, and NCCL's variables as the rank has them.
"""

import json
import re

import pytest
import pytest_asyncio
from plane import jobs
from realnode import layout, rails

PODS = ("rdma-test-master-0", "rdma-test-worker-0")
NETWORKS = [f"net{rail + 1}" for rail in range(layout.RAILS)]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def ranks(installed, real_site):
    """Yield the pods of the job, running."""
    await real_site.plane.call_extender()
    await real_site.plane.api.create(rails.describe_job())
    pods = await jobs.pods(real_site.plane.api, rails.NAMESPACE, "volcano.sh/job-name=rdma-test", 2)
    yield {pod["metadata"]["name"]: pod for pod in pods}
    await real_site.plane.api.delete("batch.volcano.sh/v1alpha1/Job", "rdma-test", rails.NAMESPACE)


@pytest.fixture
def look(real_site):
    """Return the output of a command in a rank."""

    async def execute(pod: str, *command: str) -> str:
        return await real_site.execute(rails.NAMESPACE, pod, *command)

    return execute


async def test_each_node_has_a_rank_and_the_extender_chose_it(installed, ranks):
    assert {pod["spec"]["nodeName"] for pod in ranks.values()} == set(layout.NODES)
    for pod in ranks.values():
        placement = json.loads(pod["metadata"]["annotations"]["railwright.io/placement"])
        assert placement["node"] == pod["spec"]["nodeName"]
    for verb in ("prioritize", "allocate"):
        assert await installed.count_requests(f"/volcano/{verb}") > 0, "Volcano reaches the extender"


@pytest.mark.parametrize("pod", PODS)
async def test_interfaces_come_in_rail_order_with_addresses(ranks, look, pod):
    lines = (await look(pod, "ip", "-o", "-4", "addr")).splitlines()
    addresses = dict(re.findall(r"^\d+: (\S+)\s+inet (\S+)", "\n".join(lines), re.MULTILINE))
    assert list(addresses) == ["lo", "eth0", *NETWORKS]
    for rail, name in enumerate(NETWORKS):
        assert re.fullmatch(rf"192\.168\.{rail + 2}\.\d+/24", addresses[name]), addresses
        link = await look(pod, "ip", "-o", "link", "show", name)
        assert " mtu 9000 " in link, link


@pytest.mark.parametrize("pod", PODS)
async def test_container_has_exactly_its_devices(ranks, look, pod):
    names = set((await look(pod, "ls", "/dev")).split())
    assert {name for name in names if name.startswith("nvidia")} == {"nvidiactl", *(f"nvidia{n}" for n in range(8))}
    verbs = {f"{kind}{rail}" for kind in ("umad", "uverbs") for rail in range(layout.RAILS)}
    assert set((await look(pod, "ls", "/dev/infiniband")).split()) == {"rdma_cm", *verbs}


@pytest.mark.parametrize("pod", PODS)
async def test_shared_memory_and_memlock_are_as_the_policy_says(real_site, ranks, look, pod):
    mounts = await look(pod, "cat", "/proc/mounts")
    (options,) = re.findall(r"^tmpfs /dev/shm tmpfs (\S+)", mounts, re.MULTILINE)
    node = await real_site.plane.api.get("Node", ranks[pod]["spec"]["nodeName"])
    allocatable = int(node["status"]["allocatable"]["memory"].removesuffix("Ki"))
    size = min(64 << 20, allocatable)  # kubelet takes the smaller (pkg/volume/emptydir, calculateEmptyDirMemorySize)
    assert f"size={size}k" in options.split(","), options
    status = await look(pod, "cat", "/proc/1/status")
    effective = int(re.findall(r"^CapEff:\s+(\S+)", status, re.MULTILINE)[0], 16)
    assert effective & 1 << 14, "CAP_IPC_LOCK, capability 14, stands above the limit of locked memory"


@pytest.mark.parametrize("pod", PODS)
async def test_rank_has_the_derived_variables_of_nccl(ranks, look, pod):
    environment = await look(pod, "cat", "/proc/1/environ")
    variables = dict(entry.split("=", 1) for entry in environment.split("\0") if "=" in entry)
    assert {name: value for name, value in variables.items() if name.startswith("NCCL_")} == {
        "NCCL_DEBUG": "INFO",
        "NCCL_IB_ADDR_RANGE": "192.168.0.0/16",
        "NCCL_IB_HCA": "=mlx5_0,mlx5_1,mlx5_2,mlx5_3",
        "NCCL_NET_GDR_READ": "1",
        "NCCL_SOCKET_IFNAME": "=eth0",
    }
    rank = PODS.index(pod)
    assert (variables["RANK"], variables["WORLD_SIZE"], variables["MASTER_PORT"]) == (str(rank), "2", "23456")


@pytest.mark.parametrize("rail", range(layout.RAILS))
async def test_a_jumbo_packet_passes_between_the_nodes_on_each_rail(ranks, look, rail):
    first, second = PODS
    output = await look(second, "ip", "-o", "-4", "addr", "show", NETWORKS[rail])
    (address,) = re.findall(r"inet ([\d.]+)/", output)
    command = ("ping", "-c3", "-i0.2", "-W2", "-s8900", "-I", NETWORKS[rail], address)
    assert "3 packets received, 0% packet loss" in await look(first, *command)
