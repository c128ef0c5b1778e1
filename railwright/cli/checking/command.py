"""Runs `railwright check`: repeats the checks for --wait, prints the results and sets the exit code."""

import argparse
import asyncio
import collections
import io
import itertools
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from rich import console, live
from rich.console import Group
from rich.text import Text

from railwright.cli import cluster_access, formats, options, output
from railwright.cli.checking import (
    admission,
    certificates,
    check_rows,
    installation,
    kubernetes,
    policy,
    rails,
    reader,
    scheduling,
    webhook_configurations,
)
from railwright.cluster import client as clients
from railwright.fabric import version

_INTERVAL = 2.0  # seconds between two runs
_CALL_SECONDS = 15.0  # per API call; a user is waiting
_PIPED_WIDTH, _PICTURE_WIDTH = 200, 140  # columns without a terminal, and of the SVG

# All checks, in the order in which they run and are printed.
GROUPS: tuple[check_rows.Group, ...] = (
    check_rows.Group("kubernetes", (*kubernetes.list_rows(), *kubernetes.list_pre_rows())),
    check_rows.Group("installation", tuple(installation.list_rows())),
    check_rows.Group("certificates", tuple(certificates.list_rows())),
    check_rows.Group("webhook configurations", tuple(webhook_configurations.list_rows())),
    check_rows.Group("policy", tuple(policy.list_rows())),
    check_rows.Group("nodes and rails", (*kubernetes.list_dependency_rows(), *rails.list_rows())),
    check_rows.Group("admission", tuple(admission.list_rows())),
    check_rows.Group("scheduling", tuple(scheduling.list_rows())),
    check_rows.Group("pods", tuple(admission.list_pod_rows())),
)


def run(arguments: argparse.Namespace) -> int:
    """Return 0 if all checks passed, 1 if one failed (--strict: or warned), 2 if the cluster could not be read.

    Without --allow-unread, 2 also if the caller may not read what some checks need.
    """
    return asyncio.run(_check(arguments))


async def _check(arguments: argparse.Namespace) -> int:
    cluster = options.get_cluster(arguments)
    async with cluster_access.connect(cluster, call_seconds=_CALL_SECONDS) as client:

        async def run_checks() -> tuple[check_rows.Result, ...]:
            snapshot = await reader.read_cluster(
                client,
                server=client.host,
                namespace=arguments.namespace,
                probing=arguments.namespace_for_probe,
                before=arguments.pre,
            )
            return check_rows.run_checks(GROUPS, snapshot, before=arguments.pre)

        results = await _run_until_passed(run_checks, arguments)
    code = _get_exit_code(results, strict=arguments.strict, allow_unread=arguments.allow_unread)
    _print_results(arguments, results, client, good=code == output.OK)
    if code == output.UNUSABLE and not check_rows.is_unreachable(results):
        print(
            "railwright: some checks could not run, so the result is incomplete; see the skipped rows for the reasons",
            file=sys.stderr,
        )
    return code


def _get_exit_code(results: Sequence[check_rows.Result], *, strict: bool, allow_unread: bool) -> int:
    """Return 1 if a check failed, 2 if the cluster was unreadable or, unless allowed, partly readable, else 0."""
    if check_rows.is_unreachable(results):
        return output.UNUSABLE
    if check_rows.has_failures(results, strict=strict):
        return output.FINDINGS
    return output.UNUSABLE if check_rows.has_unread(results) and not allow_unread else output.OK


async def _run_until_passed(
    run_checks: Callable[[], Awaitable[tuple[check_rows.Result, ...]]], arguments: argparse.Namespace
) -> tuple[check_rows.Result, ...]:
    """Repeat the checks until none fails or time is up.

    Meanwhile a terminal shows the rows; other outputs get a line when the failing rows change.
    """
    end = time.monotonic() + arguments.wait
    results = await run_checks()
    if not arguments.wait or not check_rows.has_failures(results, strict=arguments.strict):
        return results
    screen = console.Console(stderr=True, highlight=False)
    reported: tuple[str, ...] = ()
    with live.Live(console=screen, transient=True, auto_refresh=False) as view:
        while check_rows.has_failures(results, strict=arguments.strict) and time.monotonic() < end:
            failing = tuple(result.check for result in results if result.state is check_rows.State.FAIL)
            if screen.is_terminal:
                view.update(render(results), refresh=True)
            elif failing != reported:
                print(f"railwright: waiting for {', '.join(failing) or 'warnings'}", file=sys.stderr, flush=True)
            reported = failing
            await asyncio.sleep(min(_INTERVAL, max(0.0, end - time.monotonic())))
            results = await run_checks()
    return results


def _print_results(
    arguments: argparse.Namespace, results: Sequence[check_rows.Result], client: clients.Client, *, good: bool
) -> None:
    is_document = formats.is_document(arguments.output)
    if is_document:
        document = build_document(
            results, server=client.host, namespace=arguments.namespace, version=version.VERSION, good=good
        )
        formats.print_document(document, arguments.output)
    if is_document and not arguments.svg:
        return
    file = io.StringIO() if is_document else None  # only the SVG is needed
    screen = console.Console(record=bool(arguments.svg), highlight=False, file=file)
    if arguments.svg or not screen.is_terminal:
        screen.width = _PICTURE_WIDTH if arguments.svg else _PIPED_WIDTH
    screen.print(render(results))
    if arguments.svg:
        arguments.svg.write_text(output.offline(screen.export_svg(title="railwright check")), encoding="utf-8")


_MARKS: dict[check_rows.State, tuple[str, str]] = {
    check_rows.State.OK: ("√", "green"),
    check_rows.State.WARN: ("‼", "yellow"),
    check_rows.State.FAIL: ("×", "bold red"),  # noqa: RUF001 - the mark of linkerd check
    check_rows.State.SKIP: ("-", "dim"),
}
_WORDS = {
    check_rows.State.FAIL: "failed",
    check_rows.State.WARN: "warned",
    check_rows.State.OK: "passed",
    check_rows.State.SKIP: "skipped",
}
_INDENT = "    "


def render(results: Sequence[check_rows.Result]) -> Group:
    """Return all results, by group, and the summary."""
    parts: list[Text] = []
    for group, rows in itertools.groupby(results, key=lambda result: result.group):
        parts += [Text(group, style="bold"), *(line for row in rows for line in _render_row(row)), Text()]
    return Group(*parts, build_summary(results))


def build_summary(results: Sequence[check_rows.Result]) -> Text:
    """Return the last line: the number of results by state."""
    counts = collections.Counter(result.state for result in results)
    totals = ", ".join(f"{counts[state]} {word}" for state, word in _WORDS.items() if counts[state])
    style = "red" if counts[check_rows.State.FAIL] else "yellow" if counts[check_rows.State.WARN] else "green"
    return Text(f"{len(results)} checks: {totals}", style=f"bold {style}")


def build_document(
    results: Sequence[check_rows.Result], *, server: str, namespace: str, version: str, good: bool
) -> Any:
    """Return the output of `-o json`, documented in docs/check.md. Fields are added, never renamed or removed."""
    counts = collections.Counter(result.state for result in results)
    return {
        "version": version,
        "server": server,
        "namespace": namespace,
        "ok": good,
        "counts": {state.value: counts[state] for state in check_rows.State},
        "checks": list(results),
    }


def _render_row(row: check_rows.Result) -> list[Text]:
    mark, style = _MARKS[row.state]
    name = f"{row.name} ({row.subject})" if row.subject else row.name
    first, *more = row.detail.splitlines() or [""]
    if row.state in (check_rows.State.FAIL, check_rows.State.WARN):
        details = [Text(_INDENT + output.visible(line), style=style) for line in (first, *more) if line]
        return [
            Text.assemble((mark, style), (f" {output.visible(name)}", "")),
            *details,
            Text.assemble((f"{_INDENT}fix: ", "bold"), (output.visible(row.hint), "")),
            Text.assemble((f"{_INDENT}see: ", "bold"), (row.link, "cyan")),
        ]
    detail = f": {output.visible(row.detail)}" if row.detail else ""
    quiet = "dim" if row.state is check_rows.State.SKIP else ""
    return [Text.assemble((mark, style), (f" {output.visible(name)}", quiet), (detail, "dim"))]
