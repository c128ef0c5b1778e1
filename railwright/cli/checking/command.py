"""Runs `railwright check`: repeats the checks for --wait, prints the results and sets the exit code.

Prints each problem, why checks were skipped, and a summary.
"""

import argparse
import asyncio
import collections
import difflib
import itertools
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from railwright.cli import formats, output
from railwright.cli.checking import admission, certificates, installation, nodes, pods, rows, scheduling, snapshots
from railwright.cli.checking.rows import PROBLEMS, Result, Row, State
from railwright.cli.output import Line
from railwright.cluster import client as clients
from railwright.cluster.installed_names import NAMESPACE
from railwright.fabric import text, version

_MODULES = (installation, certificates, admission, nodes, scheduling, pods)
GROUPS = {module.GROUP: [item for item in vars(module).values() if isinstance(item, Row)] for module in _MODULES}
ROWS = {item.anchor: item for listed in GROUPS.values() for item in listed}
_INTERVAL = 2.0  # seconds between two runs
_LASTING_RUNS = 5  # --wait ends after so many runs with lasting failures only: right after a change a controller acts
_INDENT = "    "
_MARKS = {  # of each state, with its style and its word in the summary; the worst state first
    State.FAIL: ("×", "bold red", "failed"),  # noqa: RUF001 - the mark of linkerd check
    State.WARN: ("‼", "yellow", "warned"),
    State.OK: ("√", "green", "passed"),
    State.SKIP: ("-", "dim", "skipped"),
}


# --- the report ---------------------------------------------------------------------------------------------


def format_report(results: Sequence[Result], *, verbose: bool = False) -> Iterator[Line]:
    """Yield the lines of a run: problems, why checks were skipped, and a summary; with `verbose`, each row."""
    for group, grouped in itertools.groupby(results, key=lambda result: result.group):
        if verbose:
            yield ((group, "bold"),)
        for result in grouped:
            if verbose or result.state in PROBLEMS:
                yield from _format_result(result)
        if verbose:
            yield ()
    names = {result.check: result.name for result in results}
    reasons = [
        f"until this is fixed: {names[result.waits_for]}" if result.waits_for else f"because {result.detail}"
        for result in results
        if result.waits_for or (result.unread and result.state is State.SKIP)
    ]
    if not verbose:
        for reason, count in collections.Counter(reasons).items():
            yield (("-", "dim"), (f" {text.format_count(count, 'check')} skipped {reason}", "dim"))
    yield _format_summary(results, verbose=verbose)


def _format_result(result: Result) -> Iterator[Line]:
    mark, style, _ = _MARKS[result.state]
    name = f"{result.name} ({result.subject})" if result.subject else result.name
    if result.state in PROBLEMS:
        yield ((mark, style), (f" {name}", ""))
        yield from (((_INDENT + line, style),) for line in result.detail.splitlines() if line)
        yield ((f"{_INDENT}fix: ", "bold"), (result.hint, ""))
        yield ((f"{_INDENT}see: ", "bold"), (f"railwright check --explain {result.check}", ""))
        return
    detail = f": {result.detail}" if result.detail else ""
    yield ((mark, style), (f" {name}", "dim" if result.state is State.SKIP else ""), (detail, "dim"))


def _format_summary(results: Sequence[Result], *, verbose: bool) -> Line:
    """Return the last line: the number of results by state."""
    counts = collections.Counter(result.state for result in results)
    totals = ", ".join(f"{counts[state]} {word}" for state, (_, _, word) in _MARKS.items() if counts[state])
    worst = next((style for state, (_, style, _) in _MARKS.items() if counts[state]), "")
    checks = text.format_count(len(results), "check")
    return ((f"{checks}: {totals}", f"bold {worst}"), ("" if verbose else " (-v lists all)", "dim"))


# --- the explanation of a row -----------------------------------------------------------------------------


def explain_row(anchor: str) -> int:
    """Print the explanation of a row, or the names of all rows for "", and return 0. Raise UnreadableError."""
    if not anchor:
        width = max(map(len, ROWS))
        for item in ROWS.values():
            output.print_styled((item.anchor.ljust(width), "bold"), (f"  {item.name}", ""))
        return output.OK
    if anchor not in ROWS:
        similar = difflib.get_close_matches(anchor, ROWS, n=1)
        suggestion = f" did you mean {similar[0]}?" if similar else " to list all: railwright check --explain"
        raise output.UnreadableError(f"--explain: there is no row {anchor};{suggestion}")
    item = ROWS[anchor]
    output.print_styled((anchor, "bold"), (f": {item.name}", ""))
    print(f"\n{item.text}\n\nFix: {rows.fill_placeholders(item.fix)}".replace("`", ""))
    return output.OK


# --- the command --------------------------------------------------------------------------------------------


async def check_installation(client: clients.Client, arguments: argparse.Namespace, problem: str) -> int:
    """Run the checks, print the results, and return the exit code.

    It is 0 if all checks passed, 1 if one failed (--strict: or warned), 2 if the cluster could not be read; without
    --allow-unread, 2 also if the caller may not read some objects. `problem` is the error of a
    request that has just failed; then the first run sends no request.
    """
    results = await _run_until_passed(client, arguments, problem)
    code = get_exit_code(results, strict=arguments.strict, allow_unread=arguments.allow_unread)
    if formats.is_document(arguments.output):
        document = build_document(results, server=client.host, good=code == output.OK)
        formats.print_document(document, arguments.output)
    else:
        output.print_lines(format_report(results, verbose=arguments.verbose))
    if code == output.UNUSABLE and not _is_unreachable(results):
        unread = [result.detail for result in results if result.unread]
        output.print_note(
            f"{text.format_count(len(unread), 'check')} could not read their objects, so the result is incomplete: "
            f"{'; '.join(dict.fromkeys(unread))}; ask for these permissions, or accept the "
            "incomplete result: --allow-unread"
        )
    return code


def get_exit_code(results: Sequence[Result], *, strict: bool, allow_unread: bool) -> int:
    """Return the exit code: 2 if no API server answered, else 1 if a check failed or, with `strict`, warned.

    Otherwise 2 if a check could not read its objects, unless `allow_unread`, and 0 if all could.
    """
    if _is_unreachable(results):
        return output.UNUSABLE
    if _list_failures(results, strict=strict):
        return output.FINDINGS
    return output.UNUSABLE if any(result.unread for result in results) and not allow_unread else output.OK


def _list_failures(results: Sequence[Result], *, strict: bool) -> list[Result]:
    """Return the failed checks; with `strict`, also those that warned."""
    return [result for result in results if result.state in (PROBLEMS if strict else (State.FAIL,))]


def _is_unreachable(results: Sequence[Result]) -> bool:
    """True if no API server answered, so that no other row ran."""
    return any(result.unread and result.state is State.FAIL for result in results)


async def _run_until_passed(client: clients.Client, arguments: argparse.Namespace, problem: str) -> list[Result]:
    """Run the checks and return the results. With --wait, repeat them until none fails or the time is up.

    Stop earlier if for `_LASTING_RUNS` runs all failures are lasting: only a change by the operator ends them.
    """
    end, status, lasting_runs = time.monotonic() + arguments.wait, f"reading {client.host}", 0
    while True:
        with output.show_progress(status):
            snapshot = await snapshots.read_cluster(client, probed=arguments.namespace_for_probe, problem=problem)
        results = [*rows.run_checks(GROUPS, snapshot)]
        failures = _list_failures(results, strict=arguments.strict)
        if time.monotonic() >= end or not failures:
            return results
        lasting_runs = lasting_runs + 1 if all(result.lasting for result in failures) else 0
        if lasting_runs == _LASTING_RUNS:
            output.print_note("stopped waiting: the failed checks need the changes that their fixes name")
            return results
        failed = [f"{result.check}: {result.detail}" for result in results if result.state is State.FAIL]
        waiting = f"waiting for {'; '.join(failed) or 'warnings'}".replace("\n", "; ")
        if waiting != status and not output.is_animated(sys.stderr):
            output.print_note(waiting)
        status, problem = waiting, ""
        with output.show_progress(status):
            await asyncio.sleep(min(_INTERVAL, max(0.0, end - time.monotonic())))


def build_document(results: Sequence[Result], *, server: str, good: bool) -> Any:
    """Return the output of `-o json`, as docs/reference/check.md has it. Fields are added, never renamed or removed."""
    counts = collections.Counter(result.state for result in results)
    return {
        "version": version.VERSION,
        "server": server,
        "namespace": NAMESPACE,
        "ok": good,
        "counts": {state.value: counts[state] for state in State},
        "checks": list(results),
    }
