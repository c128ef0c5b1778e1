"""`make bench`: the webhook beside a careful Go webhook and a bare echo, in one run, as ratios.

Measures reviews a second (closed loop), latency at a fixed rate (open loop), CPU and memory of the server, and page
faults a request. The server has the first core this process may use, the load the last; loopback only; every process
is ended by its id. Rounds go round robin over the rows, and a fixed piece of work between them shows how disturbed the
machine was. Writes build/bench/webhook.json.
"""

import argparse
import contextlib
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT), str(ROOT / "tests" / "controlplane"), str(ROOT / "tests" / "support")]

import machine  # noqa: E402 - the path is set above: this file is run by itself
import shell  # noqa: E402
from plane import binaries  # noqa: E402
from rich import console, table  # noqa: E402

REVIEW = ROOT / "tests" / "data" / "wire" / "admission-pods-bench.json"
SECONDS, RATE = 5, 500
_STRANGERS = "every pod another"
# reviews a second of the peers on the machine and hour the target's ratios come from (webhook-speed.md section 2)
PEERS = {"network-resources-injector": 1114, "HAMi": 588, "Go reference": 5264}


def main() -> int:
    """Run the rows, print a table, write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=SECONDS)
    parser.add_argument("--only", help="a row's name", action="append")
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        found = _measure(folder, cores, options)
    out = ROOT / "build" / "bench"
    out.mkdir(parents=True, exist_ok=True)
    (out / "webhook.json").write_text(json.dumps(found, indent=1))
    _show(found)
    return 0


def _measure(folder: pathlib.Path, cores: Sequence[int], options: argparse.Namespace) -> dict[str, Any]:
    load = _built()
    authority = shell.Authority(folder)
    certificate, key = shell.write_pair(folder, authority.leaf("bench"))
    review = json.loads(REVIEW.read_text())
    review["request"]["object"]["metadata"]["labels"]["railwright.io/fabric"] = "roce"
    (folder / "review.json").write_text(json.dumps(review, separators=(",", ":")))
    keys = {"cert": certificate, "key": key}
    rows: dict[str, Callable[[], Any]] = {
        "railwright, mates of a gang": lambda: _ours(keys, cores[0]),
        "railwright, every pod another job's": lambda: _ours(keys, cores[0]),
        "Go reference": lambda: _go(load, "ref", keys, cores[0]),
        "Go echo": lambda: _go(load, "echo", keys, cores[0]),
    }
    wanted = options.only or list(rows)
    rounds: list[dict[str, Any]] = []
    for number in range(options.rounds):
        for name in wanted:
            with rows[name]() as (port, pid):
                said = _round(load, folder, authority, port, pid, cores[-1], options.seconds, _STRANGERS in name)
            rounds.append({"row": name, "round": number, "gauge_us": machine.gauge(), **said})
            print(f"{name}: {said['closed']['rate']:.0f}/s", file=sys.stderr, flush=True)
    return {
        "machine": {"cpu": machine.cpu(), "cores": len(cores), "python": platform.python_version()},
        "seconds": options.seconds,
        "rate": RATE,
        "review_bytes": (ROOT / "tests/data/wire/admission-pods-bench.json").stat().st_size,
        "rounds": rounds,
    }


def _round(
    load: pathlib.Path,
    folder: pathlib.Path,
    authority: shell.Authority,
    port: int,
    pid: int,
    core: int,
    seconds: int,
    strangers: bool,  # noqa: FBT001 - one of eight, told by its name there
) -> dict[str, Any]:
    common = [str(load), "load", "-addr", f"127.0.0.1:{port}", "-path", "/mutate/pods"]
    common += ["-review", str(folder / "review.json"), "-ca", str(authority.path), "-duration", f"{seconds}s"]
    common += ["-strangers"] if strangers else []
    closed = _loaded([*common, "-conns", "8"], pid, core)
    opened = _loaded([*common, "-conns", "8", "-rate", str(RATE)], pid, core)
    return {"closed": closed, "open": opened, "pss_mib": machine.pss(pid)}


def _loaded(command: Sequence[str], pid: int, core: int) -> dict[str, Any]:
    """One run of the load; the server's own clocks are read at its two marks."""
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),  # noqa: PLW1509 - one thread here
    ) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None  # noqa: PT018 - pipes were asked for
        try:
            marks = []
            for _ in ("go", "done"):
                process.stderr.readline()
                marks.append(machine.clocks(pid))
                process.stdin.write("\n")
                process.stdin.flush()
            said: dict[str, Any] = json.loads(process.stdout.read())
            process.wait(30)
        finally:
            process.kill()
    (cpu0, faults0), (cpu1, faults1) = marks
    said["cpu_s_per_1000"] = (cpu1 - cpu0) / max(1, said["requests"]) * 1000
    said["faults_per_request"] = (faults1 - faults0) / max(1, said["requests"])
    if said["errors"]:
        raise SystemExit(f"{said['errors']} requests failed, the first one: {said['first_error']}")
    return said


@contextlib.contextmanager
def _ours(keys: Mapping[str, pathlib.Path], core: int) -> Iterator[tuple[int, int]]:
    command = [sys.executable, "-m", "webhook", "--listen=127.0.0.1:0", "--ops-listen=127.0.0.1:0"]
    command += [f"--policy={HERE / 'policy.yaml'}", f"--snapshot={HERE / 'snapshot.yaml'}", "--drain-seconds=0"]
    command += [f"--tls-cert={keys['cert']}", f"--tls-key={keys['key']}"]
    with machine.started(command, core) as process:
        yield machine.port_told(process), process.pid


@contextlib.contextmanager
def _go(load: pathlib.Path, verb: str, keys: Mapping[str, pathlib.Path], core: int) -> Iterator[tuple[int, int]]:
    from plane import ports

    port = ports.free()
    command = [str(load), verb, "-addr", f"127.0.0.1:{port}", "-cert", str(keys["cert"]), "-key", str(keys["key"])]
    with machine.started(command, core) as process:
        deadline = time.monotonic() + 10
        while not _listens(port):
            if time.monotonic() > deadline:
                raise SystemExit(f"wbench {verb} does not listen on {port}")
            time.sleep(0.02)
        yield port, process.pid


def _listens(port: int) -> bool:
    import socket

    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _built() -> pathlib.Path:
    """The load generator, built once a version of its source."""
    out = ROOT / "build" / "bench" / "wbench"
    newest = max(path.stat().st_mtime for path in (HERE / "wbench").iterdir())
    if not out.exists() or out.stat().st_mtime < newest:
        out.parent.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "", "GOWORK": "off"}
        subprocess.run(
            [binaries.toolchain(), "build", "-o", str(out), "."], cwd=HERE / "wbench", env=environment, check=True
        )
    return out


def _show(found: Mapping[str, Any]) -> None:
    shown = table.Table(title=f"{found['machine']['cpu']}, one core each for server and load, TLS 1.3, 8 connections")
    for title in ("server", "reviews/s", "±", "p99 ms at 500/s", "CPU s / 1,000", "PSS MiB", "faults / request"):
        shown.add_column(title, justify="left" if title == "server" else "right")
    medians: dict[str, float] = {}
    for name in dict.fromkeys(each["row"] for each in found["rounds"]):
        rounds = [each for each in found["rounds"] if each["row"] == name]
        rates = [each["closed"]["rate"] for each in rounds]
        medians[name] = statistics.median(rates)
        shown.add_row(
            name,
            f"{medians[name]:,.0f}",
            f"{(max(rates) - min(rates)) / 2 / medians[name]:.0%}",
            f"{statistics.median(each['open']['p99_ms'] for each in rounds):.2f}",
            f"{statistics.median(each['closed']['cpu_s_per_1000'] for each in rounds):.3f}",
            f"{statistics.median(each['pss_mib'] for each in rounds):.0f}",
            f"{statistics.median(each['closed']['faults_per_request'] for each in rounds):.2f}",
        )
    out = console.Console()
    out.print(shown)
    gauges = [each["gauge_us"] for each in found["rounds"]]
    out.print(f"fixed piece of work between rounds: {min(gauges):.0f} to {max(gauges):.0f} µs (a quiet machine: level)")
    for name in [each for each in medians if each.startswith("railwright") and "Go reference" in medians]:
        ratio = medians[name] / medians["Go reference"]
        rest = {peer: rate for peer, rate in PEERS.items() if peer != "Go reference"}
        there = ", ".join(f"{ratio * PEERS['Go reference'] / rate:.1f} of {peer}" for peer, rate in rest.items())
        out.print(f"{name}: {ratio:.2f} of the Go reference; by its rate beside the peers elsewhere: {there}")


if __name__ == "__main__":
    sys.exit(main())
