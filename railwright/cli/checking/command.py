"""Runs `railwright check`: repeats the checks for --wait, prints results as they arrive and sets the exit code.

Prints problems row by row, the others as one line for each group.
"""

import argparse
import asyncio
import collections
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from railwright.cli import formats, output
from railwright.cli.checking import (
    admission,
    certificates,
    check_rows,
    claims,
    installation,
    permissions,
    pods,
    policy,
    reader,
    scheduling,
    webhook_configurations,
)
from railwright.cli.checking.check_rows import Result, State
from railwright.cli.output import Line
from railwright.cluster import client as clients
from railwright.fabric import text, version

_WORDS = {
    State.FAIL: "failed",
    State.WARN: "warned",
    State.OK: "passed",
    State.SKIP: "skipped",
}


class Report:
    """The lines of a run, as results arrive: problems, and one line for each group; with `verbose`, every row.

    A result that was added before is skipped unless its state changed, and so is the line of a group.
    """

    def __init__(self, *, verbose: bool) -> None:
        """Begin an empty report."""
        self._verbose = verbose
        self._states: dict[tuple[str, str], State] = {}
        self._group: list[Result] = []  # results of the group that is being added
        self._group_lines: dict[str, Line] = {}
        self._heading = ""

    def begin_run(self) -> None:
        """Start the rows from the first one, which ends no group: the last run may have stopped inside of one."""
        self._group = []

    def add(self, result: Result) -> Iterator[Line]:
        """Yield the lines of the next result."""
        if self._group and result.group != self._group[0].group:
            yield from self._finish_group()
        self._group.append(result)
        key = (result.check, result.subject)
        if self._states.get(key) is result.state:
            return
        self._states[key] = result.state
        if self._verbose and result.group != self._heading:
            if self._heading:
                yield ()
            self._heading = result.group
            yield ((result.group, "bold"),)
        if self._verbose or result.state in check_rows.PROBLEMS:
            yield from check_rows.format_row(result)

    def finish(self, results: Sequence[Result]) -> Iterator[Line]:
        """Yield the last lines: the folded rows, by their reason, and the summary of all results."""
        yield from self._finish_group()
        yield ()
        if not self._verbose:
            yield from _format_folded(results)
        yield format_summary(results, verbose=self._verbose)

    def _finish_group(self) -> Iterator[Line]:
        results, self._group = self._group, []
        line = None if self._verbose else _format_group(results)
        if line and self._group_lines.get(results[0].group) != line:
            self._group_lines[results[0].group] = line
            yield line


def is_folded(result: Result) -> bool:
    """True if a row waits for another one, or could not be read: such rows are counted, not listed."""
    return bool(result.waits_for) or (result.unread and result.state is State.SKIP)


def _format_group(results: Sequence[Result]) -> Line | None:
    """Return the line of a group; None if all its rows are folded, or its only rows are problems."""
    counts = collections.Counter(result.state for result in results if not is_folded(result))
    passed, skipped = counts[State.OK], counts[State.SKIP]
    if not passed and not skipped:
        return None
    totals = [f"{passed} of {counts.total() - skipped} passed"] if counts.total() > skipped else []
    totals += [f"{skipped} skipped"] if skipped else []
    mark, style = check_rows.MARKS[next(state for state in _WORDS if counts[state])]
    return ((mark, style), (f" {results[0].group}: ", ""), (", ".join(totals), "dim"))


def _format_folded(results: Sequence[Result]) -> Iterator[Line]:
    names = {result.check: result.name for result in results}
    reasons = [
        f"until this is fixed: {names[result.waits_for]}" if result.waits_for else f"because {result.detail}"
        for result in results
        if is_folded(result)
    ]
    for reason, count in collections.Counter(reasons).items():
        checks = text.format_count(count, "check")
        yield (("-", "dim"), (f" {checks} skipped {reason}", "dim"))


def format_summary(results: Sequence[Result], *, verbose: bool = True) -> Line:
    """Return the last line: the number of results by state, and the rows to look at, which may be far above."""
    counts = collections.Counter(result.state for result in results)
    totals = ", ".join(
        f"{counts[state]} {word}{_format_anchors(results, state)}" for state, word in _WORDS.items() if counts[state]
    )
    style = "red" if counts[State.FAIL] else "yellow" if counts[State.WARN] else "green"
    rest = "" if verbose else " (-v lists all)"
    return ((f"{text.format_count(len(results), 'check')}: {totals}", f"bold {style}"), (rest, "dim"))


def _format_anchors(results: Sequence[Result], state: State) -> str:
    """Return the rows in a state that calls for a look, in brackets; "" for the other states."""
    if state not in check_rows.PROBLEMS:
        return ""
    anchors = (result.check for result in results if result.state is state)
    return f" ({text.join_first(anchors, 5)})"


def format_report(results: Sequence[Result], *, verbose: bool = False) -> Iterator[Line]:
    """Yield all lines of finished results."""
    report = Report(verbose=verbose)
    for result in results:
        yield from report.add(result)
    yield from report.finish(results)


# --- the command --------------------------------------------------------------------------------------------


_INTERVAL = 2.0  # seconds between two runs
_PICTURE_WIDTH = 140  # columns of the SVG
_MODULES = (
    installation,
    permissions,
    certificates,
    webhook_configurations,
    policy,
    claims,
    admission,
    scheduling,
    pods,
)
CHECKS: check_rows.Checks = {anchor: assess for module in _MODULES for anchor, assess in module.CHECKS.items()}
ROWS = check_rows.build_rows(CHECKS)


async def check(client: clients.Client, arguments: argparse.Namespace, namespace: str, problem: str) -> int:
    """Return 0 if all checks passed, 1 if one failed (--strict: or warned), 2 if the cluster could not be read.

    Without --allow-unread, 2 also if the caller may not read what some checks need. `namespace` is that of the
    installation. `problem` says why the API server has not answered a moment ago; it is not asked again at once.
    """
    results = await _run_until_passed(client, arguments, namespace, problem)
    code = _get_exit_code(results, strict=arguments.strict, allow_unread=arguments.allow_unread)
    if formats.is_document(arguments.output):
        document = build_document(
            results, server=client.host, namespace=namespace, version=version.VERSION, good=code == output.OK
        )
        formats.print_document(document, arguments.output)
    if arguments.svg:
        lines = format_report(results, verbose=arguments.verbose)
        picture = output.draw(lines, title="railwright check", width=_PICTURE_WIDTH)
        output.write_picture(arguments.svg, picture)
    if code == output.UNUSABLE and not check_rows.is_unreachable(results):
        output.print_note(_describe_unread(results))
    return code


def _describe_unread(results: Sequence[Result]) -> str:
    unread = [result.detail for result in results if result.unread]
    return (
        f"{text.format_count(len(unread), 'check')} could not read what "
        f"{'it needs' if len(unread) == 1 else 'they need'}, so the result is incomplete: "
        f"{'; '.join(dict.fromkeys(unread))}; ask for these permissions, or accept it: "
        "--allow-unread"
    )


def _get_exit_code(results: Sequence[Result], *, strict: bool, allow_unread: bool) -> int:
    """Return 1 if a check failed, 2 if the cluster was unreadable or, unless allowed, partly readable, else 0."""
    if check_rows.is_unreachable(results):
        return output.UNUSABLE
    if check_rows.has_failures(results, strict=strict):
        return output.FINDINGS
    return output.UNUSABLE if any(result.unread for result in results) and not allow_unread else output.OK


async def _run_until_passed(
    client: clients.Client, arguments: argparse.Namespace, namespace: str, problem: str
) -> list[Result]:
    """Run the checks and print each result as it arrives.

    With --wait, repeat them until none fails or the time is up. Of the runs before that, only failed rows are named.
    """
    end, status = time.monotonic() + arguments.wait, f"reading {client.host}"
    is_printed = not formats.is_document(arguments.output)
    while True:
        is_last = time.monotonic() >= end
        report, lines, results = Report(verbose=arguments.verbose), list[Line](), list[Result]()
        with output.show_progress(status):
            async for result in _stream_results(client, arguments, namespace, problem):
                results.append(result)
                lines += report.add(result)
                if is_last and is_printed and lines:
                    output.clear_status()
                    output.print_lines(lines)
                    lines.clear()
                    output.show_status(status)
        if is_last or not check_rows.has_failures(results, strict=arguments.strict):
            if is_printed:
                output.print_lines([*lines, *report.finish(results)])
            return results
        failed = [result.check for result in results if result.state is State.FAIL]
        waiting = f"waiting for {', '.join(failed) or 'warnings'}"
        if waiting != status and not output.is_animated(sys.stderr):
            output.print_note(waiting)
        status, problem = waiting, ""
        with output.show_progress(status):
            await asyncio.sleep(min(_INTERVAL, max(0.0, end - time.monotonic())))


async def _stream_results(
    client: clients.Client, arguments: argparse.Namespace, namespace: str, problem: str
) -> AsyncIterator[Result]:
    probing, before = arguments.namespace_for_probe, arguments.pre
    cluster = reader.ClusterReader(client, namespace, probing=probing, before=before, problem=problem)
    try:
        async for result in check_rows.run(check_rows.select_rows(ROWS, before=before), cluster.read):
            yield result
    finally:
        cluster.cancel()


def build_document(results: Sequence[Result], *, server: str, namespace: str, version: str, good: bool) -> Any:
    """Return the output of `-o json`, as docs/reference/check.md has it. Fields are added, never renamed or removed."""
    counts = collections.Counter(result.state for result in results)
    return {
        "version": version,
        "server": server,
        "namespace": namespace,
        "ok": good,
        "counts": {state.value: counts[state] for state in check_rows.State},
        "checks": list(results),
    }
