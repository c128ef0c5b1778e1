"""Runs `railwright check`: repeats the checks for --wait, prints results as they arrive and sets the exit code."""

import argparse
import asyncio
import collections
import sys
import time
from collections.abc import AsyncIterator, Sequence
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
    printing,
    reader,
    scheduling,
    webhook_configurations,
)
from railwright.cluster import client as clients
from railwright.fabric import text, version

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
        lines = printing.format_report(results, verbose=arguments.verbose)
        picture = output.draw(lines, title="railwright check", width=_PICTURE_WIDTH)
        output.write_picture(arguments.svg, picture)
    if code == output.UNUSABLE and not check_rows.is_unreachable(results):
        output.print_note(_describe_unread(results))
    return code


def _describe_unread(results: Sequence[check_rows.Result]) -> str:
    unread = [result.detail for result in results if result.unread]
    return (
        f"{text.format_count(len(unread), 'check')} could not read what "
        f"{'it needs' if len(unread) == 1 else 'they need'}, so the result is incomplete: "
        f"{'; '.join(dict.fromkeys(unread))}; ask for these permissions, or accept it: "
        "--allow-unread"
    )


def _get_exit_code(results: Sequence[check_rows.Result], *, strict: bool, allow_unread: bool) -> int:
    """Return 1 if a check failed, 2 if the cluster was unreadable or, unless allowed, partly readable, else 0."""
    if check_rows.is_unreachable(results):
        return output.UNUSABLE
    if check_rows.has_failures(results, strict=strict):
        return output.FINDINGS
    return output.UNUSABLE if any(result.unread for result in results) and not allow_unread else output.OK


async def _run_until_passed(
    client: clients.Client, arguments: argparse.Namespace, namespace: str, problem: str
) -> list[check_rows.Result]:
    """Run the checks, and print them as they arrive; repeat them until none fails or the time for --wait is up.

    Before that time, rows from the first failed one on are not printed, because they may still pass.
    """
    end = time.monotonic() + arguments.wait
    report = printing.Report(verbose=arguments.verbose) if not formats.is_document(arguments.output) else None
    status = f"reading {client.host}"
    async with output.show_spinner(lambda: status) as erase:
        while True:
            results: list[check_rows.Result] = []
            held: list[check_rows.Result] = []
            if report:
                report.begin_run()
            async for result in _stream_results(client, arguments, namespace, problem):
                results.append(result)
                is_failing = check_rows.has_failures((result,), strict=arguments.strict)
                if held or (is_failing and time.monotonic() < end):
                    held.append(result)
                elif report:
                    lines = list(report.add(result))
                    erase()
                    output.print_lines(lines)
            if not held or time.monotonic() >= end:
                break
            problem = ""
            failed = [result.check for result in held if result.state is check_rows.State.FAIL]
            waiting = f"waiting for {', '.join(failed) or 'warnings'}"
            if waiting != status and not sys.stdout.isatty():
                output.print_note(waiting)
            status = waiting
            await asyncio.sleep(min(_INTERVAL, max(0.0, end - time.monotonic())))
        erase()
        if report:
            output.print_lines(line for result in held for line in report.add(result))
            output.print_lines(report.finish(results))
    return results


async def _stream_results(
    client: clients.Client, arguments: argparse.Namespace, namespace: str, problem: str
) -> AsyncIterator[check_rows.Result]:
    probing, before = arguments.namespace_for_probe, arguments.pre
    cluster = reader.ClusterReader(client, namespace, probing=probing, before=before, problem=problem)
    try:
        async for result in check_rows.run(check_rows.select_rows(ROWS, before=before), cluster.read):
            yield result
    finally:
        cluster.cancel()


def build_document(
    results: Sequence[check_rows.Result], *, server: str, namespace: str, version: str, good: bool
) -> Any:
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
