"""Options and tables of benchmarks, servers on one core, their CPU time and memory, and the machine's speed."""

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich import console, table

ROOT = pathlib.Path(__file__).resolve().parents[2]
_CORES = len(os.sched_getaffinity(0))  # before a bench keeps to one of them
_LISTENING = re.compile(r"^(?:\S+ )?listening on .*:(\d+)")


def parse_options(description: str | None, **defaults: Any) -> argparse.Namespace:
    """Parse an option for each default, of its type. A list has the choices of an option that may be repeated."""
    parser = argparse.ArgumentParser(description=description)
    for name, default in defaults.items():
        option = f"--{name.replace('_', '-')}"
        if isinstance(default, bool):
            parser.add_argument(option, action="store_true")
        elif isinstance(default, Sequence) and not isinstance(default, str):
            parser.add_argument(option, action="append", choices=default)
        else:
            parser.add_argument(option, type=type(default), default=default)
    return parser.parse_args()


def print_table(title: str, columns: Mapping[str, Callable[[Any], str]], rows: Iterable[Any], width: int = 120) -> None:
    """Print a row of cells for each of `rows`; the first column is text, the others are figures."""
    shown = table.Table(title=title)
    for number, name in enumerate(columns):
        shown.add_column(name, justify="right" if number else "left")
    for row in rows:
        shown.add_row(*(cell(row) for cell in columns.values()))
    console.Console(width=width).print(shown)


@dataclasses.dataclass(frozen=True)
class Server:
    """A server that has started."""

    pid: int
    port: int
    ops_port: int
    started_seconds: float  # from the start of its process until it listened or was ready

    @property
    def cpu(self) -> float:
        """Return its CPU seconds so far."""
        return read_cpu_seconds(self.pid)


@contextlib.contextmanager
def start_server(
    *words: str, core: int | None, waits: bool = True, program: Sequence[str] = ("-m", "railwright.cli")
) -> Iterator[Server]:
    """Start a server on free ports; wait until it is ready if it `waits`. Its log is read, so that no pipe fills."""
    ports = ("--listen=127.0.0.1:0", "--ops-listen=127.0.0.1:0", "--drain-seconds=0")
    began = time.perf_counter()
    with start_process([sys.executable, *program, *words, *ports], core) as process:
        port, ops_port = read_port(process), read_port(process, "ops listening on")
        threading.Thread(target=lambda: [None for _ in process.stderr or ()], daemon=True).start()
        if waits:
            wait_until_ready(ops_port)
        yield Server(process.pid, port, ops_port, time.perf_counter() - began)


@contextlib.contextmanager
def start_process(command: Sequence[str], core: int | None) -> Iterator[subprocess.Popen[str]]:
    """Start a process on one core, or on any if `core` is None; end it at the end of the context."""
    allowed = os.sched_getaffinity(0) if core is None else {core}
    with subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        preexec_fn=lambda: os.sched_setaffinity(0, allowed),  # noqa: PLW1509 - one thread here
    ) as process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.communicate(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()


def read_port(process: subprocess.Popen[str], beginning: str = "listening on") -> int:
    """Return the port of a line such as `listening on 127.0.0.1:8713`; without one, exit with the last of stderr."""
    assert process.stderr is not None  # `start` opens it
    lines = []
    for line in process.stderr:
        lines.append(line)
        if line.startswith(beginning) and (match := _LISTENING.match(line)):
            return int(match[1])
    raise SystemExit(f"{process.args} ended before it listened:\n{''.join(lines[-20:])}")


def read_clocks(pid: int) -> tuple[float, int]:
    """Return the CPU seconds and minor page faults of a process so far."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), int(fields[7])


def read_cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of a process's first thread so far, to the microsecond."""
    return int(pathlib.Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def read_waited_seconds(pid: int) -> float:
    """Return the seconds for which a process's first thread was ready to run and had no core."""
    return int(pathlib.Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9


def read_busy_seconds() -> float:
    """Return the CPU seconds of everything on the machine so far."""
    fields = pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _, _, irq, softirq = (int(field) for field in fields[:7])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def read_tree_seconds() -> float:
    """Return the CPU seconds of this process and all that it started, ended ones included, so far."""
    parents, seconds = {}, {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # one that has just ended
            fields = stat.read_text().rpartition(")")[2].split()
            pid = int(stat.parent.name)
            parents[pid] = int(fields[1])
            seconds[pid] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    tree = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in tree} - tree:
        tree |= more
    return sum(seconds[pid] for pid in tree)


def read_pss(pid: int) -> float:
    """Return the proportional share of memory, MiB."""
    match = re.search(r"^Pss:\s+(\d+) kB", pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    return int(match[1]) / 1024 if match else 0.0


def time_fixed_work() -> float:
    """Return the microseconds of a fixed piece of work, the best of 50: the present speed of the machine."""
    text = json.dumps({str(number): [number] * 20 for number in range(50)})
    best = float("inf")
    for _ in range(50):
        began = time.perf_counter()
        json.loads(text)
        best = min(best, time.perf_counter() - began)
    return best * 1e6


def read_cpu_model() -> str:
    """Return the name of the processor."""
    match = re.search(r"^model name\s*:\s*(.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return match[1] if match else platform.machine()


def write_results(name: str, **results: Any) -> dict[str, Any]:
    """Write results with a description of the machine to build/bench; return them."""
    described = {"cpu": read_cpu_model(), "cores": _CORES, "python": platform.python_version()}
    document = {"machine": described, **results}
    path = ROOT / "build" / "bench" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1))
    return document


def wait_until_ready(ops_port: int) -> None:
    """Wait until /readyz of a server answers. Exits if it does not in time."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{ops_port}/readyz", timeout=30).close()
            return
        time.sleep(0.05)
    raise SystemExit("the server is not ready after 300 s: see its /readyz")


def describe_disturbance(durations: Sequence[float]) -> str:
    """Return the speed of the machine between measurements, from `time_fixed_work`."""
    return f"fixed piece of work between rounds: {min(durations):.0f} to {max(durations):.0f} µs (constant if quiet)"


def find_quantile(samples: Sequence[float], share: float) -> float:
    """Return the smallest sample that `share` of the samples do not exceed; not a number without samples."""
    ordered = sorted(samples)
    if not ordered:
        return float("nan")
    return ordered[min(len(ordered) - 1, max(0, -(-len(ordered) * round(share * 1000) // 1000) - 1))]
