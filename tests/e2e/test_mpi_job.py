"""Ranks that mpirun starts by ssh in the pods of a Volcano job: what reaches them, and where their bytes go."""

import pathlib

import pytest_asyncio
from plane import conditions, manifests
from realnode import layout, mpi_image, network, rails

MASTER, WORKER = "mpi-master-0", "mpi-worker-0"
RING = pathlib.Path(__file__).resolve().parents[1] / "data" / "e2e-ring.py"
MEGABYTE = 1 << 20


def describe_job() -> dict:
    mounts = [{"name": "ring", "mountPath": "/ring"}]
    container = {"image": mpi_image.NAME, "command": ["sh", "-c", mpi_image.SSHD], "volumeMounts": mounts}
    spec = {"terminationGracePeriodSeconds": 0, "volumes": [{"name": "ring", "configMap": {"name": "ring"}}]}
    pod = manifests.pod("unused", "launched", limits={"nvidia.com/gpu": 8}, container=container, **spec)
    return manifests.volcano_job("mpi", pod, {"master": 1, "worker": 1}, plugins={"ssh": [], "svc": []})


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def mpirun(installed, real_site, load_image):
    """Run a command in a rank on each of the two pods, started by mpirun in the master; returns the output."""
    await load_image(mpi_image.build)
    api = real_site.plane.api
    files = manifests.build("ConfigMap", "ring", data={"ring.py": RING.read_text()})
    await api.create(files, namespace=rails.NAMESPACE)
    await api.create(describe_job(), namespace=rails.NAMESPACE)
    pods = await conditions.running(api, rails.NAMESPACE, "volcano.sh/job-name=mpi", 2)
    assert {pod["spec"]["nodeName"] for pod in pods} == set(layout.NODES)

    async def run(*command: str) -> str:
        hosts = (await real_site.execute(rails.NAMESPACE, MASTER, "cat", "/etc/volcano/worker.host")).strip()
        parameters = {
            "plm_rsh_args": "-o StrictHostKeyChecking=no -o ConnectionAttempts=5",
            "btl": "tcp,self",
            "btl_tcp_if_include": "192.168.0.0/16",
            "oob_tcp_if_include": "eth0",
        }
        options = [word for name, value in parameters.items() for word in ("--mca", name, value)]
        start = ("orterun", "--allow-run-as-root", "-np", "2", "--host", f"{MASTER},{hosts}", *options)
        return await real_site.execute(rails.NAMESPACE, MASTER, *start, *command)

    yield run
    await api.delete(manifests.VOLCANO_JOB, "mpi", rails.NAMESPACE)
    await api.delete("ConfigMap", "ring", rails.NAMESPACE)


async def test_a_rank_that_ssh_starts_has_nccls_variables_in_its_file(mpirun):
    code = "echo $(hostname) ${NCCL_IB_HCA:-unset} $(grep -c ^NCCL_IB_HCA==mlx5_0,mlx5_1,mlx5_2,mlx5_3$ /etc/nccl.conf)"
    lines = sorted((await mpirun("sh", "-c", code)).splitlines())
    assert lines == [f"{MASTER} =mlx5_0,mlx5_1,mlx5_2,mlx5_3 1", f"{WORKER} unset 1"], "ssh passes no environment on"


async def test_bytes_go_over_all_rails_and_no_pod_network(real_site, mpirun):
    before = network.count_bytes(real_site.network)
    size = int((await mpirun("python3", "/ring/ring.py")).split()[-1])
    sent = {name: count - before[name] for name, count in network.count_bytes(real_site.network).items()}
    for rail in range(layout.RAILS):
        assert sent[network.name_bridge(rail)] > size / 8, "a fair part of the message and its return"
    assert sum(sent[network.name_bridge(rail)] for rail in range(layout.RAILS)) > 2 * size
    assert sent[layout.BRIDGE] < 16 * MEGABYTE, "mpirun's own messages, and the cluster's"
