"""Measures the CPU time of commands on many objects, beside their targets.

`railwright explain` reads pods of one job from a file: as people write them, as `kubectl get --output yaml` shows them,
and as it does with `--show-managed-fields`. `railwright check` asks an API server with nodes and pods of real size.
"""

import argparse
import asyncio
import contextlib
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import api_server
import api_stub
import clusters
import machine
import served_installations
import yaml
from aiohttp import web

from railwright.cli import object_files
from railwright.cli.explanation import templates
from railwright.fabric import names

EXAMPLE = machine.ROOT / "manifests" / "examples" / "360-infiniband"
PODS, NODES, NODE_PODS = 3000, 5000, 20_000
SECONDS = 5.0  # the target of each command
REFERENCE_WORK_US = 58.0  # the machine for which it holds


class LargeInstallation(served_installations.Installation):
    """A healthy installation in a cluster with many nodes, and pods that opted in."""

    def __init__(self, nodes: int, pods: int) -> None:
        super().__init__()
        cluster = clusters.Cluster(clusters.Shape(nodes=nodes, pods=pods))
        label = f'"{names.FABRIC}"'.encode()
        self._nodes, self._pods = list(cluster.nodes()), list(cluster.pods())
        self._labelled = [pod for pod in self._pods if label in pod]

    async def answer(self, request: web.Request) -> web.Response:
        """Return a page of the nodes or of the pods; everything else is small."""
        if request.path == "/api/v1/nodes":
            return api_server.build_page(self._nodes, request.query, 1)
        if request.path == "/api/v1/pods":
            pods = self._labelled if request.query.get("labelSelector") == names.FABRIC else self._pods
            return api_server.build_page(pods, request.query, 1)
        return await super().answer(request)


def main() -> int:
    """Time the commands, print a table, and write the figures to build/bench/commands.json."""
    options = machine.parse_options(__doc__, rounds=3, pods=PODS, nodes=NODES)
    with tempfile.TemporaryDirectory() as folder:
        seconds, gauges = asyncio.run(_measure(pathlib.Path(folder), options))
    results = machine.write_results("commands", seconds=seconds, fixed_work=gauges)
    scaled = SECONDS * statistics.median(gauges) / REFERENCE_WORK_US
    columns: Mapping[str, Callable[[str], str]] = {
        "command": str,
        "median": lambda name: f"{statistics.median(seconds[name]):.1f}",
        "all rounds": lambda name: ", ".join(f"{duration:.1f}" for duration in seconds[name]),
        "target": lambda _: f"{SECONDS:g} ({scaled:.1f} here)",
    }
    machine.print_table(f"{results['machine']['cpu']}, CPU seconds", columns, seconds, 120)
    print(machine.describe_disturbance(gauges))
    return 0


async def _measure(
    folder: pathlib.Path, options: argparse.Namespace
) -> tuple[Mapping[str, Sequence[float]], Sequence[float]]:
    """Return the CPU seconds of each command by round, and the microseconds of the fixed work between them."""
    seconds: dict[str, list[float]] = {}
    gauges = []
    async with _serve(folder, options.nodes) as kubeconfig:
        commands = {"check": ("check", "--kubeconfig", kubeconfig)}
        for name, write in FILES.items():
            file = folder / f"{name}.yaml"
            file.write_text(write(_build_pods(options.pods)))
            title = f"explain, {options.pods:,} pods {name}, {file.stat().st_size / 1e6:.1f} MB"
            commands[title] = ("explain", str(file), "--policy", str(EXAMPLE / "policy.yaml"))
        for _ in range(options.rounds):
            for title, words in commands.items():
                gauges.append(machine.time_fixed_work())
                full = f"check, {options.nodes:,} nodes" if title == "check" else title
                seconds.setdefault(full, []).append(await asyncio.to_thread(_time, words))
    return seconds, gauges


@contextlib.asynccontextmanager
async def _serve(folder: pathlib.Path, nodes: int) -> AsyncIterator[str]:
    async with api_stub.serve(LargeInstallation(nodes, NODE_PODS).answer) as port:
        yield api_stub.kubeconfig(folder, port)


def _build_pods(count: int) -> list[dict[str, Any]]:
    """Return the pods of one job, which differ by name."""
    (job,) = object_files.read_manifest((EXAMPLE / "job.yaml").read_text(), "job.yaml")
    (template,) = templates.expand(job, "prod") or ()
    metadata = {key: value for key, value in template.pod["metadata"].items() if key != "generateName"}
    return [{**template.pod, "metadata": {**metadata, "name": f"pod-{number}"}} for number in range(count)]


def _write(pods: Sequence[Mapping[str, Any]]) -> str:
    return yaml.dump_all(pods, Dumper=yaml.CSafeDumper, sort_keys=False)


def _write_list(pods: Sequence[Mapping[str, Any]], *more: str) -> str:
    """Return the List of running pods. `more` are further fields of their metadata."""
    captured = clusters.captured("volcano-allocate.json")["task"]["Pod"]
    fields = ("creationTimestamp", "uid", "resourceVersion", "ownerReferences", *more)
    metadata = {key: captured["metadata"][key] for key in fields if key in captured["metadata"]}
    time = captured["metadata"]["creationTimestamp"]
    kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    conditions = [{"lastProbeTime": None, "lastTransitionTime": time, "status": "True", "type": kind} for kind in kinds]

    def show(pod: Mapping[str, Any]) -> dict[str, Any]:
        containers = [
            {"name": container["name"], "ready": True, "restartCount": 0, "state": {"running": {"startedAt": time}}}
            for container in pod["spec"]["containers"]
        ]
        status = {"conditions": conditions, "containerStatuses": containers, "phase": "Running", "startTime": time}
        return {**pod, "metadata": {**metadata, **pod["metadata"]}, "status": status}

    listed = {"apiVersion": "v1", "items": list(map(show, pods)), "kind": "List"}
    return yaml.dump(listed, Dumper=_Dumper, sort_keys=False)


class _Dumper(yaml.CSafeDumper):
    """Writes no anchors, as kubectl."""

    def ignore_aliases(self, _data: Any) -> bool:
        return True


FILES: Mapping[str, Callable[[Sequence[Mapping[str, Any]]], str]] = {
    "as written": _write,
    "as kubectl shows them": _write_list,
    "with managed fields": lambda pods: _write_list(pods, "managedFields"),
}


def _time(words: Sequence[str]) -> float:
    """Return the CPU seconds of a command whose output is a pipe. It must have read everything it needs."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "railwright.cli", *words]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=machine.ROOT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in {0, 1}:  # 1: a row of check failed, which costs the same
        raise SystemExit(f"{' '.join(words)} ended with {done.returncode}: {done.stderr[-2000:]}")
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


if __name__ == "__main__":
    sys.exit(main())
