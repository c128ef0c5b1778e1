"""`railwright verify job/NAME` as people run it, over real sockets: an API server with pods and their logs."""

import asyncio
import json

import api_stub
import processes
import pytest
import shell
from aiohttp import web

from railwright.cli import __main__ as command_line

RAILS = ("rail0", "rail1", "rail2", "rail3")


def build_pod(
    name: str, *, rails=RAILS, job: str = "llm", hca: str = "", is_own_list: bool = False, hostname: str = ""
):
    record = {"fabric": "roce", "role": "worker", "containers": ["train"], "rails": list(rails or ())}
    record |= {"kept": {"train": ["NCCL_IB_HCA"]}} if is_own_list else {}
    env = [{"name": "NCCL_IB_HCA", "value": hca}] if hca else []
    containers = [{"name": "train", "env": env}, *([{"name": "sidecar"}] if rails else [])]
    annotations = {"railwright.io/injection": json.dumps(record)} if rails else {}
    return {
        "metadata": {
            "name": name,
            "namespace": "prod",
            "uid": name,
            "labels": {"batch.kubernetes.io/job-name": job},
            "annotations": annotations,
        },
        "spec": {"hostname": hostname, "containers": containers},
        "status": {"phase": "Running"},
    }


def write_log(host: str, rank: int, devices: int) -> list[str]:
    using = " ".join(f"[{at}]mlx5_{at}:1/RoCE" for at in range(devices))
    head = f"{host}:7:8 [0] NCCL INFO"
    return [
        f"{head} NET/IB : Using {using} [RO]; OOB eth0:10.0.0.1<0>",
        f"{head} Using network IB",
        f"{head} comm 0x1 rank {rank} nranks 2 cudaDev 0 busId 1000 - Init COMPLETE",
        *(f"{head} Channel 0{at}/0 : 0[0] -> 1[0] [send] via NET/IB/{at}/GDRDMA" for at in range(devices)),
        "step 1 loss 3.2",
    ]


class Cluster:
    """Pods, and the lines of their logs. `gates` hold back the rest of a log until they are set."""

    def __init__(self) -> None:
        self.pods: list[dict] = []
        self.logs: dict[str, list[str]] = {}
        self.gates: dict[str, asyncio.Event] = {}
        self.waiting: dict[str, int] = {}  # requests that a container still waits to start for
        self.requests: list[str] = []
        self.forbidden = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        parts = request.path.strip("/").split("/")
        self.requests.append(f"{request.method} {'/'.join(parts[4:5] + parts[6:])}")
        if self.forbidden and self.forbidden in request.path:
            return web.json_response(api_stub.status(403, "pods/log is forbidden: User alice"), status=403)
        if parts[:4] != ["api", "v1", "namespaces", "prod"] or parts[4] != "pods":
            return web.json_response(api_stub.status(403, f"forbidden: {request.path}"), status=403)
        if parts[-1] == "pods":
            return web.json_response(api_stub.listing(*self.pods, version=1))
        if parts[-1] != "log":
            matches = [pod for pod in self.pods if pod["metadata"]["name"] == parts[5]]
            return web.json_response(matches[0] if matches else api_stub.status(404), status=200 if matches else 404)
        name = parts[5]
        assert request.query["container"] == "train"
        if self.waiting.get(name, 0) > 0:
            self.waiting[name] -= 1
            return web.json_response(api_stub.status(400, 'container "train" is waiting to start'), status=400)
        response = web.StreamResponse()
        await response.prepare(request)
        lines = self.logs[name]
        await response.write("".join(f"{line}\n" for line in lines[:2]).encode())
        if request.query.get("follow") and name in self.gates:
            await self.gates[name].wait()
        await response.write("".join(f"{line}\n" for line in lines[2:]).encode())
        return response


@pytest.fixture
def cluster():
    return Cluster()


@pytest.fixture
def verify(cluster, tmp_path, capsys):
    """`await verify("job/llm")`: the command on the cluster; the exit code, stdout and stderr."""

    async def call(*words: str) -> tuple[int, str, str]:
        async with api_stub.serve(cluster.answer) as port:
            given = ["verify", *words, "-n", "prod", "--kubeconfig", api_stub.kubeconfig(tmp_path, port)]
            code = await asyncio.to_thread(command_line.main, given)
        return code, *capsys.readouterr()

    return call


async def test_each_rail_has_a_verdict(cluster, verify):
    cluster.pods = [
        build_pod(f"llm-{at}-x", hca="=mlx5_0,mlx5_1", is_own_list=True, hostname=f"llm-{at}") for at in range(2)
    ]
    cluster.pods.append(build_pod("other-0", job="other"))
    cluster.logs = {f"llm-{at}-x": write_log(f"llm-{at}", at, 2) for at in range(2)}
    code, out, err = await verify("job/llm")
    assert (code, err) == (1, "")
    line, *rails = out.splitlines()
    assert line.startswith("RDMA, but not on every rail: llm-0-x (rank 0): NCCL found 2 of 4 rails")
    assert "with the pod's own NCCL_IB_HCA '=mlx5_0,mlx5_1': name the devices of all rails in it" in line
    assert rails == [
        "  mlx5_0:1: RDMA in 2 of 2 pods",
        "  mlx5_1:1: RDMA in 2 of 2 pods",
        f"  {', '.join(RAILS)}: unknown: the device names are not known; --fabric NAME reads them from the policy",
    ]
    # no more than the right to read pods and logs, and only of the job
    assert sorted(set(cluster.requests)) == ["GET pods", "GET pods/log"]
    assert cluster.requests.count("GET pods/log") == 2


async def test_every_rail_of_the_record_is_checked(cluster, verify):
    hca = "=" + ",".join(f"mlx5_{at}" for at in range(4))
    cluster.pods = [build_pod(f"llm-{at}-x", hca=hca) for at in range(2)]
    cluster.logs = {f"llm-{at}-x": write_log(f"llm-{at}-x", at, 4) for at in range(2)}
    for words in (("job", "llm"), ("gang/job/llm",), ("job/llm", "--follow")):
        code, out, _ = await verify(*words)
        assert code == 0
        line, *rails = out.splitlines()
        assert line.startswith("RDMA on every rail: RoCE, 4 of 4 rails, 2 ranks on 2 pods")
        assert rails[3].strip() == "rail3 (mlx5_3): RDMA in 2 of 2 pods"
    code, out, _ = await verify("job/llm", "-o", "json")
    assert [(rail["name"], rail["state"]) for rail in json.loads(out)["by_rail"]] == [(rail, "rdma") for rail in RAILS]


async def test_a_pod_without_a_record_has_unknown_rails(cluster, verify):
    cluster.pods = [build_pod(f"llm-{at}-x", rails=()) for at in range(2)]
    cluster.logs = {f"llm-{at}-x": write_log(f"llm-{at}-x", at, 4) for at in range(2)}
    code, out, _ = await verify("job/llm")
    assert code == 2
    assert out.startswith("cannot tell whether on every rail: RoCE on 4 rails")


async def test_a_job_is_followed_from_before_its_start(cluster, tmp_path):
    cluster.pods = [build_pod(f"llm-{at}-x") for at in range(2)]
    cluster.logs = {f"llm-{at}-x": write_log(f"llm-{at}-x", at, 4) for at in range(2)}
    cluster.gates = {"llm-1-x": asyncio.Event()}
    cluster.waiting = {"llm-0-x": 1}
    async with api_stub.serve(cluster.answer) as port:
        words = ("verify", "job/llm", "-n", "prod", "--follow", "--kubeconfig", api_stub.kubeconfig(tmp_path, port))
        process = await processes.start_command(*words)
        first = await asyncio.wait_for(process.stderr.readline(), shell.PATIENCE)
        assert first.decode().startswith("railwright: cannot tell: ")
        cluster.gates["llm-1-x"].set()
        code, out, _ = await processes.finish(process)
    assert code == 0
    assert out.startswith("RDMA on every rail: RoCE, 4 of 4 rails")


async def test_a_log_without_lines_of_nccl_is_not_called_empty(cluster, verify):
    cluster.pods = [build_pod(f"llm-{at}-x") for at in range(2)]
    cluster.logs = {"llm-0-x": ["loading", "step 1 loss 3.2"], "llm-1-x": []}
    for words in ((), ("--follow",)):
        code, out, _ = await verify("job/llm", *words)
        assert code == 2
        assert out.startswith("cannot tell: the logs have no NCCL line at INFO: run with NCCL_DEBUG=INFO")
    cluster.logs["llm-0-x"] = []
    code, out, _ = await verify("job/llm")
    assert code == 2
    assert out.startswith("cannot tell: the logs are empty: no container has printed anything")


async def test_a_pod_that_is_pending_is_said_to_be_so(cluster, verify):
    cluster.pods = [{**build_pod(f"llm-{at}-x"), "status": {"phase": "Pending"}} for at in range(2)]
    cluster.logs = {f"llm-{at}-x": [] for at in range(2)}  # as the API server answers for a pod without a node
    cluster.waiting = {"llm-1-x": 99}
    code, out, _ = await verify("pod/llm-0-x")
    assert (code, out) == (2, "cannot tell: llm-0-x is Pending: no container has started\n")
    code, out, _ = await verify("job/llm")
    assert (code, out) == (2, "cannot tell: llm-0-x, llm-1-x are Pending: no container has started\n")
    cluster.pods[0]["status"] = {"phase": "Running"}
    code, out, _ = await verify("pod/llm-0-x")
    assert (code, out) == (2, "cannot tell: the logs are empty: no container has printed anything\n")


async def test_logs_that_cannot_be_read_are_named(cluster, verify):
    cluster.pods = [build_pod(f"llm-{at}-x") for at in range(2)]
    cluster.logs = {"llm-0-x": write_log("llm-0-x", 0, 4)}
    cluster.waiting = {"llm-1-x": 99}
    code, out, err = await verify("job/llm")
    assert code == 2
    assert 'job/llm: llm-1-x container train: no log: container "train" is waiting to start' in err
    assert "rank 1 of 2 do not show their network" in out
    code, _, err = await verify("job/none")
    assert code == 2
    assert "job/none: no pod in namespace prod belongs to it" in err
    cluster.forbidden = "/log"
    code, _, err = await verify("pod/llm-0-x")
    assert code == 2
    assert "pods/log is forbidden" in err
