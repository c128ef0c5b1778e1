"""`railwright verify job/NAME` with the real API server, which asks a kubelet of the test's own for the logs."""

import contextlib
import uuid

import pytest_asyncio
from aiohttp import web
from plane import tenants, waiting

POLICY = """
apiVersion: railwright.io/v1alpha1
kind: FabricPolicy
defaultFabric: roce
fabrics:
  roce:
    transport: roce
    rails:
    - {name: rail0, resource: nvidia.com/mlx5_0, device: mlx5_0}
    - {name: rail1, resource: nvidia.com/mlx5_1, device: mlx5_1}
"""


def build_pod(name: str, job: str, node: str, hca: str) -> dict:
    env = [{"name": "NCCL_IB_HCA", "value": hca}] if hca else []
    container = {"name": "c", "image": "i", "env": env, "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    metadata = {"name": name, "labels": {"railwright.io/fabric": "default", "batch.kubernetes.io/job-name": job}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"nodeName": node, "containers": [container]},
    }


def write_log(pod: str, rank: int, devices: int) -> str:
    head = f"{pod}:7:8 [0] NCCL INFO"
    using = " ".join(f"[{at}]mlx5_{at}:1/RoCE" for at in range(devices))
    lines = [f"NET/IB : Using {using} [RO]; OOB eth0:10.0.0.1<0>", "Using network IB"]
    lines += [f"comm 0x1 rank {rank} nranks 2 cudaDev 0 busId 1000 - Init COMPLETE"]
    lines += [f"Channel 0{at}/0 : 0[0] -> 1[0] [send] via NET/IB/{at}/GDRDMA" for at in range(devices)]
    return "".join(f"{head} {line}\n" for line in lines)


@contextlib.asynccontextmanager
async def serve_kubelet(plane, logs: dict[str, str]):
    """Serve the logs by pod as kubelet does. Yields the port."""

    async def answer(request: web.Request) -> web.Response:
        return web.Response(text=logs[request.match_info["pod"]])

    app = web.Application()
    app.add_routes([web.get("/containerLogs/{namespace}/{pod}/{container}", answer)])
    name = f"kubelet-{uuid.uuid4().hex[:8]}"
    plane.certificates.server(name)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=plane.certificates.serving(name)).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@pytest_asyncio.fixture(loop_scope="session")
async def viewer(plane, namespace, tmp_path):
    """Return a function that runs a command as a user who may only read pods and their logs in the namespace."""
    user = f"viewer-{uuid.uuid4().hex[:8]}"
    kubeconfig = plane.certificates.kubeconfig(user, plane.parts.server, user)
    inside = ("-n", namespace)

    async def run(*words: str) -> tuple[int, str, str]:
        return await tenants.run_command((*words, *inside), kubeconfig=kubeconfig, folder=tmp_path)

    async def allow() -> None:
        resources = "--resource=pods,pods/log"
        await plane.kubectl("create", "role", "logs", "--verb=get,list", resources, *inside)
        await plane.kubectl("create", "rolebinding", "logs", "--role=logs", f"--user={user}", *inside)

        async def is_allowed() -> bool:
            question = ("auth", "can-i", "get", "pods", "--subresource=log", f"--as={user}", *inside)
            return (await plane.kubectl(*question, check=False)).strip() == "yes"

        await waiting.wait(is_allowed, describe=f"the rights of {user}")

    run.allow = allow
    return run


async def test_verify_needs_only_pods_and_logs(plane, namespace, nodes, site, viewer):
    await site.policy(POLICY)
    await site.start_webhook()
    await site.register(namespace)
    node = f"n-{uuid.uuid4().hex[:8]}"
    await nodes.make(node, kwok=False)
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
        code, _, err = await viewer("verify", "job/half")
        assert (code, "pods is forbidden" in err) == (2, True), err
        await viewer.allow()
        code, out, err = await viewer("verify", "job/half")
        assert (code, err) == (1, ""), out + err
        assert out.startswith("RDMA, but not on every rail: half-0 (rank 0): NCCL found 1 of 2 rails")
        code, out, err = await viewer("verify", "job/whole", "--follow")
        assert code == 0, out + err
        line, *rails = out.splitlines()
        assert line.startswith("RDMA on every rail: RoCE, 2 of 2 rails, 2 ranks on 2 pods")
        assert [rail.strip() for rail in rails] == [
            "rail0 (mlx5_0): RDMA in 2 of 2 pods",
            "rail1 (mlx5_1): RDMA in 2 of 2 pods",
        ]
