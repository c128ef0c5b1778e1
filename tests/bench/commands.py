"""`make bench-commands`: times `railwright explain` of many pods in a file, beside its target."""

import argparse
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence

import machine
import yaml
from rich import console, table

from railwright.cli import object_files
from railwright.cli.explanation import templates

EXAMPLE = machine.ROOT / "manifests" / "examples" / "360-infiniband"
PODS, SECONDS = 3000, 5.0  # in a file, and the target


def main() -> int:
    """Time the command, print a table, and write the figures to build/bench/commands.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pods", type=int, default=PODS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "pods.yaml"
        file.write_text(_write_pods(options.pods))
        command = [
            sys.executable,
            "-m",
            "railwright.cli",
            "explain",
            str(file),
            "--policy",
            str(EXAMPLE / "policy.yaml"),
        ]
        durations, disturbances = [], []
        for _ in range(options.rounds):
            disturbances.append(machine.time_fixed_work())
            durations.append(_time(command))
    results = machine.write_results("commands", pods=options.pods, seconds=durations, fixed_work=disturbances)
    shown = table.Table("command", "median", "all rounds", "target", title=f"{results['machine']['cpu']}, CPU seconds")
    rounds = ", ".join(f"{seconds:.1f}" for seconds in durations)
    shown.add_row(f"explain of {options.pods} pods", f"{statistics.median(durations):.1f}", rounds, f"{SECONDS}")
    screen = console.Console()
    screen.print(shown)
    screen.print(machine.describe_disturbance(disturbances))
    return 0


def _write_pods(count: int) -> str:
    """Return a YAML file with the pods of one job, which differ by name."""
    (job,) = object_files.read_manifest((EXAMPLE / "job.yaml").read_text(), "job.yaml")
    (template,) = templates.expand(job, "prod") or ()
    metadata = {key: value for key, value in template.pod["metadata"].items() if key != "generateName"}
    pods = [{**template.pod, "metadata": {**metadata, "name": f"rdma-test-{number}"}} for number in range(count)]
    return yaml.safe_dump_all(pods, sort_keys=False)


def _time(command: Sequence[str]) -> float:
    """Return the CPU seconds of a command whose output is a pipe; it must succeed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


if __name__ == "__main__":
    sys.exit(main())
