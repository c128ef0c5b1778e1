"""Measures how checks of large policies slow reviews of pods: their latency, and the longest turns of the event loop.

`python validation.py [--callers 4] [--seconds 10] [--rate 100]`: a webhook reviews pods at a fixed rate, alone, then
while callers have policies of a mebibyte checked without a pause: valid ones, and the text that takes longest. Rejected
callers repeat after Retry-After. Turns are CPU time (turns.py), so other processes do not make them longer. Latencies
need two quiet cores.
"""

import argparse
import asyncio
import collections
import json
import os
import pathlib
import signal
import tempfile
import time
from collections.abc import Mapping

import admitting
import machine
import processes
import shell

MEBIBYTE = 1 << 20
TIMEOUT = "/validate/policy?timeout=30s"


def good() -> str:
    """Return a valid policy with as many fabrics of eight rails as fit into a ConfigMap."""
    rail = "    - {{name: rail{0}, network: prod/net{0}, resource: nvidia.com/mlx5_{0}, device: mlx5_{0}}}\n"
    fabric = "    transport: roce\n    rails:\n" + "".join(rail.format(number) for number in range(8))
    head = "apiVersion: railwright.io/v1alpha1\nfabrics:\n"
    count = (MEBIBYTE - len(head)) // (len(fabric) + 10)
    return head + "".join(f"  f{number}:\n{fabric}" for number in range(count))


LOADS = {"nothing": "", "good policies": good(), "duplicate keys": "a: 1\n" * (MEBIBYTE // 5 - 1)}


async def measure(server: machine.Server, text: str, turns: pathlib.Path, options: argparse.Namespace) -> None:
    """Print a row: reviews at the rate, while callers have `text` checked."""
    policy = admitting.review_policy(text)
    statuses: collections.Counter[int] = collections.Counter()
    ports = shell.Ports()
    ports.port = server.port

    async def check() -> None:
        while True:
            caller = await ports.open()
            status = (await caller.ask(policy, path=TIMEOUT)).status
            statuses[status] += 1
            await caller.close()
            await asyncio.sleep(1.0 if status == 429 else 0.0)  # Retry-After

    checking = [asyncio.create_task(check()) for _ in range(options.callers if text else 0)]
    await asyncio.sleep(1)
    os.kill(server.pid, signal.SIGUSR1)  # forget the turns of the start
    pod = admitting.review(admitting.pod())
    caller = await ports.open()
    latencies, due = [], time.perf_counter()
    for _ in range(int(options.seconds * options.rate)):
        due += 1 / options.rate
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        began = time.perf_counter()
        assert (await caller.ask(pod, path="/mutate/pods")).status == 200
        latencies.append((time.perf_counter() - began) * 1e3)
    await caller.close()
    forgotten = turns.stat().st_mtime_ns  # noqa: ASYNC240 - nothing else runs here
    os.kill(server.pid, signal.SIGUSR1)
    await shell.until(lambda: turns.stat().st_mtime_ns != forgotten)
    for task in checking:
        task.cancel()
    await asyncio.gather(*checking, return_exceptions=True)
    print(row(latencies, json.loads(turns.read_text()), statuses))  # noqa: ASYNC240 - as above


def row(latencies: list[float], turns: list[tuple[float, str]], statuses: Mapping[int, int]) -> str:
    latencies.sort()
    p50, p99 = (latencies[int(len(latencies) * share)] for share in (0.5, 0.99))
    longest = ", ".join(f"{spent:.1f} ms {what}" for spent, what in turns[:2])
    spread = f"p50 {p50:.2f} ms, p99 {p99:.2f} ms, longest {latencies[-1]:.1f} ms"
    return f"  {spread}; turns: {longest}; checks: {dict(statuses)}"


async def run(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        turns = folder / "turns.json"
        program = (str(machine.ROOT / "tests" / "bench" / "turns.py"), str(turns))
        words = ("webhook", "--plain-http", *processes.without_cluster(folder))
        with machine.serve(*words, core=None, program=program) as server:
            for load, text in LOADS.items():
                print(f"{options.callers if text else 0} callers, {load}:")
                await measure(server, text, turns, options)


def main() -> None:
    asyncio.run(run(machine.parse_options(__doc__, callers=4, seconds=10.0, rate=100.0)))


if __name__ == "__main__":
    main()
