"""Runs the parts of `make test` or `make check`, says which part runs, and sums up in one place what failed.

A part that fails stops only those that need it. SIGINT and SIGTERM end what runs; the summary follows.
"""

import argparse
import contextlib
import dataclasses
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ET
from collections.abc import Sequence

FOLDER = pathlib.Path("build/test")
INTERRUPTED = 130  # exit code of shells for SIGINT
NO_TESTS = 5  # exit code of pytest if it selected no test
LONGEST_ERROR = 240  # characters of the error of a failed test in the summary
END_SECONDS = 60.0  # in which a part removes its control plane and nodes after SIGTERM


@dataclasses.dataclass
class Part:
    """A command, and its result. With `needs`, it runs after that part, and only if that succeeded."""

    name: str
    command: Sequence[str]
    is_background: bool = False  # beside the parts after it; its output goes to a file
    needs: "Part | None" = None
    process: subprocess.Popen[bytes] | None = None
    clock: threading.Thread | None = None
    began: float = 0.0
    seconds: float = 0.0
    code: int | None = None

    @property
    def report(self) -> pathlib.Path:
        """File for pytest's JUnit XML."""
        return FOLDER / f"{self.name.replace(' ', '-')}.xml"

    @property
    def log(self) -> pathlib.Path:
        """File for the output, if the part runs in the background."""
        return self.report.with_suffix(".log")

    def start(self) -> None:
        """Start the command in the process group of this program, so that a terminal's Ctrl-C reaches it."""
        with contextlib.ExitStack() as stack:
            output = stack.enter_context(self.log.open("wb")) if self.is_background else None
            self.began = time.monotonic()
            self.process = subprocess.Popen(self.command, stdout=output, stderr=output and subprocess.STDOUT)
        self.clock = threading.Thread(target=self._measure, daemon=True)
        self.clock.start()

    def _measure(self) -> None:
        assert self.process
        self.process.wait()
        self.seconds = time.monotonic() - self.began

    def wait(self, seconds: float | None = None) -> None:
        """Wait until the command has ended. Raises subprocess.TimeoutExpired."""
        if self.process and self.clock and self.code is None:
            self.code = self.process.wait(seconds)
            self.clock.join()

    def end(self, *, is_signalled: bool) -> None:
        """Wait for the end of the command if it has the signal already, else send SIGTERM; SIGKILL if it stays."""
        for send in (None, subprocess.Popen.terminate, subprocess.Popen.kill)[0 if is_signalled else 1 :]:
            if self.process and self.process.poll() is None and send:
                send(self.process)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.wait(END_SECONDS)
                return

    def describe(self, counts: str) -> str:
        """Return the result for the summary: what was counted, or why nothing was, and the duration."""
        if self.code is None:
            reason = f": {self.needs.name} failed (output: {self.needs.log})" if self.needs and self.needs.code else ""
            return f"not run{reason}"
        result = {0: "passed", NO_TESTS: "no test selected"}.get(self.code, f"FAILED with exit code {self.code}")
        output = f"  (output: {self.log})" if self.is_background else ""
        return f"{result}, {counts or 'no report'}, {describe_duration(self.seconds)}{output}"


class TerminatedError(BaseException):
    """Signals that SIGTERM has arrived."""


def _raise_terminated(*_: object) -> None:
    raise TerminatedError


def run(parts: Sequence[Part]) -> int:
    """Run the parts and print the summary. Return the exit code of the first part that failed, else 0."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for part in parts:
        part.report.unlink(missing_ok=True)
    began, is_interrupted, is_signalled = time.monotonic(), False, False
    signal.signal(signal.SIGTERM, _raise_terminated)
    try:
        _run_in_order(parts)
    except (KeyboardInterrupt, TerminatedError) as interrupt:
        is_interrupted, is_signalled = True, isinstance(interrupt, KeyboardInterrupt)  # a terminal tells the parts too
        print("\n== interrupted: ending what runs", flush=True)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the summary comes even if Ctrl-C is pressed again
    for part in parts:
        part.end(is_signalled=is_signalled)
    for part in parts:
        if part.is_background and part.code and not is_interrupted:
            print(f"\n== output of {part.name}", part.log.read_text(errors="replace"), sep="\n", flush=True)
    print(f"\n== summary of {describe_duration(time.monotonic() - began)}", *summarize(parts), sep="\n", flush=True)
    codes = [part.code for part in parts if part.code]
    if any(part.code == 0 and part.report.exists() for part in parts):  # `-k` may select tests of one part only
        codes = [code for code in codes if code != NO_TESTS]
    return INTERRUPTED if is_interrupted else next(iter(codes), 0)


def _run_in_order(parts: Sequence[Part]) -> None:
    for number, part in enumerate(parts, 1):
        if part.needs and part.needs.code is None:
            print(f"\n== waiting for {part.needs.name} (output: {part.needs.log})", flush=True)
            part.needs.wait()
        if part.needs and part.needs.code:
            continue
        beside = f", beside the next (output: {part.log})" if part.is_background else ""
        print(f"\n== {time.strftime('%H:%M:%S')} part {number} of {len(parts)}: {part.name}{beside}", flush=True)
        part.start()
        if not part.is_background:
            part.wait()
    for part in parts:
        if part.process and part.code is None:
            print(f"\n== waiting for {part.name} (output: {part.log})", flush=True)
            part.wait()


def summarize(parts: Sequence[Part]) -> list[str]:
    """Return a line for each part, then each failed test of all parts with the first line of its error."""
    width = max(len(part.name) for part in parts)
    lines, failures = [], []
    for part in parts:
        counts, failed = read_report(part.report)
        lines.append(f"{part.name:{width}}  {part.describe(counts)}")
        for name, error in failed.items():
            failures += [f"{part.name:{width}}  {name}", f"{'':{width}}  {error}"]
    return [*lines, *(["", "failed tests:", *failures] if failures else [])]


def read_report(path: pathlib.Path) -> tuple[str, dict[str, str]]:
    """Return the counts of a JUnit report, and the failed tests with their errors; nothing without a report."""
    try:
        cases = list(ET.parse(path).iter("testcase"))  # noqa: S314 - pytest wrote it
    except (OSError, ET.ParseError):
        return "", {}
    results: dict[str, set[str]] = {}
    failed: dict[str, str] = {}
    for case in cases:  # two of a test that fails and whose fixtures fail then
        name = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
        results.setdefault(name, set()).update(child.tag for child in case)
        for child in case:
            if child.tag in {"failure", "error"}:
                first_line = child.get("message", "").partition("\n")[0]
                failed.setdefault(name, first_line[:LONGEST_ERROR])
    skipped = sum("skipped" in tags for tags in results.values())
    counts = {"passed": len(results) - len(failed) - skipped, "failed": len(failed), "skipped": skipped}
    return ", ".join(f"{number:,} {word}" for word, number in counts.items() if number) or "0 tests", failed


def describe_duration(seconds: float) -> str:
    """Return a duration as `4 min 05 s`."""
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes} min {seconds:02} s" if minutes else f"{seconds} s"


def count_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def list_parts(options: argparse.Namespace, folder: str) -> list[Part]:
    """Return the parts of `make test`: what only computes runs beside what waits for a cluster.

    Unit tests run in a process for each core, which share `folder`: one alone would run long after the other parts.
    """

    def test(name: str, marks: str, words: str, *folders: str, **more: object) -> Part:
        command = (sys.executable, "-m", "pytest", "-m", marks, *shlex.split(words), "--durations", "20", *folders)
        part = Part(name, command, **more)  # type: ignore[arg-type]
        part.command = (*command, f"--junitxml={part.report}", *options.arguments)
        return part

    build = Part(
        "build of programs", ("nice", "-n", "10", sys.executable, "tests/e2e/build.py", "--main"), is_background=True
    )
    quick, served = "not plane and not soak", ("tests/service", "tests/slow/fuzz", "tests/slow/faults")
    parts = [
        build,
        test("service tests", quick, options.quick, *served),
        *(
            test(f"unit tests {number}", quick, f"--shared-run={folder}", "tests/unit", is_background=True)
            for number in range(1, count_cores() + 1)
        ),
    ]
    if options.interpreter:
        part = Part(f"Python {options.interpreter}", (), is_background=True)
        arguments = shlex.join((*options.arguments, f"--junitxml={part.report}"))
        words = ("test-interpreters", f"INTERPRETERS={options.interpreter}", f"TEST_ARGS={arguments}")
        part.command = ("make", "--no-print-directory", *words, "QUICK=", f"ON_OTHERS={options.differing}")
        parts.append(part)
    nodes = {"is_background": True, "needs": build}
    return [
        *parts,
        test("real nodes", "node and not soak", "-rs", *options.nodes.split(), **nodes),
        test("control plane", "plane and not soak", options.planes, "tests/integration", "tests/slow/faults", needs=build),
    ]


def list_quick_parts(arguments: Sequence[str], folder: str) -> list[Part]:
    """Return the parts of `make check`: types, and unit tests in a process for each core, which share `folder`."""
    mypy = shlex.join((sys.executable, "-m", "mypy"))
    parts = [Part("types", ("sh", "-c", f"{mypy} && {mypy} --python-version 3.11"), is_background=True)]
    for number in range(count_cores(), 0, -1):
        part = Part(f"unit tests {number}", (), is_background=number > 1)
        command = (sys.executable, "-m", "pytest", "--quiet", "-m", "not exhaustive", f"--shared-run={folder}")
        part.command = (*command, f"--junitxml={part.report}", "tests/unit", *arguments)
        parts.append(part)
    return parts


def main() -> int:
    """Run the parts with the options of the Makefile."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("quick", "planes", "nodes", "interpreter", "differing"):
        parser.add_argument(f"--{name}", default="")
    parser.add_argument("--check", action="store_true", help="run the parts of `make check`")
    parser.add_argument("arguments", nargs="*", help="for pytest, of each part")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return run(list_quick_parts(options.arguments, folder) if options.check else list_parts(options, folder))


if __name__ == "__main__":
    sys.exit(main())
