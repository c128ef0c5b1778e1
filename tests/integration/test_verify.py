"""`railwright verify` with the real API server, which asks a kubelet of the test's own for logs and commands."""

import contextlib
import itertools
import uuid

import api_stub
from aiohttp import web
from plane import manifests

from railwright.fabric.verification import counters

POLICY = manifests.policy({"roce": manifests.fabric(2, transport="roce")}, defaultFabric="roce")


def build_pod(name: str, job: str, node: str, hca: str) -> dict:
    env = [{"name": "NCCL_IB_HCA", "value": hca}] if hca else []
    labels = {"batch.kubernetes.io/job-name": job}
    return manifests.pod(name, "default", labels=labels, container={"env": env}, nodeName=node)


def write_log(pod: str, rank: int, devices: int) -> str:
    head = f"{pod}:7:8 [0] NCCL INFO"
    using = " ".join(f"[{at}]mlx5_{at}:1/RoCE" for at in range(devices))
    lines = [f"NET/IB : Using {using} [RO]; OOB eth0:10.0.0.1<0>", "Using network IB"]
    lines += [f"comm 0x1 rank {rank} nranks 2 cudaDev 0 busId 1000 - Init COMPLETE"]
    lines += [f"Channel 0{at}/0 : 0[0] -> 1[0] [send] via NET/IB/{at}/GDRDMA" for at in range(devices)]
    return "".join(f"{head} {line}\n" for line in lines)


@contextlib.asynccontextmanager
async def serve_kubelet(plane, logs: dict[str, str]):
    """Serve the logs by pod, and commands that read counters, as kubelet does. Yields the port."""
    words = itertools.count(0, 10**9)  # that a rail has sent, more at each reading

    async def answer(request: web.Request) -> web.Response:
        return web.Response(text=logs[request.match_info["pod"]])

    async def execute(request: web.Request) -> web.StreamResponse:
        assert request.query.getall("command") == list(counters.COMMAND)
        socket = web.WebSocketResponse(protocols=("v4.channel.k8s.io",))
        await socket.prepare(request)
        sent = next(words)
        lines = [f"mlx5_{rail}/ports/1 counters/port_{way}_data {sent}" for rail in range(2) for way in ("xmit", "rcv")]
        await socket.send_bytes(b"\x01" + "\n".join([*lines, f"uptime\n{sent}.0 1"]).encode())
        await socket.send_bytes(b'\x03{"metadata":{},"status":"Success"}')
        await socket.close()
        return socket

    name = f"kubelet-{uuid.uuid4().hex[:8]}"
    plane.certificates.server(name)
    routes = (
        web.get("/containerLogs/{namespace}/{pod}/{container}", answer),
        web.get("/exec/{namespace}/{pod}/{container}", execute),
    )
    async with api_stub.serve_routes(*routes, tls=plane.certificates.serving(name)) as port:
        yield port


async def test_verify_needs_rights_for_pods_and_logs_and_with_counters_also_for_exec(
    plane, namespace, nodes, site, person
):
    await site.install(POLICY, namespace)
    node = f"n-{uuid.uuid4().hex[:8]}"
    await nodes.make(node, kwok=False)
    inside = ("-n", namespace)
    half, whole = ["half-0", "half-1"], ["whole-0", "whole-1"]
    logs = {name: write_log(name, rank, 1) for rank, name in enumerate(half)}
    logs |= {name: write_log(name, rank, 2) for rank, name in enumerate(whole)}
    async with serve_kubelet(plane, logs) as port:
        address = [{"type": "InternalIP", "address": "127.0.0.1"}]
        endpoint = {"kubeletEndpoint": {"Port": port}}
        change = {"status": {"addresses": address, "daemonEndpoints": endpoint}}
        await plane.api.patch("Node", node, change, subresource="status")
        for name in (*half, *whole):
            job = name.partition("-")[0]
            hca = "=mlx5_0" if job == "half" else ""
            await plane.api.create(build_pod(name, job, node, hca), namespace=namespace)
            running = {"status": {"phase": "Running"}}
            await plane.api.patch("Pod", name, running, namespace, subresource="status")
        code, _, err = await person("verify", "job/half", *inside)
        assert (code, "pods is forbidden" in err) == (2, True), err
        await plane.kubectl("create", "role", "logs", "--verb=get,list", "--resource=pods,pods/log", *inside)
        await person.allow("logs", namespace, subresource="log", kind="Role")
        code, out, err = await person("verify", "job/half", *inside)
        assert (code, err) == (1, ""), out + err
        assert out.startswith("RDMA, but not on every rail: half-0 (rank 0), half-1 (rank 1): NCCL found 1 of 2 rails")
        code, out, err = await person("verify", "job/whole", *inside)
        assert code == 0, out + err
        assert out == "RDMA on every rail: RoCE, 2 of 2 rails, 2 ranks on 2 pods, GPUDirect\n"
        counting = ("verify", "job/whole", "--counters", "--seconds", "1", *inside)
        code, _, err = await person(*counting)
        assert (code, "403" in err) == (2, True), err
        await plane.kubectl("create", "role", "commands", "--verb=get,create", "--resource=pods/exec", *inside)
        binding = ("create", "rolebinding", "commands", "--role=commands", f"--user={person.user}")
        await plane.kubectl(*binding, *inside)
        await person.wait_permitted("create", "pods", namespace, subresource="exec")
        code, out, err = await person(*counting)
        assert (code, err) == (0, ""), out + err
        assert out.startswith("RDMA on 2 of 2 rails: ")
