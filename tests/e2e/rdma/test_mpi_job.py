"""An MPIJob whose ranks ssh starts, with Open MPI over UCX: bytes in both directions over the rails.

ssh passes no environment on, so the ranks read the file with the variables that railwright has found.
"""

import contextlib
import re
from collections.abc import AsyncIterator, Sequence

import pytest
import pytest_asyncio
from plane import manifests
from realnode import layout, mpi_image, rails, ranks, traffic

pytestmark = pytest.mark.timeout(1800)
SIZE, TIMES = 1 << 20, 20
UCX_RAILS = 2  # on which UCX sends one message, unless UCX_MAX_RNDV_RAILS says otherwise
SCRIPT = f"""
import ctypes

mpi = ctypes.CDLL("libmpi.so.40", ctypes.RTLD_GLOBAL)
assert mpi.MPI_Init(None, None) == 0
world, byte = (ctypes.byref(ctypes.c_char.in_dll(mpi, f"ompi_mpi_{{name}}")) for name in ("comm_world", "byte"))
number = ctypes.c_int()
mpi.MPI_Comm_rank(world, ctypes.byref(number))
rank, other = number.value, 1 - number.value
sent = ctypes.create_string_buffer(bytes([65 + rank]) * {SIZE}, {SIZE})
received = ctypes.create_string_buffer({SIZE})
for _ in range({TIMES}):
    ends = (other, 0, received, {SIZE}, byte, other, 0, world, None)
    assert mpi.MPI_Sendrecv(sent, {SIZE}, byte, *ends) == 0
assert received.raw == bytes([65 + other]) * {SIZE}
print("RANK", rank, "received all", flush=True)
mpi.MPI_Finalize()
"""
RANK = "set -a; . /run/railwright/rails.env; exec python3 /script/exchange.py"
OVER_UCX = (
    *("-mca", "oob_tcp_if_include", "eth0", "-mca", "pml", "ucx", "-mca", "btl", "self,vader"),
    *("-x", "UCX_UD_VERBS_ETH_DGID_CHECK=n"),  # for soft RoCE
)
OVER_TCP = ("-mca", "pml", "ob1", "-mca", "btl", "self,tcp")
# Without it, ssh to a worker that serves already is repeated until the other one does: TCP segments beside the rails.
SSHD_LISTENS = {"exec": {"command": ["grep", "-q", ":0016 .* 0A ", "/proc/net/tcp"]}, "periodSeconds": 10}


def describe_job(fabric: str, transport: Sequence[str]) -> dict:
    """Return pvrdma-mpi's job in the namespace of the rails, with two workers on virtual nodes."""
    job = rails.read_job("pvrdma-mpi")
    labels = {"railwright.io/fabric": fabric}
    job["metadata"] = {"name": f"exchange-{fabric}", "namespace": rails.NAMESPACE, "labels": labels}
    job["spec"].setdefault("runPolicy", {})["cleanPodPolicy"] = "None"  # the workers are looked at when all is done
    launcher, worker = (job["spec"]["mpiReplicaSpecs"][name] for name in ("Launcher", "Worker"))
    launch = ranks.build_launch(2, "node", *transport, "sh", "-c", RANK)
    ranks.simplify(launcher["template"], mpi_image.NAME, launch)
    ranks.simplify(worker["template"], mpi_image.NAME, ["sh", "-c", mpi_image.SSHD])
    launcher["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": layout.NODES[0]}
    job["spec"]["launcherCreationPolicy"] = "WaitForWorkersReady"
    worker["replicas"] = 2
    (container,) = worker["template"]["spec"]["containers"]
    container["resources"] = {"limits": {"nvidia.com/gpu": "8"}}
    container["volumeMounts"] = [{"name": "script", "mountPath": "/script"}]
    container["readinessProbe"] = SSHD_LISTENS
    worker["template"]["spec"]["volumes"] = [{"name": "script", "configMap": {"name": "script"}}]
    return job


@pytest_asyncio.fixture(loop_scope="session")
async def exchange(resolving_nodes, real_site, load_image):
    """Yield `async with exchange(fabric, transport) as workers`: a job's workers after its ranks exchanged data."""
    await load_image(mpi_image.build)
    plane = real_site.plane
    await plane.controllers.start("mpi-operator")
    await plane.api.create(
        manifests.build("ConfigMap", "script", data={"exchange.py": SCRIPT}), namespace=rails.NAMESPACE
    )

    @contextlib.asynccontextmanager
    async def run_exchange(fabric: str, transport: Sequence[str]) -> AsyncIterator[list[ranks.Rank]]:
        job, selector = describe_job(fabric, transport), "training.kubeflow.org/job-role=worker"
        async with ranks.run_job(real_site, job, selector, 2, seconds=900) as workers:
            assert {worker.node for worker in workers} == set(resolving_nodes)
            log = await ranks.wait_launcher_log(real_site, rails.NAMESPACE, seconds=600)
            assert sorted(re.findall(r"^RANK (\d) received all$", log, re.MULTILINE)) == ["0", "1"], log
            yield workers

    yield run_exchange
    await plane.api.delete("ConfigMap", "script", rails.NAMESPACE)


async def test_mpi_ranks_exchange_bytes_over_the_rails(resolving_nodes, exchange):
    before = await traffic.count_all_packets(resolving_nodes)
    async with exchange("checked", OVER_UCX) as workers:
        segments = [await traffic.count_segments(worker) for worker in workers]
    packets = 2 * SIZE * TIMES // traffic.MTU // UCX_RAILS  # of both directions
    await traffic.check_packets(resolving_nodes, before, dict.fromkeys(layout.DEVICES[:UCX_RAILS], packets * 9 // 10))
    assert max(segments) < traffic.SEGMENTS, "by ssh and Open MPI's daemons"


async def test_variables_that_explain_advises_keep_open_mpi_over_tcp_off_the_rails(exchange):
    async with exchange("off-rails", OVER_TCP) as workers:
        for worker in workers:
            sent = await traffic.count_bytes(worker)
            assert sent["eth0"] > SIZE * TIMES, sent
            assert max(sent[f"net{rail + 1}"] for rail in range(layout.RAILS)) < SIZE, sent
