"""What every benchmark asks of the machine: pinned processes, their clocks and memory, and how disturbed it is."""

import contextlib
import json
import os
import pathlib
import platform
import re
import subprocess
import time
from collections.abc import Iterator, Sequence

ROOT = pathlib.Path(__file__).resolve().parents[2]
_LISTENING = re.compile(r"^(?:\S+ )?listening on .*:(\d+)")


@contextlib.contextmanager
def started(command: Sequence[str], core: int | None) -> Iterator[subprocess.Popen[str]]:
    """A process on one core, or where it likes; ended by its id at the end."""
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


def port_told(process: subprocess.Popen[str], beginning: str = "listening on") -> int:
    """The port of a line such as `listening on 127.0.0.1:8713`; ends the run with the process's words if none comes."""
    assert process.stderr is not None  # it was asked for
    said = []
    for line in process.stderr:
        said.append(line)
        if line.startswith(beginning) and (found := _LISTENING.match(line)):
            return int(found[1])
    raise SystemExit(f"{process.args} ended before it listened:\n{''.join(said[-20:])}")


def clocks(pid: int) -> tuple[float, int]:
    """CPU seconds and minor page faults of a process so far."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), int(fields[7])


def cpu_seconds(pid: int) -> float:
    """CPU seconds of a process's first thread so far, to the microsecond."""
    return int(pathlib.Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def waited_seconds(pid: int) -> float:
    """Seconds a process's first thread was ready to run and had no core: how much others were in its way."""
    return int(pathlib.Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9


def pss(pid: int) -> float:
    """Proportional share of memory, MiB."""
    return _kib(f"/proc/{pid}/smaps_rollup", "Pss") / 1024


def peak_rss(pid: int) -> float:
    """The most resident memory so far, MiB."""
    return _kib(f"/proc/{pid}/status", "VmHWM") / 1024


def rss(pid: int) -> float:
    """Resident memory, MiB: what a container's limit is held against."""
    return _kib(f"/proc/{pid}/status", "VmRSS") / 1024


def forget_peak(pid: int) -> None:
    """Have `peak_rss` count from now on."""
    pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")  # proc(5): resets VmHWM


def gauge() -> float:
    """Microseconds of a fixed piece of work, the best of many: how fast the machine is just now."""
    text = json.dumps({str(number): [number] * 20 for number in range(50)})
    best = float("inf")
    for _ in range(50):
        began = time.perf_counter()
        json.loads(text)
        best = min(best, time.perf_counter() - began)
    return best * 1e6


def cpu() -> str:
    """The processor's name."""
    found = re.search(r"^model name\s*:\s*(.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1] if found else platform.machine()


def _kib(path: str, name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB", pathlib.Path(path).read_text(), re.MULTILINE)
    return int(found[1]) if found else 0
