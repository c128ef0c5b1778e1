"""`railwright verify job/NAME` over real sockets: an API server with pods and their logs."""

import asyncio
import json

import api_stub
import pytest
from aiohttp import web

from railwright.cli import __main__ as command_line

RAILS = ("rail0", "rail1", "rail2", "rail3")


def build_pod(
    name: str,
    *,
    rails=RAILS,
    job: str = "llm",
    label: str = "batch.kubernetes.io/job-name",
    preflight: bool = False,
    hostname: str = "",
):
    record = {"fabric": "roce", "role": "worker", "containers": ["train"], "rails": list(rails or ())}
    containers = [{"name": "train"}, *([{"name": "sidecar"}] if rails else [])]
    annotations = {"railwright.io/injection": json.dumps(record)} if rails else {}
    preflights = [{"name": "railwright-preflight"}] if preflight else []
    metadata = {"name": name, "namespace": "prod", "uid": name, "labels": {label: job}, "annotations": annotations}
    spec = {"hostname": hostname, "containers": containers, "initContainers": preflights}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Running"}}


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
    """Pods, and the lines of their logs."""

    def __init__(self) -> None:
        self.pods: list[dict] = []
        self.logs: dict[str, list[str]] = {}
        self.waiting: set[str] = set()  # pods whose containers have not started
        self.requests: list[str] = []
        self.forbidden = ""
        self.preflights: dict[str, str] = {}  # their logs
        self.counters: dict[str, list[str]] = {}  # what the command prints in a pod, one time after the other
        self.failures: dict[str, str] = {}  # why it cannot run

    async def execute(self, request: web.Request, name: str) -> web.StreamResponse:
        """Run a command in a container, as the API server does by the protocol of `kubectl exec`."""
        assert request.query["container"] == "train"
        assert request.query.getall("command")[:2] == ["sh", "-c"]
        assert request.headers["Authorization"] == "Bearer s3cret"
        socket = web.WebSocketResponse(protocols=("v4.channel.k8s.io",))
        await socket.prepare(request)
        if name in self.failures:
            outcome = api_stub.status(500, self.failures[name], "InternalError")
        else:
            text = self.counters[name].pop(0)
            for part in (text[:40], text[40:]):
                await socket.send_bytes(b"\x01" + part.encode())
            await socket.send_bytes(b"\x02cat: no such file\n")
            outcome = {"kind": "Status", "metadata": {}, "status": "Success"}
        await socket.send_bytes(b"\x03" + json.dumps(outcome).encode())
        await socket.close()
        return socket

    async def answer(self, request: web.Request) -> web.StreamResponse:
        parts = request.path.strip("/").split("/")
        self.requests.append(f"{request.method} {'/'.join(parts[4:5] + parts[6:])}")
        if self.forbidden and self.forbidden in request.path:
            return api_stub.refuse(403, "Forbidden", "pods/log is forbidden: User alice")
        if parts[:4] != ["api", "v1", "namespaces", "prod"] or parts[4] != "pods":
            return api_stub.refuse(403, "Forbidden", f"forbidden: {request.path}")
        if parts[-1] == "pods":
            return web.json_response(api_stub.listing(*self.pods, version=1))
        if parts[-1] == "exec":
            return await self.execute(request, parts[5])
        if parts[-1] != "log":
            return web.json_response(next(pod for pod in self.pods if pod["metadata"]["name"] == parts[5]))
        name = parts[5]
        if request.query["container"] == "railwright-preflight":
            return web.Response(text=self.preflights[name])
        assert request.query["container"] == "train"
        if name in self.waiting:
            return api_stub.refuse(400, "BadRequest", 'container "train" is waiting to start')
        return web.Response(text="".join(f"{line}\n" for line in self.logs[name]))


@pytest.fixture
def cluster():
    return Cluster()


@pytest.fixture
def verify(cluster, tmp_path, capsys):
    """Return `await verify("job/llm")`: run the command on the cluster; return exit code, stdout and stderr."""

    async def call(*words: str) -> tuple[int, str, str]:
        async with api_stub.serve(cluster.answer) as port:
            given = ["verify", *words, "-n", "prod", "--kubeconfig", api_stub.kubeconfig(tmp_path, port)]
            code = await asyncio.to_thread(command_line.main, given)
        return code, *capsys.readouterr()

    return call


@pytest.mark.parametrize(
    ("words", "label"),
    [
        (("job/llm",), "batch.kubernetes.io/job-name"),
        (("jobset/llm",), "jobset.sigs.k8s.io/jobset-name"),
        (("PyTorchJob", "llm"), "training.kubeflow.org/job-name"),
    ],
)
async def test_a_rail_that_the_preflight_found_and_nccl_did_not_use_is_named(cluster, verify, words, label):
    cluster.pods = [build_pod(f"llm-{at}-x", preflight=True, hostname=f"llm-{at}", label=label) for at in range(2)]
    cluster.pods.append(build_pod("other-0", job="other"))
    cluster.logs = {f"llm-{at}-x": write_log(f"llm-{at}", at, 2) for at in range(2)}
    found = {"rails": [{"name": rail, "device": f"mlx5_{at}"} for at, rail in enumerate(RAILS)]}
    cluster.preflights = {pod: f"railwright preflight 4 rails ready\n{json.dumps(found)}\n" for pod in cluster.logs}
    code, out, err = await verify(*words)
    assert (code, err) == (1, "")
    assert out == (
        "RDMA, but not on every rail: llm-0-x (rank 0), llm-1-x (rank 1): NCCL found 2 of 4 rails, missing rail2 "
        "(mlx5_2), rail3 (mlx5_3)\n"
    )
    # no more than the right to read pods and logs, and only of the job
    assert sorted(set(cluster.requests)) == ["GET pods", "GET pods/log"]
    assert cluster.requests.count("GET pods/log") == 4
    cluster.preflights = dict.fromkeys(cluster.logs, "railwright preflight warning: of an image that prints no rails")
    code, out, _ = await verify("job/llm")
    assert (code, "NCCL found 2 of 4 rails" in out, "missing" in out) == (1, True, False)


async def test_the_injection_record_tells_how_many_rails_each_pod_should_use(cluster, verify):
    cluster.pods = [build_pod(f"llm-{at}-x") for at in range(2)]
    cluster.logs = {f"llm-{at}-x": write_log(f"llm-{at}-x", at, 4) for at in range(2)}
    for words in (("job", "llm"), ("gang/job/llm",)):
        code, out, _ = await verify(*words)
        assert code == 0
        assert out == "RDMA on every rail: RoCE, 4 of 4 rails, 2 ranks on 2 pods, GPUDirect\n"
    code, out, _ = await verify("job/llm", "-o", "json")
    assert [(pod["name"], pod["rails"]) for pod in json.loads(out)["pods"]] == [("llm-0-x", 4), ("llm-1-x", 4)]
    code, out, _ = await verify("job/llm", "--rails", "5")
    assert (code, "NCCL found 4 of 5 rails" in out) == (1, True)


async def test_verify_cannot_tell_whether_a_pod_without_a_record_uses_every_rail(cluster, verify):
    cluster.pods = [build_pod(f"llm-{at}-x", rails=()) for at in range(2)]
    cluster.logs = {f"llm-{at}-x": write_log(f"llm-{at}-x", at, 4) for at in range(2)}
    code, out, _ = await verify("job/llm")
    assert code == 2
    assert out.startswith("cannot tell whether every rail is used: RoCE, 4 rails, ")


async def test_a_pending_pod_is_reported_as_pending(cluster, verify):
    cluster.pods = [{**build_pod(f"llm-{at}-x"), "status": {"phase": "Pending"}} for at in range(2)]
    cluster.logs = {f"llm-{at}-x": [] for at in range(2)}  # as the API server answers for a pod without a node
    cluster.waiting = {"llm-1-x"}
    code, out, _ = await verify("pod/llm-0-x")
    assert (code, out) == (2, "cannot tell: llm-0-x: Pending: no container has started\n")
    code, out, _ = await verify("job/llm")
    assert (code, out) == (2, "cannot tell: llm-0-x, llm-1-x: Pending: no container has started\n")
    code, out, err = await verify("job/llm", "--counters")
    assert (code, out, err) == (2, "cannot tell: llm-0-x, llm-1-x: Pending: no container has started\n", "")
    cluster.pods[0]["status"] = {"phase": "Running"}
    code, out, _ = await verify("pod/llm-0-x")
    assert (code, out) == (2, "cannot tell: the logs are empty: no container has printed anything\n")


FAILURE = "railwright preflight failed: rail0 mlx5_9: device not found (found: mlx5_0)"
PHASES = ("Failed", "Pending")
ENDED = {"terminated": {"exitCode": 1, "reason": "Error", "message": f"{FAILURE}\n"}}


@pytest.mark.parametrize(  # the phase by restartPolicy
    ("phase", "option"),
    [("Failed", "-o=text"), ("Pending", "-o=text"), *((p, "--counters") for p in PHASES)],
)
async def test_verify_prints_the_message_of_a_failed_preflight(cluster, verify, phase, option):
    cluster.pods = [build_pod(f"llm-{at}-x") for at in range(2)]
    waiting = {"waiting": {"reason": "PodInitializing"}}
    states = {"state": ENDED} if phase == "Failed" else {"state": waiting, "lastState": ENDED}
    for pod in cluster.pods:
        status = {"name": "railwright-preflight", **states}
        pod["status"] = {"phase": phase, "initContainerStatuses": [status]}
    cluster.waiting = {"llm-0-x", "llm-1-x"}
    code, out, err = await verify("job/llm", option)
    assert (code, out, err) == (1, f"did not run: llm-0-x, llm-1-x: {FAILURE}\n", "")


async def test_a_replaced_pod_with_a_failed_preflight_is_ignored(cluster, verify):
    cluster.pods = [build_pod(f"llm-{at}-x") for at in range(2)]
    cluster.logs = {f"llm-{at}-x": write_log(f"llm-{at}-x", at, 4) for at in range(2)}
    status = {"name": "railwright-preflight", "state": ENDED}
    cluster.pods.append(build_pod("llm-0-old") | {"status": {"phase": "Failed", "initContainerStatuses": [status]}})
    cluster.waiting = {"llm-0-old"}
    code, out, _ = await verify("job/llm")
    assert (code, out) == (0, "RDMA on every rail: RoCE, 4 of 4 rails, 2 ranks on 2 pods, GPUDirect\n")


@pytest.mark.parametrize(
    ("name", "index", "code"),
    [("llm-0-old", "0", 2), ("llm-1-old", "1", 1), ("llm-driver-0-0-old", "0", 1)],
    ids=["replaced", "other index", "of another Job of the JobSet"],
)
async def test_an_ended_pod_counts_unless_its_job_has_replaced_it(cluster, verify, name, index, code):
    status = {"name": "railwright-preflight", "state": ENDED}
    old = build_pod(name) | {"status": {"phase": "Failed", "initContainerStatuses": [status]}}
    cluster.pods, cluster.logs, cluster.waiting = [build_pod("llm-0-x"), old], {"llm-0-x": []}, {name}
    for pod, own in zip(cluster.pods, ("0", index), strict=True):
        pod["metadata"]["labels"] = pod["metadata"].get("labels", {}) | {
            "batch.kubernetes.io/job-completion-index": own
        }
    found, out, _ = await verify("job/llm")
    assert (found, out.startswith("did not run: ")) == (code, code == 1), out


async def test_verify_names_a_pod_that_waits_in_the_place_of_one_whose_preflight_failed(cluster, verify):
    index = "batch.kubernetes.io/job-completion-index"
    stopped = {
        "phase": "Failed",
        "initContainerStatuses": [{"name": "railwright-preflight", "state": ENDED}],
    }
    for name, own, status in (
        ("llm-0-x", "0", {"phase": "Running"}),
        ("llm-1-old", "1", stopped),
        ("llm-1-new", "1", {"phase": "Pending"}),
    ):
        pod = build_pod(name) | {"status": status}
        pod["metadata"]["labels"][index] = own
        cluster.pods.append(pod)
    cluster.waiting = {"llm-1-old", "llm-1-new"}
    # without NCCL's line about the communicator, the number of ranks is not known
    cluster.logs = {"llm-0-x": [line for line in write_log("llm-0-x", 0, 4) if "nranks" not in line]}
    code, out, _ = await verify("job/llm")
    assert (code, out) == (2, "cannot tell: llm-1-new: Pending: no container has started\n")


async def test_a_pending_pod_is_the_cause_when_the_logs_of_the_other_pods_are_inconclusive(cluster, verify):
    cluster.pods = [build_pod("llm-0-x"), build_pod("llm-1-x") | {"status": {"phase": "Pending"}}]
    cluster.waiting = {"llm-1-x"}
    for lines in (write_log("llm-0-x", 0, 4), ["training starts"]):  # with ranks that no log shows; without NCCL
        cluster.logs = {"llm-0-x": lines}
        code, out, _ = await verify("job/llm")
        assert (code, out) == (2, "cannot tell: llm-1-x: Pending: no container has started\n")


async def test_logs_that_cannot_be_read_are_named(cluster, verify):
    cluster.pods = [build_pod(f"llm-{at}-x") for at in range(2)]
    cluster.logs = {"llm-0-x": write_log("llm-0-x", 0, 4)}
    cluster.waiting = {"llm-1-x"}
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


def write_counters(uptime: int, *sent: int) -> str:
    """Return the command's output for a rank that has sent these words over its rails."""
    found = {"rails": [{"name": f"rail{at}", "device": f"mlx5_{at}", "port": 1, "pci": "p"} for at in range(len(sent))]}
    ports = [
        f"mlx5_{at}/ports/1 counters/port_{way}_data {value}"
        for at, value in enumerate(sent)
        for way in ("xmit", "rcv")
    ]
    return "\n".join([*ports, "uptime", f"{uptime}.5 3.1", "net", "eth0: 9 " + "0 " * 15, "rails", json.dumps(found)])


async def test_counters_show_which_rail_of_which_pod_is_idle(cluster, verify):
    cluster.pods = [build_pod(f"llm-{at}-x") for at in range(2)]
    cluster.pods.append(build_pod("llm-launcher", rails=()))
    words = ("job/llm", "--counters", "--seconds", "1")
    busy = 10**9 // 8
    cluster.counters = {f"llm-{at}-x": [write_counters(5, 0, 0), write_counters(6, busy, busy)] for at in range(2)}
    code, out, err = await verify(*words)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "RDMA on 2 of 2 rails: 4.0 GB in 1 s by 2 pods, 0 B over TCP",
        "  rail0: 2.0 GB",
        "  rail1: 2.0 GB",
    ]
    assert sorted(cluster.requests) == ["GET pods", *["GET pods/exec"] * 4]
    cluster.counters = {f"llm-{at}-x": [write_counters(5, 0, 0), write_counters(6, busy, at)] for at in range(2)}
    code, out, _ = await verify(*words)
    assert code == 1
    assert out.splitlines()[0].endswith("; idle: rail1 (mlx5_1) of llm-0-x, rail1 (mlx5_1) of llm-1-x")
    assert out.splitlines()[2] == "  rail1: 8 B; idle in llm-0-x, llm-1-x"
    cluster.counters = {f"llm-{at}-x": [write_counters(5, 0, 0), write_counters(6, busy, busy)] for at in range(2)}
    row = json.loads((await verify(*words, "-o", "json"))[1])["rails"][1]
    assert (row["pod"], row["rail"], row["sent"]) == ("llm-0-x", "rail1", busy * 4)


async def test_unreadable_counters_are_reported_with_their_cause(cluster, verify):
    cluster.pods = [build_pod(f"llm-{at}-x") for at in range(2)]
    cluster.counters = {"llm-0-x": [write_counters(5, 0), write_counters(6, 10**9)]}
    cluster.failures = {"llm-1-x": 'exec: "sh": executable file not found in $PATH'}
    code, out, err = await verify("job/llm", "--counters", "--seconds", "1")
    assert (code, out.splitlines()[0].endswith("; not read: llm-1-x")) == (2, True)
    assert 'llm-1-x container train: cannot read its counters: exec: "sh": executable file not found' in err
    cluster.forbidden = "/exec"
    code, out, err = await verify("job/llm", "--counters", "--seconds", "1")
    assert (code, out, "403" in err) == (2, "", True)
    assert (await verify("job/llm", "--counters", "--seconds", "0"))[0] == 2
