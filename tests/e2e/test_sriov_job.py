"""The PyTorchJob of sriov-8-rail on real nodes: eight virtual functions per node, each a pool of its own.

A virtual function is a macvlan interface that the host-device plugin moves into the pod, by the PCI address that
kubelet has chosen and Multus passes on.
"""

import re

import pytest_asyncio
from plane import jobs
from realnode import hardware, images, layout, rails, ranks


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def ranks_with_functions(installed, real_site):
    """Yield the ranks of the PyTorchJob of sriov-8-rail, a master and a worker, by training-operator."""
    await real_site.load(images.make_alpine(real_site.ready.busybox, real_site.folder / "alpine.tar"))
    await real_site.plane.controllers.start("training-operator")
    job = rails.read_job("sriov-8-rail")
    job["metadata"]["labels"]["railwright.io/fabric"] = "sriov-per-rail"
    for replica in job["spec"]["pytorchReplicaSpecs"].values():
        ranks.simplify(replica["template"], images.BUSYBOX, ["sleep", "100000"])
    async with ranks.run_job(real_site, job, jobs.select_kubeflow_pods("llm"), 2) as running:
        yield running


async def test_each_rail_interface_of_a_pod_is_a_virtual_function_of_the_pool_of_the_rail(
    real_site, ranks_with_functions
):
    subnets = [f"10.56.{index}" for index in range(layout.FUNCTIONS)]
    addresses = [await rank.check_rails(subnets) for rank in ranks_with_functions]
    await ranks_with_functions[0].ping_rails(addresses[1])
    for node in layout.NODES:
        links = await real_site.nodes[node].run("ip", "-o", "link")
        assert not re.findall(r"\bvf\d", links), "every function of the node is in its pod"


async def test_a_rank_has_only_the_devices_of_its_virtual_functions(real_site, ranks_with_functions):
    functions = {f"uverbs{layout.RAILS + index}" for index in range(layout.FUNCTIONS)}
    for rank in ranks_with_functions:
        assert await rank.list_devices("/dev/infiniband") == {"rdma_cm", *functions}
        names = await rank.list_devices("/dev")
        assert {name for name in names if name.startswith("nvidia")} == {"nvidiactl", *hardware.GPU_FILES}
        assert await rank.has_capability(ranks.IPC_LOCK)
        await rank.check_shared_memory(64)


async def test_ranks_keep_the_nccl_variables_of_the_job_and_get_the_devices_of_their_virtual_functions(
    real_site, ranks_with_functions
):
    devices = ",".join(layout.name_function_device(index) for index in range(layout.FUNCTIONS))
    for number, rank in enumerate(ranks_with_functions):
        assert f"NCCL_IB_HCA=={devices}\n" in await rank.run("cat", "/run/railwright/nccl.conf")
        assert await rank.read_nccl() == {
            "NCCL_ALGO": "allreduce:ring",
            "NCCL_CONF_FILE": "/run/railwright/nccl.conf",
            "NCCL_DEBUG": "WARN",
            "NCCL_SOCKET_IFNAME": "=eth0",
        }
        environment = await rank.read_environment()
        assert (environment["RANK"], environment["WORLD_SIZE"]) == (str(number), "2")
