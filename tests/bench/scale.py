"""Measures the memory of both servers in large clusters: when started, at rest, and after a relist.

Each row starts a server over a generated cluster (`crowds`), whose API server runs as another process. `--size` has
other sizes, NODES/PODS. Writes build/bench/scale.json.
"""

import contextlib
import json
import pathlib
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import api_stub
import crowds
import machine

HERE = pathlib.Path(__file__).resolve().parent
SIZES = ("500/10000", "1000/10000", "1000/100000", "5000/100000")
SERVERS = ("webhook", "extender")
SETTLE_SECONDS = 3.0
CHANGED = 0.1  # of the pods, while a watch was away: a list after minutes of trouble


def main() -> int:
    """Run the rows, print a table, write the figures."""
    options = machine.parse_options(__doc__, size="", only=list(SERVERS))
    rows: list[dict[str, Any]] = []
    for text in options.size.split() or SIZES:
        size = crowds.Size(*map(int, text.split("/")))
        for name in options.only or SERVERS:
            with tempfile.TemporaryDirectory() as folder, serve(name, size, pathlib.Path(folder)) as (server, api_port):
                rows.append({"server": name, "nodes": size.nodes, "pods": size.pods, **measure(server, api_port, size)})
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    results = machine.write_results("scale", rows=rows)
    figures: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
        "server": lambda row: str(row["server"]),
        "nodes / pods": lambda row: f"{row['nodes']:,} / {row['pods']:,}",
        "MiB at rest": lambda row: f"{row['rest_mib']:.0f}",
        "most, start": lambda row: f"{row['start_peak_mib']:.0f}",
        "most, relist": lambda row: f"{row['relist_peak_mib']:.0f}",
        "ready s": lambda row: f"{row['ready_s']:.1f}",
    }
    machine.print_table(results["machine"]["cpu"], figures, rows)
    return 0


@contextlib.contextmanager
def serve(name: str, size: crowds.Size, folder: pathlib.Path) -> Iterator[tuple[machine.Server, int]]:
    """Start a server on a generated cluster. Yield it, ready, and the port of its API server."""
    command = [sys.executable, str(HERE / "crowd_server.py"), str(size.nodes), str(size.pods)]
    with machine.start(command, None) as source:
        api_port = machine.read_port(source)
        config = api_stub.kubeconfig(folder, api_port)
        options = (f"--policy={HERE / 'scale.yaml'}", "--plain-http", f"--kubeconfig={config}")
        with machine.serve(name, *options, core=None) as server:
            yield server, api_port


def measure(server: machine.Server, api_port: int, size: crowds.Size) -> dict[str, float]:
    """Return the server's resident memory in MiB, as the kernel compares it with a container's limit."""
    start_peak = machine.read_peak_rss(server.pid)
    time.sleep(SETTLE_SECONDS)
    rest = machine.read_rss(server.pid)
    machine.reset_peak_rss(server.pid)
    relist(api_port, round(size.pods * CHANGED))
    return {
        "ready_s": server.started_seconds,
        "start_peak_mib": start_peak,
        "rest_mib": rest,
        "relist_peak_mib": machine.read_peak_rss(server.pid),
    }


def relist(api_port: int, changed: int) -> None:
    """End the server's watches with 410 Gone, and wait until it has listed every kind and watches again."""
    before = read_state(api_port)
    url = f"http://127.0.0.1:{api_port}/bench/expire?changed={changed}"
    urllib.request.urlopen(url, data=b"", timeout=60).close()
    while read_state(api_port)["opened"] < before["opened"] + before["open"]:
        time.sleep(0.05)


def read_state(api_port: int) -> dict[str, int]:
    """Return the numbers of watches opened so far, and of open watches."""
    with urllib.request.urlopen(f"http://127.0.0.1:{api_port}/bench/state", timeout=60) as answer:
        state: dict[str, int] = json.load(answer)
    return state


if __name__ == "__main__":
    sys.exit(main())
