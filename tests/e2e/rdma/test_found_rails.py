"""A job whose ranks get the devices and GID indexes that preflight finds as environment variables, by `fileKeyRef`.

Only nodes whose kubelet knows `fileKeyRef` offer the fabric's resources, so that no rank has to read a file.
"""

import pytest
import pytest_asyncio
from realnode import layout, mooncake, mpi_image, rails, ranks, traffic

pytestmark = pytest.mark.timeout(1800)
UCX_SIZE, UCX_MESSAGES, UCX_PORT = 1 << 20, 20, 13337
HOSTS_GID = 1  # the index of a node's first address
UCX_RAILS = 2  # on which UCX sends one message, unless UCX_MAX_RNDV_RAILS says otherwise
# Soft RoCE writes no destination into packets that UCX looks at. As a variable of UCX, it is why its list is set, too.
UCX = {"UCX_UD_VERBS_ETH_DGID_CHECK": "n"}


def describe_job(name: str, fabric: str) -> dict:
    """Return 360 Smart Cloud's job with programs of UCX."""
    return rails.describe_job(name, fabric, mpi_image.NAME, traffic.SLEEP, UCX)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def pair(resolving_nodes, real_site):
    """Yield the two ranks of a job, one on each node."""
    await real_site.plane.call_extender()
    job = describe_job("rdma-env", "soft-roce")
    async with ranks.run_job(real_site, job, "volcano.sh/job-name=rdma-env", 2, seconds=900) as running:
        assert {rank.node for rank in running} == set(resolving_nodes)
        yield running


async def read_index(rank: ranks.Rank, device: str, address: str) -> int:
    """Return the GID index in the rank's environment, the same for each rail."""
    environment = await rank.read_environment()
    indexes = {environment[name] for name in ("NCCL_IB_GID_INDEX", "UCX_IB_GID_INDEX")}
    assert indexes == {str(await traffic.read_gid(rank, device, address))}
    return int(environment["NCCL_IB_GID_INDEX"])


async def test_rdma_writes_with_gid_indexes_from_the_environment_use_each_rail(resolving_nodes, pair):
    for rank in pair:
        environment = await rank.read_environment()
        assert environment["NCCL_IB_HCA"] == f"={','.join(layout.DEVICES)}"
        assert environment["UCX_NET_DEVICES"] == ",".join(f"{device}:1" for device in layout.DEVICES)
    used = await traffic.write_on_each_rail(resolving_nodes, *pair, layout.SUBNETS, read_index)
    assert not used[pair[0]] & used[pair[1]], "the index of a pod's GID differs by node"


def run_ucx(rank: ranks.Rank, target: str) -> str:
    return f"ucx_perftest -t tag_bw -s {UCX_SIZE} -n {UCX_MESSAGES} -w 1 -p {UCX_PORT} {target} 2>&1"


async def test_ucx_sends_over_two_rails(resolving_nodes, pair):
    before = await traffic.count_all_packets(resolving_nodes)
    segments = {rank: await traffic.count_segments(rank) for rank in pair}
    output = await traffic.run_pair(*pair, run_ucx, UCX_PORT)
    assert "Final:" in output, output
    packets = UCX_SIZE * UCX_MESSAGES // traffic.MTU // UCX_RAILS
    await traffic.check_packets(resolving_nodes, before, dict.fromkeys(layout.DEVICES[:UCX_RAILS], packets * 9 // 10))
    for rank in pair:
        assert await traffic.count_segments(rank) - segments[rank] < traffic.SEGMENTS


async def test_mooncake_writes_over_each_rail(resolving_nodes, pair):
    for rank in pair:
        assert (await rank.read_environment())["MC_ENABLE_DEST_DEVICE_AFFINITY"] == "1"
    before = await traffic.count_all_packets(resolving_nodes)
    segments = {rank: await traffic.count_segments(rank) for rank in pair}
    await mooncake.transfer(*pair)
    # it chooses a rail at random for each 64 KiB: a tenth of an even share is far below what chance leaves
    packets = mooncake.SIZE * mooncake.TIMES // traffic.MTU // layout.RAILS // 10
    await traffic.check_packets(resolving_nodes, before, dict.fromkeys(layout.DEVICES, packets))
    for rank in pair:
        assert await traffic.count_segments(rank) - segments[rank] < traffic.SEGMENTS


async def test_verify_counts_the_bytes_of_each_rail(installed, resolving_nodes, pair):
    async with traffic.keep_writing(resolving_nodes, *pair, layout.DEVICES):
        output = await installed.verify_counters("rdma-env", rails.NAMESPACE)
    assert output.startswith(f"RDMA on {layout.RAILS} of {layout.RAILS} rails: "), output
    assert "idle" not in output, output


async def test_verify_distinguishes_tcp_from_rdma(installed, pair):
    client, server = pair
    tcp = "env UCX_TLS=tcp UCX_NET_DEVICES=eth0 ucx_perftest -t tag_bw -s 65536 -n 10000000 -p 13338"
    await traffic.start(server, tcp)
    await traffic.wait_listening(server, 13338)
    await traffic.start(client, f"{tcp} {await traffic.get_pod_address(server)}")
    try:
        output = await installed.verify_counters("rdma-env", rails.NAMESPACE)
    finally:
        await traffic.end(client, server)
    assert output.startswith("TCP, not RDMA: no rail carried data, and "), output


async def test_a_pod_that_sends_with_the_gid_index_of_its_host_uses_the_address_of_the_host(pair):
    """Soft RoCE then sends from the node's address instead of the pod's, of which lint and preflight warn."""

    def write(rank: ranks.Rank, target: str) -> str:
        return traffic.write("mlx5_0", HOSTS_GID, target, "-n", "50", port=18600)

    output = await traffic.run_pair(*pair, write, 18600)
    own = {address for rank in pair for address in (await rank.check_rails(layout.SUBNETS)).values()}
    used = set(traffic.read_gids(output))
    assert len(used) == len(pair), output
    assert used.isdisjoint(own), output
