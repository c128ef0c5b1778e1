"""The cost of both servers in large clusters, and how a relist delays requests.

Each row starts a server on the first core this process may use, over a made cluster (`crowds`) whose API server runs
niced beside the load on the last core. Measured: memory when started, at rest and at its highest; CPU of the start, of
200 changes of pods a second and of a relist; time to ready; and how long callers at a steady pace wait before,
during and after that list. The longest turns of the event loop come from a run of their own (`turns`), in CPU time.
`--size` has other sizes, NODES/PODS. Writes build/bench/scale.json.
"""

import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import signal
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import api_stub
import bodies
import crowds
import loads
import machine

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]

REVIEW = ROOT / "tests" / "data" / "wire" / "admission-pods-bench.json"
SIZES = ("500/10000", "1000/10000", "1000/100000", "5000/100000")
QUIET_SECONDS, SETTLE_SECONDS, TRAFFIC_SECONDS, TRAFFIC = 8.0, 3.0, 10.0, 200
CHANGED = 0.1  # of the pods, while a watch was away: a list after minutes of trouble
NICE = 10  # the API server's: it must not hold up the load beside it
Wires = Callable[[crowds.Crowd], Iterator[bytes]]


@dataclasses.dataclass(frozen=True)
class ReverseProxy:
    """A server, and the requests that are sent to it at a steady rate."""

    command: str
    wires: Wires
    rate: float  # requests a second
    connections: int


@dataclasses.dataclass(frozen=True)
class Running:
    """A server and the port of the API server behind it."""

    server: machine.Server
    api: int

    @property
    def pid(self) -> int:
        return self.server.pid

    def cpu(self) -> float:
        """CPU seconds so far."""
        return machine.read_clocks(self.pid)[0]

    def read_counts(self) -> Mapping[str, int]:
        """Return the API server's state."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.api}/bench/state", timeout=60) as answer:
            document: Mapping[str, int] = json.load(answer)
        return document

    def tell(self, what: str) -> None:
        """Send a command to the API server."""
        urllib.request.urlopen(f"http://127.0.0.1:{self.api}/bench/{what}", data=b"", timeout=60).close()

    def relist(self, changed: int) -> tuple[float, float]:
        """Make the server relist. Return the start and the end by time.perf_counter."""
        before = self.read_counts()["watches"]
        self.tell(f"expire?changed={changed}")
        began = time.perf_counter()
        while self.read_counts()["watches"] == before:
            time.sleep(0.05)
        return began, time.perf_counter()


def main() -> int:
    """Run the rows, print a table, write the figures."""
    options = machine.parse_options(__doc__, size="", only=list(DOORS), no_turns=False)
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[-1]})
    rows: list[dict[str, Any]] = []
    for text in options.size.split() or SIZES:
        size = crowds.Size(*map(int, text.split("/")))
        for name in options.only or list(DOORS):
            with tempfile.TemporaryDirectory() as folder:
                row = {
                    "server": name,
                    "nodes": size.nodes,
                    "pods": size.pods,
                    "fixed_work_us": machine.time_fixed_work(),
                }
                row |= _row(DOORS[name], size, cores, pathlib.Path(folder))
                row |= {} if options.no_turns else _turns(DOORS[name], size, cores, pathlib.Path(folder))
            rows.append(row | {"load": os.getloadavg()[0]})
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    results = machine.write_results("scale", rows=rows)
    show(results)
    return 0


# --- what is measured ---------------------------------------------------------------------------------


def _row(proxy: ReverseProxy, size: crowds.Size, cores: Sequence[int], folder: pathlib.Path) -> dict[str, Any]:
    changed = round(size.pods * CHANGED)
    with _serving(proxy, size, cores, folder) as running:
        measures = {"ready_s": running.server.started_seconds, "start_cpu_s": running.cpu()}
        measures |= {"start_peak_mib": machine.read_peak_rss(running.pid)}
        time.sleep(SETTLE_SECONDS)
        measures |= {"rest_mib": machine.read_rss(running.pid), "rest_pss_mib": machine.read_pss(running.pid)}
        measures["rest_cores"] = _cores(running, TRAFFIC_SECONDS)
        running.tell(f"traffic?rate={TRAFFIC}")
        measures["traffic_cores"] = _cores(running, TRAFFIC_SECONDS)
        running.tell("traffic?rate=0")
        machine.reset_peak_rss(running.pid)
        measures |= _waits(proxy, size, running, changed)
        measures |= {"relist_peak_mib": machine.read_peak_rss(running.pid), "end_mib": machine.read_rss(running.pid)}
        return measures


def _waits(proxy: ReverseProxy, size: crowds.Size, running: Running, changed: int) -> dict[str, Any]:
    """Measure how long callers wait before, during and after a relist."""
    ended = threading.Event()
    spans: list[tuple[float, float, float, float]] = []

    def relist() -> None:
        time.sleep(QUIET_SECONDS)
        cpu, waited_seconds = running.cpu(), machine.read_waited_seconds(running.pid)
        began, over = running.relist(changed)
        waited_seconds = machine.read_waited_seconds(running.pid) - waited_seconds
        spans.append((began, over, running.cpu() - cpu, waited_seconds))
        time.sleep(QUIET_SECONDS)
        ended.set()

    thread = threading.Thread(target=relist)
    thread.start()
    samples = loads.send_at_rate(
        running.server.port, proxy.wires(crowds.Crowd(size)), proxy.rate, proxy.connections, ended.is_set
    )
    thread.join()
    began, over, cpu, waited_seconds = spans[0]
    measures: dict[str, Any] = {"relist_s": over - began, "relist_cpu_s": cpu, "relist_without_core_s": waited_seconds}
    for name, delays in (
        ("before", [sample.answered - sample.due for sample in samples if sample.due < began]),
        ("during", [sample.answered - sample.due for sample in samples if began <= sample.due < over]),
        ("after", [sample.answered - sample.due for sample in samples if sample.due >= over]),
    ):
        measures[name] = {
            "n": len(delays),
            **{f"p{q * 100:g}": machine.find_quantile(delays, q) * 1e3 for q in (0.5, 0.99, 1.0)},
        }
    return measures


def _turns(proxy: ReverseProxy, size: crowds.Size, cores: Sequence[int], folder: pathlib.Path) -> dict[str, Any]:
    """Measure the longest turns of the loop, in CPU milliseconds, at the start, at rest and during a relist."""
    out = folder / "turns.json"

    def read_longest_turns(running: Running) -> list[tuple[float, str]]:
        out.unlink(missing_ok=True)
        os.kill(running.pid, signal.SIGUSR1)
        while not out.exists():
            time.sleep(0.05)
        turns: list[tuple[float, str]] = json.loads(out.read_text())
        return turns[:5]

    with _serving(proxy, size, cores, folder, [str(HERE / "turns.py"), str(out)]) as running:
        time.sleep(SETTLE_SECONDS)  # caches full: what is done once after that belongs to the start
        start = read_longest_turns(running)
        running.tell(f"traffic?rate={TRAFFIC}")
        time.sleep(2 * TRAFFIC_SECONDS)
        running.tell("traffic?rate=0")
        traffic = read_longest_turns(running)
        running.relist(round(size.pods * CHANGED))
        time.sleep(1)
        return {"turns": {"start": start, "traffic": traffic, "relist": read_longest_turns(running)}}


def _cores(running: Running, seconds: float) -> float:
    """Return the share of one core that was used."""
    cpu, began = running.cpu(), time.perf_counter()
    time.sleep(seconds)
    return (running.cpu() - cpu) / (time.perf_counter() - began)


# --- servers ------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _serving(
    proxy: ReverseProxy,
    size: crowds.Size,
    cores: Sequence[int],
    folder: pathlib.Path,
    program: Sequence[str] = ("-m", "railwright.cli"),
) -> Iterator[Running]:
    api = [sys.executable, str(HERE / "crowd_server.py"), str(size.nodes), str(size.pods)]
    with machine.start(api, cores[-1]) as source:
        os.setpriority(os.PRIO_PROCESS, source.pid, NICE)
        api_port = machine.read_port(source)
        config = api_stub.kubeconfig(folder, api_port)
        options = (f"--policy={HERE / 'scale.yaml'}", "--plain-http", f"--kubeconfig={config}")
        with machine.serve(proxy.command, *options, core=cores[0], program=program) as server:
            yield Running(server, api_port)


def _reviews(_: crowds.Crowd) -> Iterator[bytes]:
    review = json.loads(REVIEW.read_text())
    review["request"]["object"]["metadata"]["labels"]["railwright.io/fabric"] = "roce"
    review["request"]["namespace"] = "team-research-001"
    wire = loads.build_request("/mutate/pods", json.dumps(review, separators=(",", ":")).encode())
    return itertools.repeat(wire)


def _pairs(crowd: crowds.Crowd) -> Iterator[bytes]:
    """Filter and prioritize of waiting pods in turn, all nodes offered."""
    first = crowd.size.running
    for number in itertools.count():
        pod = crowds.training_pod(*divmod(first + number % crowd.size.waiting, crowds.GANG))
        for verb in ("filter", "prioritize"):
            yield loads.build_request(f"/scheduler/{verb}", bodies.kube(pod, crowd.names))


DOORS: Mapping[str, ReverseProxy] = {
    "webhook": ReverseProxy("webhook", _reviews, 500, 4),
    "extender": ReverseProxy("extender", _pairs, 20, 1),
}


def show(results: Mapping[str, Any]) -> None:
    """Print the tables."""
    figures: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
        "server": lambda row: str(row["server"]),
        "nodes / pods": lambda row: f"{row['nodes']:,} / {row['pods']:,}",
        "MiB at rest": lambda row: f"{row['rest_mib']:.0f}",
        "most, start": lambda row: f"{row['start_peak_mib']:.0f}",
        "most, relist": lambda row: f"{row['relist_peak_mib']:.0f}",
        "ready s": lambda row: f"{row['ready_s']:.1f}",
        "CPU s, start": lambda row: f"{row['start_cpu_s']:.1f}",
        "CPU s, relist": lambda row: f"{row['relist_cpu_s']:.1f}",
        "s, of them without a core": lambda row: f"{row['relist_s']:.1f}, {row['relist_without_core_s']:.1f}",
        "cores at 0, 200 changes/s": lambda row: f"{row['rest_cores']:.3f}, {row['traffic_cores']:.3f}",
        "p50 / p99 / most ms before": lambda row: _three(row["before"]),
        "during": lambda row: _three(row["during"]),
        "after": lambda row: _three(row["after"]),
        "longest turn, CPU ms: start, changes, relist": lambda row: ", ".join(
            f"{row['turns'][phase][0][0]:.0f}" for phase in ("start", "traffic", "relist") if "turns" in row
        ),
    }
    title = f"{results['machine']['cpu']}, one core for the server, one for load and API server"
    machine.print_table(title, figures, results["rows"], 200)
    gauges = [row["fixed_work_us"] for row in results["rows"]]
    loaded = statistics.median(row["load"] for row in results["rows"])
    print(f"fixed piece of work: {min(gauges):.0f} to {max(gauges):.0f} µs; load average {loaded:.1f} at the median")


def _three(span: Mapping[str, float]) -> str:
    return f"{span['p50']:.1f} / {span['p99']:.1f} / {span['p100']:.0f}"


if __name__ == "__main__":
    sys.exit(main())
