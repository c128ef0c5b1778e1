"""Ranks that mpirun starts by ssh in the pods of a Volcano job: what reaches them, and where their bytes go."""

import asyncio
import pathlib

import debian
import pytest
import pytest_asyncio
from plane import jobs
from realnode import layout, mpi_image, network, rails

MASTER, WORKER = "mpi-master-0", "mpi-worker-0"
RING = pathlib.Path(__file__).resolve().parents[1] / "data" / "node-ring.py"
MEGABYTE = 1 << 20


def describe_task(name: str) -> dict:
    container = {
        "name": "mpi",
        "image": mpi_image.NAME,
        "command": ["sh", "-c", mpi_image.SSHD],
        "resources": {"limits": {"nvidia.com/gpu": "8"}},
        "volumeMounts": [{"name": "ring", "mountPath": "/ring"}],
    }
    volumes = [{"name": "ring", "configMap": {"name": "ring"}}]
    spec = {"terminationGracePeriodSeconds": 0, "containers": [container], "volumes": volumes}
    template = {"metadata": {"labels": {"railwright.io/fabric": "launched"}}, "spec": spec}
    return {"name": name, "replicas": 1, "template": template}


def describe_job() -> dict:
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "mpi", "namespace": rails.NAMESPACE},
        "spec": {
            "minAvailable": 2,
            "schedulerName": "volcano",
            "queue": "default",
            "plugins": {"ssh": [], "svc": []},
            "tasks": [describe_task("master"), describe_task("worker")],
        },
    }


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def mpirun(installed, real_site):
    """Run a command in a rank on each of the two pods, started by mpirun in the master; returns the output."""
    try:
        image = await asyncio.to_thread(mpi_image.build)
    except debian.UnavailableError as error:
        pytest.skip(str(error).splitlines()[0])
    await real_site.load(image)
    api = real_site.plane.api
    files = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "ring"},
        "data": {"ring.py": RING.read_text()},
    }
    await api.create(files, namespace=rails.NAMESPACE)
    await api.create(describe_job())
    pods = await jobs.pods(api, rails.NAMESPACE, "volcano.sh/job-name=mpi", 2)
    assert {pod["spec"]["nodeName"] for pod in pods} == set(layout.NODES)

    async def run(*command: str) -> str:
        hosts = (await real_site.execute(rails.NAMESPACE, MASTER, "cat", "/etc/volcano/worker.host")).strip()
        options = (
            "--host",
            f"{MASTER},{hosts}",
            "--mca",
            "plm_rsh_args",
            "-o StrictHostKeyChecking=no -o ConnectionAttempts=5",
        )
        wires = (
            "--mca",
            "btl",
            "tcp,self",
            "--mca",
            "btl_tcp_if_include",
            "192.168.0.0/16",
            "--mca",
            "oob_tcp_if_include",
            "eth0",
        )
        arguments = ("orterun", "--allow-run-as-root", "-np", "2", *options, *wires, *command)
        return await real_site.execute(rails.NAMESPACE, MASTER, *arguments)

    yield run
    await api.delete("batch.volcano.sh/v1alpha1/Job", "mpi", rails.NAMESPACE)
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
