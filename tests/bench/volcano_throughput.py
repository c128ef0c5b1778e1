"""Measures the pods that a real scheduler binds a second, with railwright and with a null extender.

etcd, API server, controllers and scheduler are real (tests/integration), nodes are kwok's. All jobs' pods are created
first, while Volcano may only enqueue; then the scheduler gets its full configuration, and the time to the last binding
counts. The extenders take turns in one run, because everything shares the same cores. Writes build/bench/volcano.json.
With `--scheduler kube` it measures kube-scheduler, which is stopped while pods are created; the time of its start
counts with either extender.
Each round records the cores that other work took, and the time of a fixed computation before and after it.
"""

import argparse
import asyncio
import itertools
import statistics
import sys
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import clusters
import control_plane
import machine
from plane import gangs, manifests, volcano, waiting
from plane import nodes as plane_nodes
from plane import plane as planes

NODES, JOBS, GANG = 1000, 20, 64
GPUS, RAIL_DEVICES = 4, 2  # two pods a node: 1,280 pods of whole nodes would not fit
TARGET = 0.9
_AT_ONCE = 50  # nodes created together
_WAIT_SECONDS = 900.0
_LOOK_SECONDS = 0.5  # a list of all pods' names costs the API server some 10 ms


async def main() -> int:
    """Measure, print a table, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=JOBS, help="gangs of a round: fewer on a slow machine")
    parser.add_argument("--gang", type=int, default=GANG, help="pods of a gang")
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--scheduler", choices=_ROUNDS, nargs="+", default=["volcano"], help="in turns on one cluster")
    options = parser.parse_args()
    async with control_plane.run_control_plane() as plane:
        rounds = await _measure_rounds(plane, options)
    sizes = {"nodes": options.nodes, "jobs": options.jobs, "gang": options.gang}
    results = machine.write_results("volcano", **sizes, rounds=rounds)
    for scheduler in options.scheduler:
        print_results(results, scheduler)
    return 0


async def _make_nodes(plane: planes.Plane, count: int) -> None:
    made = plane_nodes.Nodes(plane.api)
    for first in range(0, count, _AT_ONCE):
        await asyncio.gather(*(_node(made, number) for number in range(first, min(first + _AT_ONCE, count))))


async def _measure_rounds(plane: planes.Plane, options: argparse.Namespace) -> list[dict[str, Any]]:
    await _make_nodes(plane, options.nodes)
    rounds = []
    async with control_plane.run_extenders(plane) as (ports, pids):
        for scheduler, number in itertools.product(options.scheduler, range(options.rounds)):
            for name in ports if number % 2 == 0 else reversed(ports):
                run = _ROUNDS[scheduler](plane, f"{scheduler}-{name}-{number}", ports[name], options)
                row = {"scheduler": scheduler, "extender": name, "round": number}
                row |= await _measure_round(run, pids[name])
                rounds.append(row)
                rate = options.jobs * options.gang / row["seconds"]
                print(f"{scheduler}, {name}: {rate:.1f} pods/s {row}", file=sys.stderr, flush=True)
    return rounds


async def _measure_round(run: Coroutine[Any, Any, float], pid: int) -> dict[str, float]:
    """Return the seconds of a round, the CPU seconds of an extender, and how much the machine was disturbed."""
    fixed = machine.time_fixed_work()
    began, cpu = time.monotonic(), machine.read_clocks(pid)[0]
    other = machine.read_busy_seconds() - machine.read_tree_seconds()
    seconds = await run
    other = machine.read_busy_seconds() - machine.read_tree_seconds() - other
    cpu = machine.read_clocks(pid)[0] - cpu
    return {
        "seconds": seconds,
        "cpu_s": cpu,
        "other_cores": other / (time.monotonic() - began),
        "fixed_us": max(fixed, machine.time_fixed_work()),
    }


async def _node(made: plane_nodes.Nodes, number: int) -> None:
    leaf = number // clusters.LEAF_NODES
    labels = {clusters.LEAF: f"leaf-{leaf:03}", clusters.SPINE: f"spine-{leaf // clusters.SPINE_LEAVES}"}
    rails = dict.fromkeys(clusters.RAILS, RAIL_DEVICES)
    await made.make(f"gpu-{number:04}", rails=rails, labels=labels)


async def _measure_volcano(plane: planes.Plane, name: str, port: int, options: argparse.Namespace) -> float:
    """Return the seconds from the full configuration to the last binding."""
    namespace, total = f"bench-{name}", options.jobs * options.gang
    await plane.make_namespace(namespace)
    await plane.schedulers.volcano(conf={**volcano.conf(), "actions": "enqueue"})
    for number in range(options.jobs):
        await plane.api.create(_job(f"job-{number}", options.gang), namespace=namespace)
    await _wait_for_pods(plane, namespace, "", total, "all pods to be made")
    arguments = volcano.extender(f"http://127.0.0.1:{port}/volcano", managed=clusters.RAILS)
    plugin = {"name": "extender", "arguments": arguments}
    conf = volcano.conf()
    changing = asyncio.ensure_future(
        plane.schedulers.volcano(conf={**conf, "tiers": [*conf["tiers"], {"plugins": [plugin]}]}, seconds=_WAIT_SECONDS)
    )
    began = time.monotonic()
    await _wait_for_pods(plane, namespace, "spec.nodeName!=", total, "all pods to be bound")
    seconds = time.monotonic() - began
    await changing
    await plane.schedulers.volcano(conf={**volcano.conf(), "actions": "enqueue"}, seconds=_WAIT_SECONDS)
    await _remove_jobs(plane, manifests.VOLCANO_JOB, namespace)
    return seconds


async def _measure_kube(plane: planes.Plane, name: str, port: int, options: argparse.Namespace) -> float:
    """Return the seconds from the start of kube-scheduler to the last binding."""
    namespace, total = f"bench-{name}", options.jobs * options.gang
    await plane.make_namespace(namespace)
    await plane.processes["kube-scheduler"].stop()
    for number in range(options.jobs):
        job = manifests.workload("Job", _pod(), name=f"job-{number}", replicas=options.gang, completions=options.gang)
        await plane.api.create(job, namespace=namespace)
    await _wait_for_pods(plane, namespace, "", total, "all pods to be made")
    began = time.monotonic()
    await plane.schedulers.kube(gangs.entry(f"http://127.0.0.1:{port}", managed=clusters.RAILS))
    await _wait_for_pods(plane, namespace, "spec.nodeName!=", total, "all pods to be bound")
    seconds = time.monotonic() - began
    await _remove_jobs(plane, "batch/v1/Job", namespace)
    return seconds


async def _remove_jobs(plane: planes.Plane, jobs: str, namespace: str) -> None:
    """Remove the jobs and pods of a round, however long a busy machine takes."""
    await plane.api.delete_all(jobs, namespace)
    await plane.api.delete_all("Pod", namespace, grace=0)
    await _wait_for_pods(plane, namespace, "", 0, "all pods to be gone")
    await plane.remove_namespace(namespace)


_ROUNDS = {"volcano": _measure_volcano, "kube": _measure_kube}


async def _wait_for_pods(plane: planes.Plane, namespace: str, fields: str, count: int, describe: str) -> None:
    """Wait until this number of pods exists. The list has only names and is rare, because it costs the plane too."""
    query = {"fieldSelector": fields} if fields else {}

    async def is_reached() -> bool:
        url = f"{plane.parts.server}/api/v1/namespaces/{namespace}/pods"
        accept = {"Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}
        async with plane.session.get(url, params=query, headers=accept) as answer:
            number = len((await answer.json())["items"] or ())  # null where there is none
        if number != count:
            await asyncio.sleep(_LOOK_SECONDS)
        assert number == count, f"{number} of {count}"
        return True

    await waiting.wait(is_reached, seconds=_WAIT_SECONDS, describe=describe)


def _job(name: str, size: int) -> dict[str, Any]:
    return manifests.volcano_job(name, _pod(), {"worker": size})


def _pod() -> dict[str, Any]:
    amounts = {clusters.GPU: str(GPUS), **dict.fromkeys(clusters.RAILS, "1")}
    container = {"resources": {"requests": amounts, "limits": amounts}}
    return manifests.pod("unused", "roce", container=container, restartPolicy="Never")


def print_results(results: Mapping[str, Any], scheduler: str) -> None:
    """Print the rates of both extenders with one scheduler, their ratio, and the disturbance."""
    pods = results["jobs"] * results["gang"]
    rounds: dict[str, list[Any]] = {"null": [], "railwright": []}
    for run in results["rounds"]:
        if run["scheduler"] == scheduler:
            rounds[run["extender"]].append(run)
    rates = {name: [pods / run["seconds"] for run in runs] for name, runs in rounds.items()}
    middle = {name: statistics.median(values) for name, values in rates.items()}
    cpu = {name: statistics.median(run["cpu_s"] for run in runs) for name, runs in rounds.items()}
    columns: dict[str, Callable[[str], str]] = {
        "extender": str,
        "pods bound/s": lambda name: f"{middle[name]:.1f}",
        "±": lambda name: f"{(max(rates[name]) - min(rates[name])) / 2 / middle[name]:.0%}",
        "its own CPU, s": lambda name: f"{cpu[name]:.2f}",
        "ms a pod": lambda name: f"{cpu[name] / pods * 1000:.1f}",
        "cores of other work": lambda name: ", ".join(f"{run['other_cores']:.1f}" for run in rounds[name]),
    }
    title = f"{results['nodes']:,} nodes, {results['jobs']} gangs of {results['gang']}, a real {scheduler}"
    machine.print_table(title, columns, rounds)
    print(machine.describe_disturbance([run["fixed_us"] for runs in rounds.values() for run in runs]))
    ratio = middle["railwright"] / middle["null"]
    print(f"railwright / null: {ratio:.2f} (target: at least {TARGET}: {'met' if ratio >= TARGET else 'missed'})")


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
