"""A rail without link, with a policy that still starts the pod: preflight and verify name the rail."""

import pytest
from realnode import layout, mpi_image, rails, ranks, traffic

pytestmark = pytest.mark.timeout(1800)


async def test_preflight_and_verify_name_a_rail_without_link(installed, resolving_nodes, real_site):
    """With `onFailure: warn`, a pod starts although a rail of its node has no link."""
    await real_site.plane.call_extender()
    node, last = layout.VIRTUAL_NODES[0], layout.RAILS - 1
    async with traffic.cut(resolving_nodes[node], last):
        job = rails.describe_job("rdma-idle", "warn", mpi_image.NAME, traffic.SLEEP)
        async with ranks.run_job(real_site, job, "volcano.sh/job-name=rdma-idle", 2, seconds=900) as running:
            (cut,) = (rank for rank in running if rank.node == node)
            pod = await real_site.plane.api.get("Pod", cut.pod, rails.NAMESPACE)
            message = pod["status"]["initContainerStatuses"][0]["state"]["terminated"]["message"]
            assert f"rail{last} {layout.DEVICES[last]}: port 1 is DOWN" in message, message
            async with traffic.keep_writing(resolving_nodes, *running, layout.DEVICES[:last]):
                output = await installed.verify_counters("rdma-idle", rails.NAMESPACE)
            assert output.startswith(f"RDMA on {last} of {layout.RAILS} rails: "), output
            assert f"rail{last} ({layout.DEVICES[last]}) of {cut.pod}" in output, output
