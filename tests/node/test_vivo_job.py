"""vivo's job on real nodes: pods that share a node, each with interfaces and devices of its own on all rails."""

import re

import pytest_asyncio
from plane import conditions
from realnode import hardware, images, layout, rails, ranks

ALL_GPUS = {f"nvidia{index}" for index in range(hardware.GPUS)}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def sharing_pods(installed, real_site):
    """vivo's job with four pods of four GPUs, which fill both nodes."""
    await real_site.plane.call_extender()
    job = rails.read_job("vivo-roce")
    job["spec"]["minAvailable"] = 4
    (task,) = job["spec"]["tasks"]
    task["replicas"] = 4
    task["template"]["metadata"]["labels"]["railwright.io/fabric"] = "vivo"
    ranks.simplify(task["template"], images.BUSYBOX, ["sleep", "100000"])
    namespace = job["metadata"]["namespace"]
    await real_site.plane.make_namespace(namespace)
    await real_site.plane.api.create(job)
    try:
        yield await conditions.running(real_site.plane.api, namespace, "volcano.sh/job-name=llm", 4)
    finally:
        await real_site.plane.remove_namespace(namespace)


async def test_pods_that_share_a_node_have_rails_of_their_own(real_site, sharing_pods):
    nodes = [pod["spec"]["nodeName"] for pod in sharing_pods]
    assert {node: nodes.count(node) for node in nodes} == dict.fromkeys(layout.NODES, 2)
    views = [ranks.Rank(real_site, "training", pod["metadata"]["name"]) for pod in sharing_pods]
    subnets = [f"172.16.{rail}" for rail in range(layout.RAILS)]
    addresses = [await rank.check_rails(subnets) for rank in views]
    for rail in range(layout.RAILS):
        assert len({address[f"net{rail + 1}"] for address in addresses}) == 4, "an address each"
    for other in addresses[1:]:
        await views[0].ping_rails(other)


async def test_pods_that_share_a_node_share_its_devices(real_site, sharing_pods):
    gpus_by_node: dict[str, list[str]] = {}
    for pod in sharing_pods:
        rank = ranks.Rank(real_site, "training", pod["metadata"]["name"])
        gpus = {name for name in await rank.list_devices("/dev") if re.fullmatch(r"nvidia\d", name)}
        assert len(gpus) == 4
        gpus_by_node.setdefault(pod["spec"]["nodeName"], []).extend(gpus)
        verbs = {f"{kind}{rail}" for kind in ("umad", "uverbs") for rail in range(layout.RAILS)}
        assert await rank.list_devices("/dev/infiniband") == {"rdma_cm", *verbs}
        assert await rank.has_capability(ranks.IPC_LOCK)
        await rank.check_shared_memory(32)
    assert [sorted(gpus) for gpus in gpus_by_node.values()] == [sorted(ALL_GPUS)] * 2, "no GPU twice"


async def test_ranks_have_the_variables_of_the_handwritten_job(real_site, sharing_pods):
    for pod in sharing_pods:
        environment = await ranks.Rank(real_site, "training", pod["metadata"]["name"]).read_environment()
        assert {name: value for name, value in environment.items() if name.startswith("NCCL_")} == {
            "NCCL_DEBUG": "WARN",
            "NCCL_IB_ADDR_RANGE": "172.16.0.0/14",
            "NCCL_IB_HCA": "=mlx5_0,mlx5_1,mlx5_2,mlx5_3",
            "NCCL_IB_TC": "106",
            "NCCL_SOCKET_IFNAME": "=eth0",
        }
        assert (environment["GLOO_SOCKET_IFNAME"], environment["TP_SOCKET_IFNAME"]) == ("eth0", "eth0")
