"""Sets up the demo: a simulated fabric in files, and both real servers on loopback.

Uses a temporary folder, and stops both servers at the end.
"""

import asyncio
import contextlib
import datetime as dt
import importlib.resources
import json
import pathlib
import ssl
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import aiohttp
import msgspec
import yaml

from certs import files, pki
from railwright.simulator import cluster_specs

START_SECONDS = 60.0  # limit for a server's start, which takes a second of CPU time: this machine may be busy
STOP_SECONDS = 10.0
LISTENING, OPS_LISTENING = "listening on ", "ops listening on "
_POLL_SECONDS = 0.02  # between two looks at a server
NETWORKS = ("lan2", "lan3", "lan4", "lan5")
SEED = 7  # of the random choice of busy nodes and of CPU use; any other seed works as well
BUSY_SHARE = 0.2
_DAY = dt.timedelta(days=1)

Tree = dict[str, Any]


class StartError(RuntimeError):
    """A server did not start; the message contains the end of its log."""


class Server(msgspec.Struct):
    """A started server. Its addresses are known once it listens."""

    process: asyncio.subprocess.Process
    log: pathlib.Path
    address: str = ""
    ops: str = ""


class Fixture(msgspec.Struct, frozen=True):
    """The fabric, the job and the running servers."""

    policy_text: str
    job: Tree
    nodes: Sequence[Tree]
    pods: Sequence[Tree]
    webhook: Server
    extender: Server
    trust: ssl.SSLContext
    folder: pathlib.Path
    objects: Sequence[Tree]


def read_data(name: str) -> str:
    """Return the text of a file that ships with the demo."""
    return importlib.resources.files("railwright.cli.demo").joinpath(name).read_text(encoding="utf-8")


@contextlib.asynccontextmanager
async def start(
    folder: pathlib.Path, options: Sequence[str] = (), report: Callable[[str], None] = lambda _step: None
) -> AsyncIterator[Fixture]:
    """Start both servers with additional `options` on a snapshot of the fabric; stop them at the end.

    `report` is called with each step.
    """
    shared = ["--policy", str(folder / "policy.yaml"), "--snapshot", str(folder / "snapshot.json"), *options]
    secured = ["--tls-cert", str(folder / "webhook.crt"), "--tls-key", str(folder / "webhook.key")]
    policy, job = read_data("policy.yaml"), read_data("job.yaml")
    (folder / "policy.yaml").write_text(policy, encoding="utf-8")
    report(f"building {cluster_specs.UNEVEN_64.size} simulated nodes")
    nodes = list(cluster_specs.build_nodes(cluster_specs.UNEVEN_64))
    pods = [
        *cluster_specs.build_busy_pods(nodes, BUSY_SHARE, cluster_specs.UNEVEN_64, seed=SEED),
        *cluster_specs.build_background_pods(nodes, seed=SEED),
    ]
    namespaces = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        for name in ("prod", "research", "monitoring")
    ]
    networks = [
        {
            "apiVersion": "k8s.cni.cncf.io/v1",
            "kind": "NetworkAttachmentDefinition",
            "metadata": {"name": f"rdma-net-ipam-{name}", "namespace": "prod"},
        }
        for name in NETWORKS
    ]
    items = [*nodes, *pods, *namespaces, *networks]
    write_snapshot(folder / "snapshot.json", items)
    async with contextlib.AsyncExitStack() as stack:
        servers: list[Server] = []
        stack.push_async_callback(_stop, servers)
        report("starting the extender")
        servers.append(await _start_process("extender", [*shared, "--plain-http"], folder))
        report("starting the webhook, with a certificate of a new CA")
        trust = _issue_certificates(folder)
        servers.append(await _start_process("webhook", [*shared, *secured], folder))
        report("waiting until both servers are ready")
        await asyncio.gather(*map(_connect, servers))
        await asyncio.gather(*(_wait_until(server, "/readyz", lambda status, _: status == 200) for server in servers))
        extender, webhook = servers
        yield Fixture(
            policy_text=policy,
            job=yaml.safe_load(job),
            nodes=nodes,
            pods=pods,
            webhook=webhook,
            extender=extender,
            trust=trust,
            folder=folder,
            objects=items,
        )


async def store(fixture: Fixture, pods: Sequence[Tree]) -> None:
    """Add pods to the cluster's snapshot, as an API server would, and wait until both servers have read them."""
    write_snapshot(fixture.folder / "snapshot.json", [*fixture.objects, *pods])

    def has_reloaded(_status: int, metrics: str) -> bool:
        return _read_metric(metrics, "railwright_snapshot_generation") >= 2

    servers = (fixture.webhook, fixture.extender)
    await asyncio.gather(*(_wait_until(server, "/metrics", has_reloaded) for server in servers))


def write_snapshot(path: pathlib.Path, items: Sequence[Tree]) -> None:
    """Write a snapshot file, which replaces an existing one at once."""
    content = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)}).encode()
    files.replace(path, content, 0o600)


def _issue_certificates(folder: pathlib.Path) -> ssl.SSLContext:
    now = dt.datetime.now(dt.UTC)
    ca = pki.issue_ca("railwright demo", now=now, lifetime=_DAY)
    pair = pki.issue_certificate(
        ca, common_name="webhook", hosts=["127.0.0.1"], usages={pki.Usage.SERVER}, now=now, lifetime=_DAY
    )
    files.write(folder, "webhook", pair)
    return ssl.create_default_context(cadata=ca.certificate_pem.decode())


async def _start_process(server: str, options: Sequence[str], folder: pathlib.Path) -> Server:
    loopback = ["--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0", "--drain-seconds", "0"]
    log = folder / f"{server}.log"
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(sys.executable, "-m", server, *loopback, *options, stderr=file)
    return Server(process, log)


async def _connect(started: Server) -> None:
    """Wait until the server listens. Raise StartError if it ends instead, or after START_SECONDS."""
    try:
        async with asyncio.timeout(START_SECONDS):
            while not started.address or not started.ops:
                has_ended = started.process.returncode is not None
                for line in started.log.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True):
                    if line.startswith(OPS_LISTENING) and line.endswith("\n"):
                        started.ops = line.removeprefix(OPS_LISTENING).strip()
                    elif line.startswith(LISTENING) and line.endswith("\n"):
                        started.address = line.removeprefix(LISTENING).strip()
                if has_ended:
                    raise _build_start_error(started, "did not start")
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        raise _build_start_error(started, f"does not listen after {START_SECONDS:g} s") from None


def _build_start_error(started: Server, problem: str) -> StartError:
    log = started.log.read_text(encoding="utf-8", errors="replace")
    return StartError(f"{started.log.stem} {problem}:\n{log[-2000:]}")


async def _stop(servers: Sequence[Server]) -> None:
    """Stop servers together; kill those that take longer than STOP_SECONDS."""
    for started in servers:
        with contextlib.suppress(ProcessLookupError):
            started.process.terminate()
    for started in servers:
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await started.process.wait()
        except TimeoutError:
            started.process.kill()
            await started.process.wait()


async def _wait_until(server: Server, path: str, is_met: Callable[[int, str], bool]) -> None:
    """Poll the server's operations port until `is_met`. Raise StartError with its last answer after START_SECONDS."""
    last = "no answer"
    async with aiohttp.ClientSession() as session:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START_SECONDS):
                while True:
                    with contextlib.suppress(aiohttp.ClientError):
                        async with session.get(f"http://{server.ops}{path}") as response:
                            last = await response.text()
                            if is_met(response.status, last):
                                return
                    await asyncio.sleep(_POLL_SECONDS)
    raise StartError(
        f"{server.log.stem} at {server.ops}{path}: not ready in {START_SECONDS:g} s, last answer: {last[-500:]}"
    )


def _read_metric(text: str, name: str) -> float:
    """Return the value of a metric without labels; 0 if it is absent."""
    for line in text.splitlines():
        if line.startswith(f"{name} "):
            return float(line.split()[1])
    return 0.0
