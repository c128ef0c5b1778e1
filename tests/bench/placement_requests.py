"""`make bench-extender`: requests as the two schedulers send them, served over a loopback socket.

Each row starts `railwright extender` on the first core this process may use, on a made cluster that a small API server
of our own lists and watches (the last core, as the load). Every figure is of a served request: sent, read, decided,
answered; beside some stands the server's own CPU time for it, which a busy machine changes less. Rounds go round robin
over the rows, and a fixed piece of work between them shows how disturbed the machine was. Writes
build/bench/extender.json. The row with a real Volcano is volcano_throughput.py.
"""

import argparse
import contextlib
import dataclasses
import gc
import json
import os
import pathlib
import platform
import random
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT), str(ROOT / "tests" / "support")]

import api_stub  # noqa: E402 - the path is set above: this file is run by itself
import bodies  # noqa: E402
import clusters  # noqa: E402
import loads  # noqa: E402
import machine  # noqa: E402
import msgspec  # noqa: E402
from rich import console, table  # noqa: E402

POLICY, POLICY_OF_CLAIMS = HERE / "placement.yaml", HERE / "placement-claims.yaml"
OUT = ROOT / "build" / "bench" / "extender.json"
EVENTS_A_SECOND, EVENT_SECONDS, EVENT_CONNECTIONS = 2000, 5, 2
OFFERED = 500  # nodes Volcano offers of 5,000: numNodesToFind (volcano.md 2.5)
BODY_REPEATS = 12
_MILLI = 1e3
_EXTENDED, _CLAIMS = ", extended", ", claims"  # suffixes of figures with GPUs and rails in ResourceSlices
_COMPARED = ("filter + prioritize", "CPU of both")
_SLOWER = 1.1  # how much longer a request may take with slices

Figures = dict[str, list[float]]
"""Figure -> its samples of one round."""


@dataclasses.dataclass(frozen=True)
class Target:
    """What a figure has to reach: the `quantile` of its samples under `below`."""

    quantile: float
    below: float
    unit: str = "ms"


# The figures of the issue; any other figure is printed without a target.
TARGETS: Mapping[str, Target] = {
    "filter + prioritize, half full": Target(0.99, 10),
    "filter + prioritize, 9 in 10 full": Target(0.99, 10),
    "prioritize 15 MB, last byte to answer": Target(0.99, 25),
    "event at 2,000/s, served": Target(0.99, 1),
    "gang of 512, first ask, besides decoding": Target(0.99, 50),
    "gang of 512, later asks, besides decoding": Target(0.99, 2),
    "memory, settled": Target(0.5, 500, "MiB"),
    "memory, settled, claims": Target(0.5, 500, "MiB"),
}


@dataclasses.dataclass(frozen=True)
class Cores:
    """Where the server and the load run."""

    server: int
    load: int


@dataclasses.dataclass(frozen=True)
class Extender:
    """A running one."""

    port: int
    ops_port: int
    pid: int
    api_port: int  # of the API server it watches; 0 with a snapshot

    @property
    def cpu(self) -> float:
        """CPU seconds so far."""
        return machine.cpu_seconds(self.pid)

    def ready(self, seconds: float = 120) -> None:
        """Wait until it has read everything."""
        deadline = time.monotonic() + seconds
        while True:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{self.ops_port}/readyz", timeout=5).close()
                return
            if time.monotonic() > deadline:
                raise SystemExit("the extender is not ready: see its /readyz")
            time.sleep(0.05)


def main() -> int:
    """Run the rows, print a table, write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", help=f"a row: {', '.join(ROWS)}", action="append", choices=list(ROWS))
    options = parser.parse_args()
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
            rounds.append({"row": name, "round": number, "gauge_us": machine.gauge(), "figures": figures})
            print(f"{name}, round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
    found = {
        "machine": {"cpu": machine.cpu(), "cores": len(allowed), "python": platform.python_version()},
        "rounds": rounds,
    }
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(found))
    show(found)
    return 0


# --- rows ---------------------------------------------------------------------------------------------


def half_full(cores: Cores, folder: pathlib.Path) -> Figures:
    """kube-scheduler on 5,000 nodes, half of them held, 20,000 pods bound."""
    return _kube(cores, folder, clusters.Shape(volcano_gangs=()), "half full")


def nearly_full(cores: Cores, folder: pathlib.Path) -> Figures:
    """The same, 4,500 nodes held: their refusals are most of the answer."""
    return _kube(cores, folder, clusters.Shape(volcano_gangs=(), taken=0.9), "9 in 10 full")


def half_full_extended(cores: Cores, folder: pathlib.Path) -> Figures:
    """As `half_full`, with GPUs and rails in ResourceSlices of 16 devices a node, requested as extended resources."""
    return _kube(cores, folder, _by_slices(clusters.EXTENDED), f"half full{_EXTENDED}")


def half_full_claims(cores: Cores, folder: pathlib.Path) -> Figures:
    """As `half_full`, with the claims that railwright writes."""
    return _kube(cores, folder, _by_slices(clusters.TEMPLATES), f"half full{_CLAIMS}")


def nearly_full_extended(cores: Cores, folder: pathlib.Path) -> Figures:
    """As `nearly_full`, with GPUs and rails in ResourceSlices, requested as extended resources."""
    return _kube(cores, folder, _by_slices(clusters.EXTENDED, taken=0.9), f"9 in 10 full{_EXTENDED}")


def nearly_full_claims(cores: Cores, folder: pathlib.Path) -> Figures:
    """As `nearly_full`, with the claims that railwright writes."""
    return _kube(cores, folder, _by_slices(clusters.TEMPLATES, taken=0.9), f"9 in 10 full{_CLAIMS}")


def _by_slices(kind: str, taken: float = 0.5) -> clusters.Shape:
    return clusters.Shape(volcano_gangs=(), claims=kind, taken=taken)


def _kube(cores: Cores, folder: pathlib.Path, shape: clusters.Shape, title: str) -> Figures:
    """Gangs of 64, pod after pod: filter all names, prioritize those kept, bind to the best, which the watch tells."""
    names = clusters.Cluster(shape).names
    claiming = shape.claims == clusters.TEMPLATES
    sums, filters, prioritizes, cpus = [], [], [], []
    with serving(cores, folder, shape) as extender, calling(extender) as (caller, api):
        for gang in range(shape.kube_gangs):
            for rank in range(clusters.GANG):
                pod = clusters.kube_pod(gang, rank, claiming=claiming)
                cpu = extender.cpu
                filtered = caller.ask(loads.request("/scheduler/filter", bodies.kube(pod, names)))
                kept = msgspec.json.decode(filtered.body)["NodeNames"]
                scored = caller.ask(loads.request("/scheduler/prioritize", bodies.kube(pod, kept)))
                cpus.append(extender.cpu - cpu)
                best = max(msgspec.json.decode(scored.body), key=lambda each: each["Score"])["Host"]
                if shape.claims:  # kube-scheduler writes the allocation before it posts the binding
                    api.post("/bench/claims", clusters.claim(f"kube-{gang}-{rank}", best, shape.claims))
                api.post("/bench/pods", clusters.kube_pod(gang, rank, on=best, claiming=claiming))
                filters.append(filtered.whole)
                prioritizes.append(scored.whole)
                sums.append(filtered.whole + scored.whole)
    pairs = (("filter + prioritize", sums), ("filter", filters), ("prioritize", prioritizes), ("CPU of both", cpus))
    return {f"{name}, {title}": _milli(values) for name, values in pairs}


def big_bodies(cores: Cores, folder: pathlib.Path) -> Figures:
    """Volcano's prioritize with 100 nodes (15 MB) and 500 nodes (75 MB) of 150 KB, tasks of a gang."""
    shape = clusters.Shape(kube_gangs=0)
    free = clusters.Cluster(shape).free
    found: Figures = {}
    with serving(cores, folder, shape) as extender, calling(extender) as (caller, _):
        for count, title in ((100, "prioritize 15 MB"), (500, "prioritize 75 MB")):
            nodes = [bodies.node_info(name, padded=True) for name in free[:count]]
            after, whole, cpus = [], [], []
            for rank in range(BODY_REPEATS):
                wire = loads.request("/volcano/prioritize", bodies.prioritize(bodies.task(0, rank), nodes))
                cpu = extender.cpu
                served = caller.ask(wire)
                cpus.append(extender.cpu - cpu)
                after.append(served.after)
                whole.append(served.whole)
            found[f"{title}, last byte to answer"] = _milli(after)
            found[f"{title}, first byte to answer"] = _milli(whole)
            found[f"{title}, CPU"] = _milli(cpus)
        found["memory after 75 MB bodies"] = [machine.pss(extender.pid)]
    return found


def events(cores: Cores, folder: pathlib.Path) -> Figures:
    """Allocate and deallocate in turns of a session's, at a fixed rate and one after the other."""
    shape = clusters.Shape(kube_gangs=0)
    free = clusters.Cluster(shape).free
    session = [
        loads.request(f"/volcano/{verb}", bodies.event(0, rank, free[rank], status=status))
        for verb, status, ranks in (("allocate", 2, range(512)), ("deallocate", 1, reversed(range(512))))
        for rank in ranks
    ]
    total = EVENTS_A_SECOND * EVENT_SECONDS
    wires = [session[number % len(session)] for number in range(total)]
    with serving(cores, folder, shape) as extender, calling(extender) as (caller, _):
        for wire in session:
            caller.ask(wire)
        cpu, faults = extender.cpu, machine.clocks(extender.pid)[1]
        opened = loads.open_loop(extender.port, wires, EVENTS_A_SECOND, EVENT_CONNECTIONS)
        cpu, faults = extender.cpu - cpu, machine.clocks(extender.pid)[1] - faults
        began = time.perf_counter()
        closed = [caller.ask(wire).whole for wire in wires]
        rate = len(wires) / (time.perf_counter() - began)
    return {
        "event at 2,000/s, served": _milli(opened["served"]),
        "event at 2,000/s, from due": _milli(opened["due"]),
        "event at 2,000/s, sent late": _milli(opened["late"]),
        "event one by one": _milli(closed),
        "events a second, one connection": [rate],
        "event, CPU": [cpu / total * 1e3],
        "event, page faults": [faults / total],
    }


def gang_of_512(cores: Cores, folder: pathlib.Path) -> Figures:
    """Volcano's loop over gangs of 512: prioritize a moving sample of the free nodes, allocate, next; then roll back.

    Besides decoding: less the median of the same request for a pod that did not opt in, which is read, decoded and
    answered, and decided by nothing.
    """
    shape = clusters.Shape(kube_gangs=0)
    free = clusters.Cluster(shape).free
    random.Random(1).shuffle(free)  # noqa: S311 - the same order every time
    infos = {name: bodies.node_info(name, padded=False) for name in free}
    first, later, allocates, cpus = [], [], [], []
    with serving(cores, folder, shape) as extender, calling(extender) as (caller, _):
        plain, spent = [], []
        for rank in range(40):
            offered = free[rank : rank + OFFERED]
            stranger = bodies.prioritize(bodies.task(0, rank, opted=False), [infos[name] for name in offered])
            cpu = extender.cpu
            plain.append(caller.ask(loads.request("/volcano/prioritize", stranger)).whole)
            spent.append(extender.cpu - cpu)
        decoding, decoding_cpu = statistics.median(plain), statistics.median(spent)
        for gang, size in enumerate(shape.volcano_gangs):
            left, placed = list(free), []
            for rank in range(size):
                start = rank * OFFERED % len(left)
                offered = (left[start:] + left[:start])[:OFFERED]
                body = bodies.prioritize(bodies.task(gang, rank), [infos[name] for name in offered])
                wire, cpu = loads.request("/volcano/prioritize", body), extender.cpu
                served = caller.ask(wire)
                if rank:
                    cpus.append(extender.cpu - cpu - decoding_cpu)
                (later if rank else first).append(served.whole - decoding)
                scores = msgspec.json.decode(served.body)["nodeScore"]
                best = max(offered, key=lambda name: scores.get(name, 0.0))
                left.remove(best)
                placed.append((rank, best))
                event = loads.request("/volcano/allocate", bodies.event(gang, rank, best))
                allocates.append(caller.ask(event).whole)
            for rank, node in reversed(placed):
                caller.post("/volcano/deallocate", bodies.event(gang, rank, node, status=1))
            caller.post("/volcano/session-close", b"{}")
    return {
        "gang of 512, first ask, besides decoding": _milli(first),
        "gang of 512, later asks, besides decoding": _milli(later),
        "gang of 512, later asks, CPU besides decoding": _milli(cpus),
        "gang of 512, decoding of 500 small nodes": _milli(plain),
        "gang of 512, allocate between": _milli(allocates),
    }


def memory(cores: Cores, folder: pathlib.Path) -> Figures:
    """5,000 nodes and 100,000 bound pods from the API server; after some asks of either scheduler."""
    return _hold(cores, folder, clusters.Shape(pods=100_000), "")


def claims_memory(cores: Cores, folder: pathlib.Path) -> Figures:
    """The same with 16 devices a node in ResourceSlices, half of them held by claims."""
    return _hold(cores, folder, clusters.Shape(pods=100_000, volcano_gangs=(), claims=clusters.TEMPLATES), _CLAIMS)


def _hold(cores: Cores, folder: pathlib.Path, shape: clusters.Shape, suffix: str) -> Figures:
    names = clusters.Cluster(shape).names
    with serving(cores, folder, shape) as extender, calling(extender) as (caller, _):
        listed = machine.pss(extender.pid)
        for rank in range(clusters.GANG):
            body = bodies.kube(clusters.kube_pod(0, rank), names)
            for verb in ("filter", "prioritize"):
                caller.post(f"/scheduler/{verb}", body)
        time.sleep(2)
        return {
            f"memory, when listed{suffix}": [listed],
            f"memory, settled{suffix}": [machine.pss(extender.pid)],
            f"memory, peak resident{suffix}": [machine.peak_rss(extender.pid)],
        }


def snapshot_memory(cores: Cores, folder: pathlib.Path) -> Figures:
    """The same from a snapshot file of small objects."""
    shape = clusters.Shape(pods=100_000, bulky=False)
    path = folder / "snapshot.json"
    with path.open("wb") as out:
        out.writelines(clusters.Cluster(shape).snapshot())
    with _extender(cores, [f"--snapshot={path}"], 0) as extender:
        time.sleep(2)
        return {
            "memory with --snapshot, settled": [machine.pss(extender.pid)],
            "memory with --snapshot, peak resident": [machine.peak_rss(extender.pid)],
            "memory with --snapshot, file": [path.stat().st_size / 2**20],
        }


ROWS: Mapping[str, Callable[[Cores, pathlib.Path], Figures]] = {
    "kube": half_full,
    "kube-extended": half_full_extended,
    "kube-claims": half_full_claims,
    "kube-full": nearly_full,
    "kube-full-extended": nearly_full_extended,
    "kube-full-claims": nearly_full_claims,
    "bodies": big_bodies,
    "events": events,
    "gang": gang_of_512,
    "memory": memory,
    "memory-claims": claims_memory,
    "snapshot": snapshot_memory,
}
_ONCE = frozenset({"memory", "memory-claims", "snapshot"})  # no noise worth the minutes


# --- servers ------------------------------------------------------------------------------------------


@contextlib.contextmanager
def serving(cores: Cores, folder: pathlib.Path, shape: clusters.Shape) -> Iterator[Extender]:
    """An extender that has read a cluster of this shape from an API server."""
    told = json.dumps(dataclasses.asdict(shape))
    with machine.started([sys.executable, str(HERE / "api_server.py"), told], cores.load) as process:
        port = machine.port_told(process)
        config = api_stub.kubeconfig(folder, port)
        policy = POLICY_OF_CLAIMS if shape.claims == clusters.TEMPLATES else POLICY
        with _extender(cores, [f"--kubeconfig={config}"], port, policy) as extender:
            yield extender


@contextlib.contextmanager
def _extender(cores: Cores, source: Sequence[str], api_port: int, policy: pathlib.Path = POLICY) -> Iterator[Extender]:
    command = [sys.executable, "-m", "railwright.cli", "extender", "--listen=127.0.0.1:0", "--ops-listen=127.0.0.1:0"]
    command += [f"--policy={policy}", "--plain-http", "--drain-seconds=0", *source]
    with machine.started(command, cores.server) as process:
        port = machine.port_told(process)
        extender = Extender(port, machine.port_told(process, "ops listening on"), process.pid, api_port)
        extender.ready()
        yield extender


@contextlib.contextmanager
def calling(extender: Extender) -> Iterator[tuple[loads.Caller, loads.Caller]]:
    """Connections to the extender and to the API server it watches."""
    with loads.calling(extender.port) as caller, loads.calling(extender.api_port) as api:
        yield caller, api


# --- figures ------------------------------------------------------------------------------------------


def show(found: Mapping[str, Any]) -> None:
    """The table: each figure over all rounds, the noise between them, and its target."""
    shown = table.Table(title=f"the extender; {found['machine']['cpu']}, one core each for server and load")
    for title in ("figure", "n", "p50", "p99", "most", "±", "target", ""):
        shown.add_column(title, justify="left" if title == "figure" else "right")
    for name in dict.fromkeys(name for each in found["rounds"] for name in each["figures"]):
        rounds = [each["figures"][name] for each in found["rounds"] if name in each["figures"]]
        shown.add_row(name, *_cells(name, rounds))
    out = console.Console(width=140)
    out.print(shown)
    out.print("p50, p99 and most over all rounds, ms (memory: MiB); ±: half the spread between the rounds")
    for name in (f"{figure}, {fill}" for figure in _COMPARED for fill in ("half full", "9 in 10 full")):
        for suffix in (_EXTENDED, _CLAIMS):
            if (ratio := _compare(found["rounds"], name, suffix)) is not None:
                reached = "met" if ratio <= _SLOWER else "missed"
                out.print(f"{name}{suffix} / by device plugins: {ratio:.2f} (target: at most {_SLOWER}: {reached})")
    gauges = [each["gauge_us"] for each in found["rounds"]]
    out.print(f"fixed piece of work between rounds: {min(gauges):.0f} to {max(gauges):.0f} µs (a quiet machine: level)")


def _compare(rounds: Sequence[Mapping[str, Any]], name: str, suffix: str) -> float | None:
    """Return the ratio of medians with slices to those without; None if only one of them was measured."""
    middles = []
    for figure in (name + suffix, name):
        values = [value for each in rounds for value in each["figures"].get(figure, ())]
        middles.append(statistics.median(values) if values else None)
    with_slices, without = middles
    return with_slices / without if with_slices and without else None


def _cells(name: str, rounds: Sequence[Sequence[float]]) -> list[str]:
    samples = sorted(value for each in rounds for value in each)
    target = TARGETS.get(name)
    aim = target.quantile if target else 0.5
    each = [quantile(sorted(values), aim) for values in rounds]
    middle = statistics.median(each)
    noise = f"{(max(each) - min(each)) / 2 / middle:.0%}" if len(each) > 1 and middle else ""
    cells = [str(len(samples)), *(_figure(quantile(samples, q)) for q in (0.5, 0.99, 1.0)), noise]
    if target is None:
        return [*cells, "", ""]
    met = quantile(samples, aim) < target.below
    return [*cells, f"p{aim * 100:.0f} < {target.below:g} {target.unit}", "met" if met else "missed"]


def quantile(ordered: Sequence[float], share: float) -> float:
    """The smallest sample that `share` of the samples do not exceed."""
    return ordered[min(len(ordered) - 1, max(0, -(-len(ordered) * round(share * 1000) // 1000) - 1))]


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}" if abs(value) >= 1 else f"{value:.3f}"


def _milli(seconds: Sequence[float]) -> list[float]:
    return [value * _MILLI for value in seconds]


if __name__ == "__main__":
    sys.exit(main())
