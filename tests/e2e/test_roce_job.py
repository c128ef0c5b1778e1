"""360 Smart Cloud's job on real nodes: its users' manifest with one label, carried out by Volcano.

It reads interfaces, addresses, devices, limits and NCCL's variables inside each container.
"""

import pytest
import pytest_asyncio
from realnode import hardware, layout, rails
from realnode import ranks as views

pytestmark = pytest.mark.main


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def ranks(installed, real_site):
    """Yield the running ranks of the job."""
    await real_site.plane.call_extender()
    async with views.run_job(real_site, rails.describe_job("rdma-test"), "volcano.sh/job-name=rdma-test", 2) as running:
        yield running


async def test_volcano_places_a_rank_on_each_node_through_the_extender(installed, real_site, ranks):
    pods = [await real_site.plane.api.get("Pod", rank.pod, rank.namespace) for rank in ranks]
    assert {pod["spec"]["nodeName"] for pod in pods} == set(layout.NODES)
    for verb in ("prioritize", "allocate"):
        assert await installed.count_requests(f"/volcano/{verb}") > 0, "Volcano reaches the extender"


async def test_jumbo_packets_pass_on_the_interfaces_of_each_rail(ranks):
    addresses = [await rank.check_rails(layout.SUBNETS) for rank in ranks]
    await ranks[0].ping_rails(addresses[1])


async def test_a_rank_has_only_its_gpus_and_rdma_devices(ranks):
    gpus = {"nvidiactl", *hardware.GPU_FILES}
    verbs = {f"{kind}{rail}" for kind in ("umad", "uverbs") for rail in range(layout.RAILS)}
    for rank in ranks:
        assert {name for name in await rank.list_devices("/dev") if name.startswith("nvidia")} == gpus
        assert await rank.list_devices("/dev/infiniband") == {"rdma_cm", *verbs}


async def test_a_rank_has_the_shared_memory_and_ipc_lock_of_the_policy(ranks):
    for rank in ranks:
        await rank.check_shared_memory(64)
        assert await rank.has_capability(views.IPC_LOCK)


async def test_a_rank_has_derived_variables_in_its_environment_and_device_names_in_nccl_conf(ranks):
    for number, rank in enumerate(ranks):
        assert await rank.read_nccl() == {
            "NCCL_CONF_FILE": "/run/railwright/nccl.conf",
            "NCCL_DEBUG": "INFO",
            "NCCL_NET_GDR_READ": "1",
            "NCCL_SOCKET_IFNAME": "=eth0",
        }
        for path in ("/run/railwright/nccl.conf", "/etc/nccl.conf"):
            assert "NCCL_IB_HCA==mlx5_0,mlx5_1,mlx5_2,mlx5_3" in (await rank.run("cat", path)).splitlines()
        variables = await rank.read_environment()
        assert (variables["RANK"], variables["WORLD_SIZE"], variables["MASTER_PORT"]) == (str(number), "2", "23456")
