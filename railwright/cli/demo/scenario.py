"""The demo: a simulated fabric in files, both real servers on loopback, and the steps of a job.

The webhook admits the job's pods, and the extender places the gang by Volcano's extender protocol: every answer comes
from the running servers over HTTP. Volcano is modelled.
"""

import argparse
import asyncio
import base64
import contextlib
import importlib.resources
import json
import pathlib
import random
import re
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import aiohttp
import jsonpatch
import msgspec
import yaml

from railwright.cli import overview_tables
from railwright.cli.demo import objects
from railwright.cli.explanation import templates
from railwright.fabric import text
from railwright.fabric.overview import overview_types
from railwright.fabric.workloads import volcano

START_SECONDS = 60.0  # limit for a server's start, which takes a second of CPU time: this machine may be busy
_POLL_SECONDS = 0.02  # between two looks at a server
_NETWORKS = ("lan2", "lan3", "lan4", "lan5")
_SEED = 7  # of random choices of nodes; any other seed works as well
_BUSY_SHARE = 0.2  # of the nodes, which pods of other jobs fill

Tree = dict[str, Any]


class Cluster(NamedTuple):
    """The fabric and the job."""

    policy_text: str
    job: Tree
    nodes: Sequence[Tree]
    busy: frozenset[str]  # names of nodes with pods of other jobs
    objects: Sequence[Tree]  # all, with the nodes and pods

    @property
    def idle(self) -> Sequence[str]:
        """Return the names of the other nodes."""
        return [node["metadata"]["name"] for node in self.nodes if node["metadata"]["name"] not in self.busy]


class Outcome(msgspec.Struct, frozen=True):
    """The result of the demo: the job's pods, and their gang as placed with and without railwright, both over RDMA."""

    pods: Sequence[Tree]  # after admission
    placed: overview_types.Gang
    without: overview_types.Gang


def build_cluster() -> Cluster:
    """Return the simulated cluster, and the job that ships with the demo."""
    data = importlib.resources.files("railwright.cli.demo")
    shape = objects.UNEVEN_64
    nodes = list(objects.build_nodes(shape))
    rng = random.Random(_SEED)  # noqa: S311 - a simulation has to be repeatable, not secret
    busy = rng.sample([node["metadata"]["name"] for node in nodes], round(_BUSY_SHARE * len(nodes)))
    requests = {"nvidia.com/gpu": str(shape.gpus), **dict.fromkeys(shape.rails, "1")}
    pods = [objects.build_pod(f"other-{index}", "research", node, requests) for index, node in enumerate(busy)]
    namespaces = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in ("prod", "research")
    ]
    networks = [
        {
            "apiVersion": "k8s.cni.cncf.io/v1",
            "kind": "NetworkAttachmentDefinition",
            "metadata": {"name": f"rdma-net-ipam-{name}", "namespace": "prod"},
        }
        for name in _NETWORKS
    ]
    return Cluster(
        policy_text=(data / "policy.yaml").read_text(encoding="utf-8"),
        job=yaml.safe_load((data / "job.yaml").read_text(encoding="utf-8")),
        nodes=nodes,
        busy=frozenset(busy),
        objects=[*nodes, *pods, *namespaces, *networks],
    )


def write(folder: pathlib.Path, cluster: Cluster, pods: Sequence[Tree] = ()) -> None:
    """Write the policy, and a snapshot of the cluster with these additional pods."""
    (folder / "policy.yaml").write_text(cluster.policy_text, encoding="utf-8")
    tree = {"apiVersion": "v1", "kind": "List", "items": [*cluster.objects, *pods]}
    (folder / "snapshot.json").write_text(json.dumps(tree), encoding="utf-8")


def list_sources(folder: pathlib.Path) -> argparse.Namespace:
    """Return the files of `write` as options."""
    return argparse.Namespace(snapshot=str(folder / "snapshot.json"), policy=str(folder / "policy.yaml"))


async def run(folder: pathlib.Path, cluster: Cluster, report: Callable[[str], None]) -> Outcome:
    """Admit the pods, and place them with and without railwright. `report` is called with each step.

    Afterwards the folder has the cluster with the gang as railwright has placed it. Raises StartError.
    """
    pods = list(_build_pods(cluster.job))
    report(f"starting the webhook on {len(cluster.nodes)} simulated nodes")
    write(folder, cluster)
    async with aiohttp.ClientSession() as session:
        async with start_server("webhook", folder) as address:
            report(f"admitting {text.format_count(len(pods), 'pod')} by the webhook")
            ready = await asyncio.gather(*(_admit(session, f"http://{address}", pod) for pod in pods))
        for index, pod in enumerate(ready):
            pod["metadata"]["uid"] = str(uuid.UUID(int=index))
        report("starting the extender on a cluster with these pods")
        write(folder, cluster, ready)
        async with start_server("extender", folder) as address:
            report("placing the gang by the extender")
            placed = await _place(session, f"http://{address}/volcano", cluster.idle, ready)
    report("modelling the bandwidth")
    without = _assess(folder, cluster, ready, _place_by_chance(cluster.idle, ready))
    return Outcome(ready, _assess(folder, cluster, ready, placed), without)


def _build_pods(job: Tree) -> Iterator[Tree]:
    """Yield the pods that Volcano's controller creates for the job."""
    for template in templates.expand(job, templates.DEFAULT_NAMESPACE) or ():
        metadata = template.pod["metadata"]  # of the first pod of a task
        for index in range(template.pods or 0):
            name, labels = f"{metadata['name'].removesuffix('0')}{index}", metadata["labels"]
            own = {"name": name, "labels": {**labels, volcano.TASK_INDEX: str(index)}}
            yield {**template.pod, "metadata": {**metadata, **own}}


def _assess(
    folder: pathlib.Path, cluster: Cluster, pods: Sequence[Tree], nodes: Mapping[str, str]
) -> overview_types.Gang:
    """Write a snapshot in which the pods run on these nodes. Return their gang as `railwright gangs` shows it."""
    running = [
        {**pod, "spec": {**pod["spec"], "nodeName": nodes[pod["metadata"]["name"]]}, "status": {"phase": "Running"}}
        for pod in pods
    ]
    write(folder, cluster, running)
    [gang] = overview_tables.read(list_sources(folder)).gangs
    return gang


# --- the servers --------------------------------------------------------------------------------------------


class StartError(RuntimeError):
    """Raised if a server did not start or rejected the job; the message contains the cause."""


@contextlib.asynccontextmanager
async def start_server(name: str, folder: pathlib.Path, *options: str) -> AsyncIterator[str]:
    """Run a server on the files of a folder until the end of the context. Yield its HOST:PORT once it is ready.

    Raises StartError.
    """
    loopback = ["--plain-http", "--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0"]
    sources = ["--policy", str(folder / "policy.yaml"), "--snapshot", str(folder / "snapshot.json")]
    log = folder / f"{name}.log"
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", name, *loopback, *sources, *options, stderr=file
        )
    try:
        yield await _wait_until_ready(name, process, log)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()  # it has no clients but the demo, and nothing to keep
        await process.wait()


async def _wait_until_ready(name: str, process: asyncio.subprocess.Process, log: pathlib.Path) -> str:
    problem = f"is not ready after {START_SECONDS:g} s"
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(START_SECONDS), aiohttp.ClientSession() as session:
            while process.returncode is None:
                found: dict[str, str] = dict(re.findall(r"^(ops )?listening on (\S+)\n", _read_log(log), re.MULTILINE))
                with contextlib.suppress(aiohttp.ClientError):
                    if len(found) == 2:
                        async with session.get(f"http://{found['ops ']}/readyz") as response:
                            if response.status == 200:
                                return found[""]
                            problem = f"is not ready after {START_SECONDS:g} s: {(await response.text())[-500:]}"
                await asyncio.sleep(_POLL_SECONDS)
            problem = "did not start"
    raise StartError(f"{name} {problem}:\n{_read_log(log)[-2000:]}")


def _read_log(path: pathlib.Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


async def _admit(session: aiohttp.ClientSession, webhook: str, pod: Tree) -> Tree:
    """Return a pod after admission by the webhook. Raise StartError if it is rejected."""
    metadata = pod["metadata"]
    review = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": str(uuid.uuid4()),
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "operation": "CREATE",
            "object": pod,
            "dryRun": False,
        },
    }
    answer = (await _post(session, f"{webhook}/mutate/pods?timeout=5s", review))["response"]
    if not answer["allowed"]:
        raise StartError(f"the webhook rejected {metadata['name']}: {answer['status']['message']}")
    operations = json.loads(base64.b64decode(answer.get("patch") or "") or "[]")
    admitted: Tree = jsonpatch.apply_patch(pod, operations)
    return admitted


async def _post(session: aiohttp.ClientSession, url: str, body: Tree) -> Tree:
    async with session.post(url, json=body) as response:
        response.raise_for_status()
        answer: Tree = await response.json()
        return answer


# --- a model of Volcano's session -------------------------------------------------------------------------

_PENDING, _ALLOCATED = 1, 2  # api.TaskStatus


async def _place(
    session: aiohttp.ClientSession, extender: str, idle: Sequence[str], pods: Sequence[Tree]
) -> dict[str, str]:
    """Run Volcano's loop for one gang: prioritize, choose the best score, allocate; then close the session.

    Return the nodes by pod. A pod takes all GPUs of its node, and Volcano's own scores of idle nodes are equal.
    Source: volcano-sh/volcano pkg/scheduler/actions/allocate.
    """
    left, rng = list(idle), random.Random(_SEED)  # noqa: S311 - repeats
    placed: dict[str, str] = {}
    for pod in pods:
        request = {"task": _build_task(pod, "", _PENDING), "nodes": [{"Name": name} for name in left]}
        scores = (await _post(session, f"{extender}/prioritize", request))["nodeScore"]
        top = max(scores.values())
        node = rng.choice([name for name in left if scores[name] == top])  # Volcano breaks ties by chance
        left.remove(node)
        await _post(session, f"{extender}/allocate", {"task": _build_task(pod, node, _ALLOCATED)})
        placed[pod["metadata"]["name"]] = node
    await _post(session, f"{extender}/session-close", {})
    return placed


def _place_by_chance(idle: Sequence[str], pods: Sequence[Tree]) -> dict[str, str]:
    """Return a random idle node for each pod, as Volcano alone places them: its scores of idle nodes are equal."""
    nodes = random.Random(_SEED).sample(idle, len(pods))  # noqa: S311 - repeats
    return {pod["metadata"]["name"]: node for pod, node in zip(pods, nodes, strict=True)}


def _build_task(pod: Tree, node: str, status: int) -> Tree:
    """Return a pod as Volcano's api.TaskInfo, with the fields for its gang and its node."""
    metadata = pod["metadata"]
    return {
        "UID": metadata["uid"],
        "Job": f"{metadata['namespace']}/{metadata['annotations'][volcano.GROUP_ANNOTATION]}",
        "Name": metadata["name"],
        "Namespace": metadata["namespace"],
        "NodeName": node,
        "Status": status,
        "Pod": {"metadata": metadata, "spec": pod["spec"], "status": {"phase": "Pending"}},
    }
