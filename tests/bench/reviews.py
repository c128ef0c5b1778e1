"""Compares the webhook with a webhook in Go, in one run.

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

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]

REVIEW = ROOT / "tests" / "data" / "wire" / "admission-pods-bench.json"
SECONDS, RATE = 5, 500
GO = "Go reference"
_DIFFER = {"railwright, every pod of another job": "jobs", "railwright, every pod with a plan of its own": "plan"}
# reviews per second of other webhooks, measured together on another machine; the target is a ratio to them
OTHER_WEBHOOKS = {"network-resources-injector": 1114, "HAMi": 588, GO: 5264}


def main() -> int:
    """Measure the rows, print a table and write the figures."""
    options = machine.parse_options(
        __doc__, rounds=3, seconds=SECONDS, only=("railwright, pods of one gang", *_DIFFER, GO)
    )
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
        GO: lambda: _start_go(load, keys, cores[0]),
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
    options = [f"--policy={HERE / 'policy.yaml'}", f"--snapshot={HERE / 'snapshot.yaml'}"]
    options += [f"--tls-cert={keys['cert']}", f"--tls-key={keys['key']}"]
    with machine.start_server(*options, core=core, waits=False, program=("-m", "webhook")) as server:
        yield server.port, server.pid


@contextlib.contextmanager
def _start_go(load: pathlib.Path, keys: Mapping[str, pathlib.Path], core: int) -> Iterator[tuple[int, int]]:
    from plane import ports

    port = ports.free()
    command = [str(load), "ref", "-addr", f"127.0.0.1:{port}", "-cert", str(keys["cert"]), "-key", str(keys["key"])]
    with machine.start_process(command, core) as process:
        deadline = time.monotonic() + 10
        while not _accepts(port):
            if time.monotonic() > deadline:
                raise SystemExit(f"wbench ref does not listen on {port}")
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
    rounds: dict[str, list[Any]] = {}
    for one_round in results["rounds"]:
        rounds.setdefault(one_round["row"], []).append(one_round)

    def list_figures(name: str, load: str, figure: str) -> list[float]:
        return [one_round[load][figure] for one_round in rounds[name]]

    medians = {name: statistics.median(list_figures(name, "closed", "rate")) for name in rounds}
    cpu = {name: statistics.median(list_figures(name, "closed", "cpu_s_per_1000")) for name in rounds}

    def format_spread(name: str) -> str:
        rates = list_figures(name, "closed", "rate")
        return f"{(max(rates) - min(rates)) / 2 / medians[name]:.0%}"

    columns: Mapping[str, Callable[[str], str]] = {
        "server": str,
        "reviews/s": lambda name: f"{medians[name]:,.0f}",
        "±": format_spread,
        "p99 ms at 500/s": lambda name: f"{statistics.median(list_figures(name, 'open', 'p99_ms')):.2f}",
        "CPU s / 1,000": lambda name: f"{cpu[name]:.3f}",
        "PSS MiB": lambda name: f"{statistics.median(one['pss_mib'] for one in rounds[name]):.0f}",
        "faults / request": lambda name: f"{statistics.median(list_figures(name, 'closed', 'faults_per_request')):.2f}",
    }
    title = f"{results['machine']['cpu']}, one core each for server and load, TLS 1.3, 8 connections"
    machine.print_table(title, columns, rounds)
    print(machine.describe_disturbance([one_round["fixed_work_us"] for one_round in results["rounds"]]))
    for name in [name for name in medians if name.startswith("railwright") and GO in medians]:
        ratio = medians[name] / medians[GO]
        others = {webhook: rate for webhook, rate in OTHER_WEBHOOKS.items() if webhook != GO}
        comparisons = ", ".join(
            f"{ratio * OTHER_WEBHOOKS['Go reference'] / rate:.1f} of {webhook}" for webhook, rate in others.items()
        )
        by_cpu = cpu[GO] / cpu[name]  # says more on a machine that does other work
        print(f"{name}: {ratio:.2f} of the Go reference, {by_cpu:.2f} by CPU time; elsewhere: {comparisons}")


if __name__ == "__main__":
    sys.exit(main())
