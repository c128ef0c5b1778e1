"""The MPIJob of pvrdma-mpi on real nodes: the node's /dev/infiniband, and ranks that ssh starts."""

import re

import pytest_asyncio
from realnode import layout, mpi_image, rails, ranks

from railwright.fabric import names

LOOK = (
    "echo RANK $(hostname) ${NCCL_IB_DISABLE:-unset} $(ls /dev/infiniband | tr '\\n' ,) "
    "$(sed -n 's/^CapEff:\\t//p' /proc/self/status) ; "
    'sed "s/^/FILE $(hostname) /" /etc/nccl.conf'
)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def launcher_log(installed, real_site, load_image):
    """Yield the output of the ended launcher of an MPIJob, whose ranks print devices and environment."""
    await load_image(mpi_image.build)
    plane = real_site.plane
    await plane.controllers.start("mpi-operator")
    job = rails.read_job("pvrdma-mpi")
    job["metadata"]["labels"]["railwright.io/fabric"] = "pvrdma-derived"
    replicas = job["spec"]["mpiReplicaSpecs"]
    launch = ranks.build_launch(4, "slot", "sh", "-c", LOOK)
    ranks.simplify(replicas["Launcher"]["template"], mpi_image.NAME, launch)
    worker = replicas["Worker"]["template"]
    ranks.simplify(worker, mpi_image.NAME, ["sh", "-c", mpi_image.SSHD])
    # Preflight would stop the workers: the /sys of the test's node has no RDMA device.
    worker.setdefault("metadata", {}).setdefault("annotations", {})[names.SKIP] = "preflight"
    namespace = job["metadata"]["namespace"]
    await plane.make_namespace(namespace)
    await plane.api.create(job)
    try:
        yield await ranks.wait_launcher_log(real_site, namespace, seconds=120)
    finally:
        await plane.remove_namespace(namespace)


async def test_ranks_started_by_mpirun_have_devices_and_nccl_conf(real_site, launcher_log):
    workers = [f"tensorflow-benchmarks-worker-{index}" for index in range(4)]
    lines = re.findall(r"^RANK (\S+) (\S+) (\S+) (\S+)$", launcher_log, re.MULTILINE)
    assert sorted(host for host, *_ in lines) == workers
    devices = await real_site.nodes[layout.NODES[0]].run("ls", "/dev/infiniband")
    assert {names for _, _, names, _ in lines} == {"".join(f"{name}," for name in devices.split())}
    assert {variable for _, variable, *_ in lines} == {"unset"}, "ssh passes no environment on"
    assert all(int(capabilities, 16) >> ranks.IPC_LOCK & 1 for *_, capabilities in lines), lines
    for worker in workers:
        settings = dict(re.findall(rf"^FILE {worker} (\w+)=(\S*)$", launcher_log, re.MULTILINE))
        assert settings == {
            "NCCL_DEBUG": "INFO",
            "NCCL_IB_PCI_RELAXED_ORDERING": "0",
            "NCCL_NET_GDR_LEVEL": "LOC",
            "NCCL_SOCKET_IFNAME": "=eth0",
        }
