"""The demo's stage: a simulated fabric in files, and both real servers on loopback over it.

Starts and stops what the demo needs, in a folder of its own. Knows nothing of what is shown.
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

from certs import files, issue
from railwright.simulator import shapes

START_SECONDS = 20.0  # a server that has not answered by then never will
STOP_SECONDS = 10.0
LISTENING, OPS_LISTENING = "listening on ", "ops listening on "
_ANNOUNCED_PORTS = 2
NETWORKS = ("lan2", "lan3", "lan4", "lan5")
SEED = 7  # of who is busy and how much CPU is taken: any other seed makes another, equally good demo
BUSY_SHARE = 0.2
_DAY = dt.timedelta(days=1)

Tree = dict[str, Any]


class StageError(RuntimeError):
    """A server did not start; the message holds the end of its log."""


class Server(msgspec.Struct, frozen=True):
    """A running server and where it listens."""

    process: asyncio.subprocess.Process
    address: str
    ops: str
    log: pathlib.Path


class Stage(msgspec.Struct, frozen=True):
    """Everything the play needs."""

    policy_text: str
    job_text: str
    job: Tree
    nodes: Sequence[Tree]
    pods: Sequence[Tree]
    webhook: Server
    extender: Server
    trust: ssl.SSLContext
    folder: pathlib.Path
    objects: Sequence[Tree]


def data(name: str) -> str:
    """A file that ships with the demo."""
    return importlib.resources.files("railwright.cli.demo").joinpath(name).read_text(encoding="utf-8")


@contextlib.asynccontextmanager
async def opened(folder: pathlib.Path, options: Sequence[str] = ()) -> AsyncIterator[Stage]:
    """Both servers, with more `options`, over a snapshot of the fabric; stopped by process id whatever happened."""
    policy, job = data("policy.yaml"), data("job.yaml")
    nodes = list(shapes.build_nodes(shapes.UNEVEN_64))
    pods = [
        *shapes.build_busy_pods(nodes, BUSY_SHARE, shapes.UNEVEN_64, seed=SEED),
        *shapes.build_background_pods(nodes, seed=SEED),
    ]
    (folder / "policy.yaml").write_text(policy, encoding="utf-8")
    items = [*nodes, *pods, *_namespaces("prod", "research", "monitoring"), *map(_network, NETWORKS)]
    _write_snapshot(folder, items)
    trust = _certificates(folder)
    shared = ["--policy", str(folder / "policy.yaml"), "--snapshot", str(folder / "snapshot.json"), *options]
    secured = ["--tls-cert", str(folder / "webhook.crt"), "--tls-key", str(folder / "webhook.key")]
    async with contextlib.AsyncExitStack() as stack:
        webhook = await stack.enter_async_context(_running("webhook", [*shared, *secured], folder))
        extender = await stack.enter_async_context(_running("extender", [*shared, "--plain-http"], folder))
        await asyncio.gather(_ready(webhook), _ready(extender))
        yield Stage(
            policy_text=policy,
            job_text=job,
            job=yaml.safe_load(job),
            nodes=nodes,
            pods=pods,
            webhook=webhook,
            extender=extender,
            trust=trust,
            folder=folder,
            objects=items,
        )


async def store(stage: Stage, pods: Sequence[Tree]) -> None:
    """Puts more pods into the cluster's snapshot, as an API server would, and waits until both servers see them."""
    _write_snapshot(stage.folder, [*stage.objects, *pods])
    await asyncio.gather(*(_reread(server) for server in (stage.webhook, stage.extender)))


def _write_snapshot(folder: pathlib.Path, items: Sequence[Tree]) -> None:
    content = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)}).encode()
    files.replace(folder / "snapshot.json", content, 0o600)


def _namespaces(*names: str) -> list[Tree]:
    return [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in names]


def _network(name: str) -> Tree:
    return {
        "apiVersion": "k8s.cni.cncf.io/v1",
        "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": f"rdma-net-ipam-{name}", "namespace": "prod"},
    }


def _certificates(folder: pathlib.Path) -> ssl.SSLContext:
    now = dt.datetime.now(dt.UTC)
    authority = issue.issue_ca("railwright demo", now=now, lifetime=_DAY)
    leaf = issue.issue_certificate(
        authority, common_name="webhook", hosts=["127.0.0.1"], usages={issue.Usage.SERVER}, now=now, lifetime=_DAY
    )
    files.write(folder, "webhook", leaf)
    return ssl.create_default_context(cadata=authority.certificate_pem.decode())


@contextlib.asynccontextmanager
async def _running(server: str, options: Sequence[str], folder: pathlib.Path) -> AsyncIterator[Server]:
    loopback = ["--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0", "--drain-seconds", "0"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", server, *loopback, *options, stderr=asyncio.subprocess.PIPE
    )
    log = folder / f"{server}.log"
    assert process.stderr is not None  # noqa: S101 - asked for by PIPE above
    keeping: asyncio.Task[None] | None = None
    try:
        async with asyncio.timeout(START_SECONDS):
            found = await _addresses(process.stderr, log)
        keeping = asyncio.create_task(_keep(process.stderr, log))
        if len(found) < _ANNOUNCED_PORTS:
            raise StageError(f"{server} did not start:\n{log.read_text(encoding='utf-8')[-2000:]}")
        yield Server(process=process, address=found[LISTENING], ops=found[OPS_LISTENING], log=log)
    finally:
        await _stop(process)
        if keeping is not None:
            await keeping


async def _addresses(lines: asyncio.StreamReader, log: pathlib.Path) -> dict[str, str]:
    """Reads the log until both ports are announced or it ends."""
    found: dict[str, str] = {}
    while len(found) < _ANNOUNCED_PORTS and (line := await lines.readline()):
        _append(log, line)
        text = line.decode(errors="replace").strip()
        for prefix in (OPS_LISTENING, LISTENING):
            if text.startswith(prefix):
                found[prefix] = text.removeprefix(prefix)
                break
    return found


async def _keep(lines: asyncio.StreamReader, log: pathlib.Path) -> None:
    while line := await lines.readline():
        _append(log, line)


def _append(log: pathlib.Path, line: bytes) -> None:
    with log.open("ab") as file:
        file.write(line)


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


async def _ready(server: Server) -> None:
    """Waits until /readyz says yes."""
    await _until(server, "/readyz", lambda status, _: status == 200)


async def _reread(server: Server) -> None:
    """Waits until the snapshot has been read a second time."""
    await _until(server, "/metrics", lambda _, text: _metric(text, "railwright_snapshot_generation") >= 2)


async def _until(server: Server, path: str, holds: Callable[[int, str], bool]) -> None:
    """Asks the server's other port until the answer holds; raises StageError with its last answer otherwise."""
    last = "no answer"
    async with aiohttp.ClientSession() as session:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START_SECONDS):
                while True:
                    with contextlib.suppress(aiohttp.ClientError):
                        async with session.get(f"http://{server.ops}{path}") as response:
                            last = await response.text()
                            if holds(response.status, last):
                                return
                    await asyncio.sleep(0.05)  # between two looks at a condition, not instead of one
    raise StageError(f"{server.log.stem} at {server.ops}{path}: not in time, last answer: {last[-500:]}")


def _metric(text: str, name: str) -> float:
    """The value of a metric without labels; 0 where it is absent."""
    for line in text.splitlines():
        if line.startswith(f"{name} "):
            return float(line.split()[1])
    return 0.0
