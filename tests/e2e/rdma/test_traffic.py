"""RDMA traffic of injected pods: jobs with one label, on nodes whose kernel has soft RoCE devices."""

import json
import re

import pytest
from realnode import layout, pods, rails, ranks, rdma_image, traffic

pytestmark = pytest.mark.timeout(1800)
NODE = layout.VIRTUAL_NODES[0]


async def check_job(nodes, site, name: str, fabric: str, get_gid) -> None:
    """Run 360 Smart Cloud's job with a rank on each node, and write on each rail."""
    await site.plane.call_extender()
    job = rails.describe_job(name, fabric, rdma_image.NAME, traffic.SLEEP)
    async with ranks.run_job(site, job, f"volcano.sh/job-name={name}", 2, seconds=900) as (client, server):
        assert {client.node, server.node} == set(nodes)
        used = await traffic.write_on_each_rail(nodes, client, server, layout.SUBNETS, get_gid)
    assert not used[client] & used[server], "the index of a pod's GID differs by node"


@pytest.mark.main
async def test_a_pod_without_rail_resources_has_no_rdma_device(virtual_nodes, real_site, create):
    pod = pods.describe("no-resource", "roce", on=NODE, command=traffic.SLEEP, image=rdma_image.NAME, skip="devices")
    name = (await create(pod))["metadata"]["name"]
    await pods.wait_ready(real_site.plane.api, rails.NAMESPACE, name, seconds=900)
    output = await ranks.Rank(real_site, rails.NAMESPACE, name).run("sh", "-c", "ib_write_bw -d mlx5_0 2>&1 || true")
    assert "Unable to find the Infiniband/RoCE device" in output, output


@pytest.mark.main
async def test_rdma_writes_on_a_rail_use_only_the_device_of_that_rail(virtual_nodes, real_site):
    await check_job(virtual_nodes, real_site, "rdma-traffic", "roce", traffic.find_gid)


async def test_rdma_writes_with_gid_indexes_found_by_preflight_use_each_rail(resolving_nodes, real_site):
    await check_job(resolving_nodes, real_site, "rdma-found", "checked", traffic.read_gid)


async def test_pods_that_share_a_node_write_on_each_rail(virtual_nodes, real_site):
    await real_site.plane.call_extender()
    job = rails.read_job("vivo-roce")
    (task,) = job["spec"]["tasks"]
    job["metadata"]["labels"]["railwright.io/fabric"] = "vivo"
    task["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": NODE}
    ranks.simplify(task["template"], rdma_image.NAME, traffic.SLEEP)
    namespace = job["metadata"]["namespace"]
    await real_site.plane.make_namespace(namespace)
    try:
        async with ranks.run_job(real_site, job, "volcano.sh/job-name=llm", 2, seconds=900) as (client, server):
            subnets = [f"172.16.{rail}" for rail in range(layout.RAILS)]
            await traffic.write_on_each_rail({NODE: virtual_nodes[NODE]}, client, server, subnets)
    finally:
        await real_site.plane.remove_namespace(namespace)


async def wait_preflight(site, name: str, phase: str) -> str:
    """Wait until a pod on a virtual node has a phase, and return its preflight's message."""
    return await pods.wait_preflight(site.plane.api, rails.NAMESPACE, name, phase, seconds=900)


async def run_on(site, create, pod: dict) -> tuple[ranks.Rank, str]:
    """Create a pod, wait until it runs, and return it with its preflight's message."""
    name = (await create(pod))["metadata"]["name"]
    message = await wait_preflight(site, name, "Running")
    print(f"{name}: {message}")
    return ranks.Rank(site, rails.NAMESPACE, name), message


async def test_preflight_stops_a_pod_whose_rail_has_no_link(real_site, resolving_nodes, create):
    async with traffic.cut(resolving_nodes[NODE], 2):
        name = (await create(pods.describe("no-link", "checked", on=NODE, restartPolicy="Never")))["metadata"]["name"]
        message = await wait_preflight(real_site, name, "Failed")
    assert "rail2 mlx5_2: port 1 is DOWN" in message, message
    assert set(re.findall(r"rail\d mlx5_\d: ", message)) == {"rail2 mlx5_2: "}, message


async def test_preflight_stops_a_pod_without_the_networks_of_its_rails(real_site, resolving_nodes, create):
    pod = pods.describe("no-network", "checked", on=NODE, restartPolicy="Never", skip="networks")
    message = await wait_preflight(real_site, (await create(pod))["metadata"]["name"], "Failed")
    for rail in range(layout.RAILS):
        assert f"rail{rail} mlx5_{rail}: no RoCE v2 GID of an address of the pod" in message, message


async def test_a_pod_without_ipc_lock_gets_a_warning_and_cannot_register_memory(real_site, resolving_nodes, create):
    pod = pods.describe("no-lock", "checked", on=NODE, command=traffic.SLEEP, image=rdma_image.NAME, skip="security")
    rank, message = await run_on(real_site, create, pod)
    assert re.search(r"warning: memlock: is limited to \d+ bytes: grant IPC_LOCK", message), message
    large = ("-s", "16777216")
    await traffic.start(rank, traffic.write("mlx5_0", 0, "", *large))
    await traffic.wait_listening(rank, traffic.PORT)
    output = await rank.run("sh", "-c", f"{traffic.write('mlx5_0', 0, 'localhost', *large)} || true")
    assert re.search("Couldn't (allocate|register) (memory region|MR)|ibv_reg_mr", output), output


async def test_wrong_nccl_variables_in_a_pod_are_reported_by_lint_and_preflight(
    real_site, installed, resolving_nodes, create, tmp_path
):
    variables = {"NCCL_IB_HCA": "mlx5_bond", "NCCL_IB_GID_INDEX": "0"}
    pod = pods.describe("wrong", "stated", on=NODE, command=traffic.SLEEP, image=rdma_image.NAME, env=variables)
    manifest = tmp_path / "pod.json"
    manifest.write_text(json.dumps(pod))
    findings = await installed.run("lint", str(manifest))
    assert "N15 NCCL_IB_HCA=mlx5_bond: selects none of the rails' devices mlx5_0, mlx5_1, mlx5_2, mlx5_3" in findings, (
        findings
    )
    assert "N21 NCCL_IB_GID_INDEX=0" in findings, findings
    rank, message = await run_on(real_site, create, pod)
    assert "NCCL_IB_HCA: mlx5_bond selects no device" in message, message
    assert "NCCL_IB_GID_INDEX=0 selects RoCE v2" in message, message
    output = await rank.run("sh", "-c", "ib_write_bw -d $NCCL_IB_HCA 2>&1 || true")
    assert "IB device mlx5_bond not found" in output, output
