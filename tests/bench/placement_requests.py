"""Measures requests as the two schedulers send them, over a loopback socket.

Each row starts `railwright extender` on the first core that this process may use, with a generated cluster. A small API
server serves that cluster on the last core, where the load runs too. Times are from sending a request to its answer.
Some rows also have the server's CPU time, which varies less on a busy machine. Rounds alternate between the rows, and a
fixed piece of work between them shows how much other work disturbed the machine. Writes build/bench/extender.json. The
row with a real Volcano is in volcano_throughput.py.
"""

import contextlib
import dataclasses
import functools
import gc
import json
import operator
import os
import pathlib
import random
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import api_stub
import bodies
import clusters
import loads
import machine
import msgspec

HERE = pathlib.Path(__file__).resolve().parent

POLICY = HERE / "placement.yaml"
OFFERED = 500  # nodes Volcano offers of 5,000: numNodesToFind
BODY_REPEATS = 12
_MILLI = 1e3
NEW_KINDS = 12
REFERENCE_WORK_US = 58.0  # the machine for which the targets in milliseconds hold (`machine.time_fixed_work`)

Figures = dict[str, list[float]]
"""Figure -> its samples of one round."""


@dataclasses.dataclass(frozen=True)
class Target:
    """A target of a figure: the `quantile` of its samples is below `below`."""

    quantile: float
    below: float
    unit: str = "ms"

    def scale(self, fixed_work_us: float) -> float:
        """Return the target for a machine with this time for the fixed piece of work. Sizes do not depend on it."""
        return self.below if self.unit == "MiB" else self.below * fixed_work_us / REFERENCE_WORK_US

    def describe(self, fixed_work_us: float) -> str:
        """Return the target, and its value on this machine."""
        scaled = self.scale(fixed_work_us)
        here = f" ({_format(scaled)} here)" if scaled != self.below else ""
        return f"p{self.quantile * 100:.0f} < {self.below:g} {self.unit}{here}"


# Figures with a target; all others are printed without one.
TARGETS: Mapping[str, Sequence[Target]] = {
    "filter + prioritize, half full": (Target(0.5, 3), Target(0.99, 6)),
    "filter + prioritize, 9 in 10 full": (Target(0.5, 3), Target(0.99, 6)),
    "first request of a new kind of pod": (Target(1, 20),),
    "prioritize 15 MB, last byte to answer": (Target(0.99, 15),),
    "prioritize 75 MB, last byte to answer": (Target(0.99, 45),),
    "gang of 512, first request, without decoding": (Target(0.99, 25),),
    "gang of 512, later requests, without decoding": (Target(0.5, 1), Target(0.99, 3)),
    "5,000 nodes, 100,000 pods: ready after": (Target(0.5, 3, "s"),),
    "5,000 nodes, 100,000 pods: memory": (Target(0.5, 250, "MiB"),),
    "20,000 nodes, 80,000 pods: ready after": (Target(0.5, 6, "s"),),
    "20,000 nodes, 80,000 pods: memory": (Target(0.5, 600, "MiB"),),
    "20,000 nodes, 80,000 pods: filter + prioritize": (Target(0.99, 30),),
}


@dataclasses.dataclass(frozen=True)
class Cores:
    """The CPU ids to which the server and the load generator are pinned."""

    server: int
    load: int


@dataclasses.dataclass(frozen=True)
class Extender(machine.Server):
    """A running extender, and the port of the API server that it watches."""

    api_port: int = 0


def main() -> int:
    """Measure the rows, print a table and write the figures."""
    options = machine.parse_options(__doc__, rounds=3, only=list(ROWS))
    allowed = sorted(os.sched_getaffinity(0))
    cores = Cores(allowed[0], allowed[-1])
    os.sched_setaffinity(0, {cores.load})
    rounds: list[dict[str, Any]] = []
    gc.disable()  # the load's own collector would be in the times
    for number in range(options.rounds):
        for name in options.only or list(ROWS):
            if name in _ONCE and number:
                continue
            gc.collect()
            with tempfile.TemporaryDirectory() as folder:
                figures = ROWS[name](cores, pathlib.Path(folder))
            rounds.append(
                {"row": name, "round": number, "fixed_work_us": machine.time_fixed_work(), "figures": figures}
            )
            print(f"{name}, round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
    results = machine.write_results("extender", rounds=rounds)
    print_results(results)
    return 0


# --- rows ---------------------------------------------------------------------------------------------


def _build_shape(**changes: Any) -> clusters.Shape:
    """Return a cluster of 5,000 nodes, half of them full, and 20,000 bound pods, without gangs of Volcano."""
    return clusters.Shape(volcano_gangs=(), **changes)


def measure_kube(cores: Cores, folder: pathlib.Path, title: str, shape: clusters.Shape) -> Figures:
    """Place gangs of 64 pod after pod: filter all nodes, prioritize the feasible ones, and bind to the best of them.

    Prioritize is also asked where filter leaves one node; kube-scheduler does not do that. With 4,500 full nodes, most
    of the answer of filter are the reasons of rejected nodes.
    """
    names = clusters.Cluster(shape).names
    sums, filters, prioritizes, cpus = [], [], [], []
    with start_extender(cores, folder, shape) as extender, connect(extender) as (caller, api):
        for gang in range(shape.kube_gangs):
            for rank in range(clusters.GANG):
                pod = clusters.build_kube_pod(gang, rank)
                cpu = extender.cpu
                filtered = caller.send(loads.build_request("/scheduler/filter", bodies.build_kube_request(pod, names)))
                feasible = msgspec.json.decode(filtered.body)["NodeNames"]
                scored = caller.send(
                    loads.build_request("/scheduler/prioritize", bodies.build_kube_request(pod, feasible))
                )
                cpus.append(extender.cpu - cpu)
                best = max(msgspec.json.decode(scored.body), key=lambda priority: priority["Score"])["Host"]
                api.post("/bench/pods", clusters.build_kube_pod(gang, rank, on=best))
                filters.append(filtered.whole)
                prioritizes.append(scored.whole)
                sums.append(filtered.whole + scored.whole)
    pairs = (("filter + prioritize", sums), ("filter", filters), ("prioritize", prioritizes), ("CPU of both", cpus))
    return {f"{name}, {title}": _to_milliseconds(values) for name, values in pairs}


def measure_new_kinds(cores: Cores, folder: pathlib.Path) -> Figures:
    """Measure the first filter request of kinds of pods that differ in their CPU, on 5,000 nodes, half of them full."""
    shape = _build_shape()
    names = clusters.Cluster(shape).names
    seconds = []
    with start_extender(cores, folder, shape) as extender, connect(extender) as (caller, _):
        for kind in range(NEW_KINDS):
            pod = clusters.build_kube_pod(0, kind)
            pod = pod.replace(b'"requests":{', b'"requests":{"cpu":"%d",' % (kind + 1), 1)
            seconds.append(
                caller.send(loads.build_request("/scheduler/filter", bodies.build_kube_request(pod, names))).whole
            )
    return {"first request of a new kind of pod": _to_milliseconds(seconds)}


def measure_big_bodies(cores: Cores, folder: pathlib.Path) -> Figures:
    """Measure prioritize requests of Volcano for tasks of a gang, with 100 nodes (15 MB) and 500 nodes (75 MB)."""
    shape = clusters.Shape(kube_gangs=0)
    free = clusters.Cluster(shape).free
    figures: Figures = {}
    with start_extender(cores, folder, shape) as extender, connect(extender) as (caller, _):
        for count, title in ((100, "prioritize 15 MB"), (500, "prioritize 75 MB")):
            nodes = [bodies.build_node_info(name, padded=True) for name in free[:count]]
            after, whole, cpus = [], [], []
            for rank in range(BODY_REPEATS):
                wire = loads.build_request(
                    "/volcano/prioritize", bodies.build_prioritize(bodies.build_task(0, rank), nodes)
                )
                cpu = extender.cpu
                served = caller.send(wire)
                cpus.append(extender.cpu - cpu)
                after.append(served.after)
                whole.append(served.whole)
            figures[f"{title}, last byte to answer"] = _to_milliseconds(after)
            figures[f"{title}, first byte to answer"] = _to_milliseconds(whole)
            figures[f"{title}, CPU"] = _to_milliseconds(cpus)
        figures["memory after 75 MB bodies"] = [machine.read_pss(extender.pid)]
    return figures


def measure_gang_of_512(cores: Cores, folder: pathlib.Path) -> Figures:
    """Measure Volcano's loop over gangs of 512: prioritize other free nodes for each task, allocate it, then roll back.

    "Without decoding" subtracts the median of the same request for a pod that did not opt in: the extender reads,
    decodes and answers it without a decision.
    """
    shape = clusters.Shape(kube_gangs=0)
    free = clusters.Cluster(shape).free
    random.Random(1).shuffle(free)  # noqa: S311 - the same order every time
    infos = {name: bodies.build_node_info(name, padded=False) for name in free}
    first, later, allocates, cpus = [], [], [], []
    with start_extender(cores, folder, shape) as extender, connect(extender) as (caller, _):
        decoding_seconds, decoding_cpus = [], []
        for rank in range(40):
            offered = free[rank : rank + OFFERED]
            not_opted_in = bodies.build_prioritize(
                bodies.build_task(0, rank, opted=False), [infos[name] for name in offered]
            )
            cpu = extender.cpu
            decoding_seconds.append(caller.send(loads.build_request("/volcano/prioritize", not_opted_in)).whole)
            decoding_cpus.append(extender.cpu - cpu)
        decoding, decoding_cpu = statistics.median(decoding_seconds), statistics.median(decoding_cpus)
        for gang, size in enumerate(shape.volcano_gangs):
            left, placed = list(free), []
            for rank in range(size):
                start = rank * OFFERED % len(left)
                offered = (left[start:] + left[:start])[:OFFERED]
                body = bodies.build_prioritize(bodies.build_task(gang, rank), [infos[name] for name in offered])
                wire, cpu = loads.build_request("/volcano/prioritize", body), extender.cpu
                served = caller.send(wire)
                if rank:
                    cpus.append(extender.cpu - cpu - decoding_cpu)
                (later if rank else first).append(served.whole - decoding)
                scores = msgspec.json.decode(served.body)["nodeScore"]
                best = max(offered, key=lambda name: scores.get(name, 0.0))
                left.remove(best)
                placed.append((rank, best))
                event = loads.build_request("/volcano/allocate", bodies.build_event(gang, rank, best))
                allocates.append(caller.send(event).whole)
            for rank, node in reversed(placed):
                caller.post("/volcano/deallocate", bodies.build_event(gang, rank, node, status=1))
            caller.post("/volcano/session-close", b"{}")
    return {
        "gang of 512, first request, without decoding": _to_milliseconds(first),
        "gang of 512, later requests, without decoding": _to_milliseconds(later),
        "gang of 512, later requests, CPU without decoding": _to_milliseconds(cpus),
        "gang of 512, decoding of 500 small nodes": _to_milliseconds(decoding_seconds),
        "gang of 512, allocate": _to_milliseconds(allocates),
    }


def measure_start(cores: Cores, folder: pathlib.Path, shape: clusters.Shape) -> Figures:
    """Measure the start of the extender's process until it is ready, and then requests of kube-scheduler.

    Making the cluster's objects does not count.
    """
    names, sums = clusters.Cluster(shape).names, []
    with start_extender(cores, folder, shape) as extender, connect(extender) as (caller, _):
        cpu, memory = extender.cpu, machine.read_pss(extender.pid)
        without_core = machine.read_waited_seconds(extender.pid)
        for rank in range(clusters.GANG):
            pod = clusters.build_kube_pod(0, rank)
            filtered = caller.send(loads.build_request("/scheduler/filter", bodies.build_kube_request(pod, names)))
            feasible = msgspec.json.decode(filtered.body)["NodeNames"]
            scored = caller.send(loads.build_request("/scheduler/prioritize", bodies.build_kube_request(pod, feasible)))
            sums.append(filtered.whole + scored.whole)
    title = f"{shape.nodes:,} nodes, {shape.pods:,} pods"
    return {
        f"{title}: ready after": [extender.started_seconds],
        f"{title}: of that without a core, s": [without_core],
        f"{title}: CPU until ready, s": [cpu],
        f"{title}: memory": [memory],
        f"{title}: first filter + prioritize": _to_milliseconds(sums[:1]),
        f"{title}: filter + prioritize": _to_milliseconds(sums[1:]),
    }


_MANY = 100_000  # pods
Row = Callable[[Cores, pathlib.Path], Figures]
ROWS: Mapping[str, Row] = {
    "kube": functools.partial(measure_kube, title="half full", shape=_build_shape()),
    "kube-full": functools.partial(measure_kube, title="9 in 10 full", shape=_build_shape(taken=0.9)),
    "kinds": measure_new_kinds,
    "bodies": measure_big_bodies,
    "gang": measure_gang_of_512,
    "start": functools.partial(measure_start, shape=_build_shape(pods=_MANY)),
    "start-20k": functools.partial(measure_start, shape=_build_shape(nodes=20_000, pods=80_000)),
}
_ONCE = frozenset({"start", "start-20k"})  # they vary little and take minutes


# --- servers ------------------------------------------------------------------------------------------


@contextlib.contextmanager
def start_extender(cores: Cores, folder: pathlib.Path, shape: clusters.Shape) -> Iterator[Extender]:
    """Start an extender on a generated cluster of this shape; wait until it is ready."""
    description = json.dumps(dataclasses.asdict(shape))
    with machine.start_process([sys.executable, str(HERE / "api_server.py"), description], cores.load) as process:
        port = machine.read_port(process)
        config = api_stub.kubeconfig(folder, port)
        options = (f"--policy={POLICY}", "--plain-http", f"--kubeconfig={config}")
        with machine.start_server("extender", *options, core=cores.server) as extender:
            yield Extender(**vars(extender), api_port=port)


@contextlib.contextmanager
def connect(extender: Extender) -> Iterator[tuple[loads.Caller, loads.Caller]]:
    """Open connections to the extender and to the API server that it watches."""
    with loads.connect(extender.port) as caller, loads.connect(extender.api_port) as api:
        yield caller, api


# --- figures ------------------------------------------------------------------------------------------


def print_results(results: Mapping[str, Any]) -> None:
    """Print each figure over all rounds, its spread between rounds, and its target."""
    fixed_work_us = statistics.median(one_round["fixed_work_us"] for one_round in results["rounds"])
    rows = []
    for name in dict.fromkeys(name for one_round in results["rounds"] for name in one_round["figures"]):
        rounds = [one_round["figures"][name] for one_round in results["rounds"] if name in one_round["figures"]]
        rows.append((name, *_format_row(name, rounds, fixed_work_us)))
    titles = ("figure", "n", "p50", "p99", "maximum", "±", "target", "")
    columns = {title: operator.itemgetter(number) for number, title in enumerate(titles)}
    machine.print_table(
        f"the extender; {results['machine']['cpu']}, one core each for server and load", columns, rows, 160
    )
    print("p50, p99 and maximum over all rounds, ms (memory: MiB); ±: half the spread between rounds")
    print(machine.describe_disturbance([one_round["fixed_work_us"] for one_round in results["rounds"]]))


def _format_row(name: str, rounds: Sequence[Sequence[float]], fixed_work_us: float) -> list[str]:
    samples = sorted(value for values in rounds for value in values)
    targets = TARGETS.get(name, ())
    share = targets[-1].quantile if targets else 0.5
    quantiles = [machine.find_quantile(values, share) for values in rounds]
    median = statistics.median(quantiles)
    spread = f"{(max(quantiles) - min(quantiles)) / 2 / median:.0%}" if len(quantiles) > 1 and median else ""
    cells = [str(len(samples)), *(_format(machine.find_quantile(samples, q)) for q in (0.5, 0.99, 1.0)), spread]
    met = [machine.find_quantile(samples, target.quantile) < target.scale(fixed_work_us) for target in targets]
    texts = [target.describe(fixed_work_us) for target in targets]
    return [*cells, "\n".join(texts), "\n".join("met" if is_met else "missed" for is_met in met)]


def _format(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}" if abs(value) >= 1 else f"{value:.3f}"


def _to_milliseconds(seconds: Sequence[float]) -> list[float]:
    return [value * _MILLI for value in seconds]


if __name__ == "__main__":
    sys.exit(main())
