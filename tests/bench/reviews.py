"""`make bench-webhook`: compares the webhook with a webhook in Go and with a server that only echoes, in one run.

Measures reviews per second (closed loop), latency at a fixed rate (open loop), CPU time and memory of the server, and
page faults per request, over loopback. The server runs on the first core that this process may use, the load on the
last. Rounds alternate between the rows, and a fixed piece of work between them shows how much other work disturbed the
machine. Writes build/bench/webhook.json.
"""

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import machine
import shell
from plane import binaries
from rich import console, table

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]

REVIEW = ROOT / "tests" / "data" / "wire" / "admission-pods-bench.json"
SECONDS, RATE = 5, 500
_DIFFER = {"railwright, every pod of another job": "jobs", "railwright, every pod with a plan of its own": "plan"}
# reviews per second of other webhooks, measured together on another machine; the target is a ratio to them
OTHER_WEBHOOKS = {"network-resources-injector": 1114, "HAMi": 588, "Go reference": 5264}


def main() -> int:
    """Measure the rows, print a table and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=SECONDS)
    parser.add_argument("--only", help="a row's name", action="append")
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        results = _measure(folder, cores, options)
    _print_results(results)
    return 0


def _measure(folder: pathlib.Path, cores: Sequence[int], options: argparse.Namespace) -> dict[str, Any]:
    load = _build_load()
    authority = shell.Authority(folder)
    certificate, key = shell.write_pair(folder, authority.leaf("bench"))
    review = json.loads(REVIEW.read_text())
    review["request"]["object"]["metadata"]["labels"]["railwright.io/fabric"] = "roce"
    (folder / "review.json").write_text(json.dumps(review, separators=(",", ":")))
    keys = {"cert": certificate, "key": key}
    rows: dict[str, Callable[[], Any]] = {
        "railwright, pods of one gang": lambda: _start_railwright(keys, cores[0]),
        **{name: lambda: _start_railwright(keys, cores[0]) for name in _DIFFER},
        "Go reference": lambda: _start_go(load, "ref", keys, cores[0]),
        "Go echo": lambda: _start_go(load, "echo", keys, cores[0]),
    }
    names = options.only or list(rows)
    rounds: list[dict[str, Any]] = []
    for number in range(options.rounds):
        for name in names:
            with rows[name]() as (port, pid):
                differ = _DIFFER.get(name, "gang")
                figures = _measure_round(load, folder, authority, port, pid, cores[-1], options.seconds, differ)
            rounds.append({"row": name, "round": number, "fixed_work_us": machine.time_fixed_work(), **figures})
            print(f"{name}: {figures['closed']['rate']:.0f}/s", file=sys.stderr, flush=True)
    return machine.write_results(
        "webhook", seconds=options.seconds, rate=RATE, review_bytes=REVIEW.stat().st_size, rounds=rounds
    )


def _measure_round(
    load: pathlib.Path,
    folder: pathlib.Path,
    authority: shell.Authority,
    port: int,
    pid: int,
    core: int,
    seconds: int,
    differ: str,
) -> dict[str, Any]:
    common = [str(load), "load", "-addr", f"127.0.0.1:{port}", "-path", "/mutate/pods"]
    common += ["-review", str(folder / "review.json"), "-ca", str(authority.path), "-duration", f"{seconds}s"]
    common += ["-differ", differ]
    closed = _run_load([*common, "-conns", "8"], pid, core)
    opened = _run_load([*common, "-conns", "8", "-rate", str(RATE)], pid, core)
    return {"closed": closed, "open": opened, "pss_mib": machine.read_pss(pid)}


def _run_load(command: Sequence[str], pid: int, core: int) -> dict[str, Any]:
    """Run the load once, and read the server's clocks when it begins and when it ends."""
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),  # noqa: PLW1509 - one thread here
    ) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None  # noqa: PT018 - the pipes above
        try:
            clocks = []
            for _ in ("go", "done"):
                process.stderr.readline()
                clocks.append(machine.read_clocks(pid))
                process.stdin.write("\n")
                process.stdin.flush()
            figures: dict[str, Any] = json.loads(process.stdout.read())
            process.wait(30)
        finally:
            process.kill()
    (cpu0, faults0), (cpu1, faults1) = clocks
    figures["cpu_s_per_1000"] = (cpu1 - cpu0) / max(1, figures["requests"]) * 1000
    figures["faults_per_request"] = (faults1 - faults0) / max(1, figures["requests"])
    if figures["errors"]:
        raise SystemExit(f"{figures['errors']} requests failed, the first one: {figures['first_error']}")
    return figures


@contextlib.contextmanager
def _start_railwright(keys: Mapping[str, pathlib.Path], core: int) -> Iterator[tuple[int, int]]:
    command = [sys.executable, "-m", "webhook", "--listen=127.0.0.1:0", "--ops-listen=127.0.0.1:0"]
    command += [f"--policy={HERE / 'policy.yaml'}", f"--snapshot={HERE / 'snapshot.yaml'}", "--drain-seconds=0"]
    command += [f"--tls-cert={keys['cert']}", f"--tls-key={keys['key']}"]
    with machine.start(command, core) as process:
        yield machine.read_port(process), process.pid


@contextlib.contextmanager
def _start_go(load: pathlib.Path, verb: str, keys: Mapping[str, pathlib.Path], core: int) -> Iterator[tuple[int, int]]:
    from plane import ports

    port = ports.free()
    command = [str(load), verb, "-addr", f"127.0.0.1:{port}", "-cert", str(keys["cert"]), "-key", str(keys["key"])]
    with machine.start(command, core) as process:
        deadline = time.monotonic() + 10
        while not _accepts(port):
            if time.monotonic() > deadline:
                raise SystemExit(f"wbench {verb} does not listen on {port}")
            time.sleep(0.02)
        yield port, process.pid


def _accepts(port: int) -> bool:
    import socket

    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _build_load() -> pathlib.Path:
    """Return the load generator. Builds it if its source has changed."""
    out = ROOT / "build" / "bench" / "wbench"
    newest = max(path.stat().st_mtime for path in (HERE / "wbench").iterdir())
    if not out.exists() or out.stat().st_mtime < newest:
        out.parent.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "", "GOWORK": "off"}
        subprocess.run(
            [binaries.toolchain(), "build", "-o", str(out), "."], cwd=HERE / "wbench", env=environment, check=True
        )
    return out


def _print_results(results: Mapping[str, Any]) -> None:
    rows = table.Table(title=f"{results['machine']['cpu']}, one core each for server and load, TLS 1.3, 8 connections")
    for title in ("server", "reviews/s", "±", "p99 ms at 500/s", "CPU s / 1,000", "PSS MiB", "faults / request"):
        rows.add_column(title, justify="left" if title == "server" else "right")
    medians: dict[str, float] = {}
    cpu: dict[str, float] = {}
    for name in dict.fromkeys(one_round["row"] for one_round in results["rounds"]):
        rounds = [one_round for one_round in results["rounds"] if one_round["row"] == name]
        rates = [one_round["closed"]["rate"] for one_round in rounds]
        medians[name] = statistics.median(rates)
        cpu[name] = statistics.median(one_round["closed"]["cpu_s_per_1000"] for one_round in rounds)
        rows.add_row(
            name,
            f"{medians[name]:,.0f}",
            f"{(max(rates) - min(rates)) / 2 / medians[name]:.0%}",
            f"{statistics.median(one_round['open']['p99_ms'] for one_round in rounds):.2f}",
            f"{cpu[name]:.3f}",
            f"{statistics.median(one_round['pss_mib'] for one_round in rounds):.0f}",
            f"{statistics.median(one_round['closed']['faults_per_request'] for one_round in rounds):.2f}",
        )
    out = console.Console()
    out.print(rows)
    out.print(machine.describe_disturbance([one_round["fixed_work_us"] for one_round in results["rounds"]]))
    for name in [name for name in medians if name.startswith("railwright") and "Go reference" in medians]:
        ratio = medians[name] / medians["Go reference"]
        others = {webhook: rate for webhook, rate in OTHER_WEBHOOKS.items() if webhook != "Go reference"}
        comparisons = ", ".join(
            f"{ratio * OTHER_WEBHOOKS['Go reference'] / rate:.1f} of {webhook}" for webhook, rate in others.items()
        )
        by_cpu = cpu["Go reference"] / cpu[name]  # says more on a machine that does other work
        out.print(f"{name}: {ratio:.2f} of the Go reference, {by_cpu:.2f} by CPU time; elsewhere: {comparisons}")


if __name__ == "__main__":
    sys.exit(main())
