"""Runs `railwright demo`: shows each step and the result, serves the dashboard, and sets the exit code."""

import argparse
import asyncio
import contextlib
import pathlib
import sys
import tempfile

import msgspec

from railwright.cli import formats, output, styled_lines, waiting
from railwright.cli.demo import card, fixture, full_report, live_view, scenario


def run(arguments: argparse.Namespace) -> int:
    """Return 0 if all pods were injected and placed optimally, 1 if not, 2 if a server did not start."""
    with tempfile.TemporaryDirectory(prefix="railwright-demo-") as folder:
        try:
            return asyncio.run(_run_demo(arguments, pathlib.Path(folder)))
        except fixture.StartError as error:
            print(f"railwright demo: {error}", file=sys.stderr)
            return output.UNUSABLE
        except KeyboardInterrupt:
            return output.OK


async def _run_demo(arguments: argparse.Namespace, folder: pathlib.Path) -> int:
    steps = _Steps()
    steps.report("starting")
    async with contextlib.AsyncExitStack() as stack:
        async with waiting.show_spinner(lambda: steps.text):
            running = await stack.enter_async_context(fixture.start(folder, report=steps.report))
            outcome = await scenario.run(running, steps.report)
        min_leaves = scenario.count_min_leaves(outcome.free_by_leaf, len(outcome.placed))
        is_optimal = scenario.count_leaves(outcome.placed) == min_leaves and all(outcome.annotations)
        if formats.is_document(arguments.output):
            document = {"fine": is_optimal, "min_leaves": min_leaves} | msgspec.to_builtins(outcome)
            formats.print_document(document, arguments.output)
        else:
            if arguments.full:
                full_report.print_report(running, outcome)
            styled_lines.print_lines(card.format_card(running, outcome))
        if arguments.svg:
            lines = card.format_card(running, outcome)
            picture = styled_lines.draw(lines, title="railwright demo", width=card.WIDTH)
            output.write_picture(arguments.svg, picture)
        if not is_optimal:
            print("railwright demo: the gang was not placed optimally", file=sys.stderr)
        if arguments.serve:
            await live_view.serve(running)
    return output.OK if is_optimal else output.FINDINGS


class _Steps:
    """Holds the current step, for the spinner of a terminal. Without a terminal, steps are printed on stderr."""

    def __init__(self) -> None:
        self.text = ""

    def report(self, step: str) -> None:
        """Begin a step."""
        self.text = step
        if not output.is_animated():
            print(f"railwright demo: {step}", file=sys.stderr, flush=True)
