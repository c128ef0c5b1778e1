"""vivo's job on real nodes: pods that share a node, each with interfaces and devices of its own on all rails."""

import re

import pytest_asyncio
from realnode import hardware, images, layout, rails, ranks


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def sharing_ranks(installed, real_site):
    """Yield the ranks of vivo's job with four pods of four GPUs, which fill both nodes."""
    await real_site.plane.call_extender()
    job = rails.read_job("vivo-roce")
    job["metadata"]["name"] = "vivo"  # a name of its own, because Volcano may make no pods for one that was used
    job["spec"]["minAvailable"] = 4
    (task,) = job["spec"]["tasks"]
    task["replicas"] = 4
    job["metadata"]["labels"]["railwright.io/fabric"] = "vivo"
    ranks.simplify(task["template"], images.BUSYBOX, ["sleep", "100000"])
    namespace = job["metadata"]["namespace"]
    await real_site.plane.make_namespace(namespace)
    try:
        async with ranks.run_job(real_site, job, "volcano.sh/job-name=vivo", 4) as running:
            yield running
    finally:
        await real_site.plane.remove_namespace(namespace)


async def test_pods_that_share_a_node_have_different_addresses_on_each_rail(sharing_ranks):
    nodes = [rank.node for rank in sharing_ranks]
    assert {node: nodes.count(node) for node in nodes} == dict.fromkeys(layout.NODES, 2)
    subnets = [f"172.16.{rail}" for rail in range(layout.RAILS)]
    addresses = [await rank.check_rails(subnets) for rank in sharing_ranks]
    for rail in range(layout.RAILS):
        assert len({address[f"net{rail + 1}"] for address in addresses}) == 4, "an address each"
    for other in addresses[1:]:
        await sharing_ranks[0].ping_rails(other)


async def test_pods_that_share_a_node_have_different_gpus_and_the_same_rdma_devices(sharing_ranks):
    gpus_by_node: dict[str, list[str]] = {}
    for rank in sharing_ranks:
        gpus = {name for name in await rank.list_devices("/dev") if re.fullmatch(r"nvidia\d", name)}
        assert len(gpus) == 4
        gpus_by_node.setdefault(rank.node, []).extend(gpus)
        verbs = {f"{kind}{rail}" for kind in ("umad", "uverbs") for rail in range(layout.RAILS)}
        assert await rank.list_devices("/dev/infiniband") == {"rdma_cm", *verbs}
        assert await rank.has_capability(ranks.IPC_LOCK)
        await rank.check_shared_memory(32)
    assert [sorted(gpus) for gpus in gpus_by_node.values()] == [sorted(hardware.GPU_FILES)] * 2, "no GPU twice"
