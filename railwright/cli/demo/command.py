"""Runs `railwright demo`: shows the result and sets the exit code."""

import argparse
import asyncio
import json
import pathlib
import sys
import tempfile

import msgspec
from rich import console

from railwright.cli import output
from railwright.cli.demo import fixture, page, rendering, scenario


def run(arguments: argparse.Namespace) -> int:
    """Return 0 if all pods were injected and placed optimally, 1 if not, 2 if a server did not start."""
    with tempfile.TemporaryDirectory(prefix="railwright-demo-") as folder:
        try:
            return asyncio.run(_run(arguments, pathlib.Path(folder)))
        except fixture.StartError as error:
            print(f"railwright demo: {error}", file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            return 0


async def _run(arguments: argparse.Namespace, folder: pathlib.Path) -> int:
    async with fixture.start(folder) as running:
        outcome = await scenario.run(running)
        min_leaves = scenario.count_min_leaves(outcome.free_by_leaf, len(outcome.placed))
        fine = scenario.count_leaves(outcome.placed) == min_leaves and all(outcome.annotations)
        screen = console.Console(record=True)
        if arguments.svg or not screen.is_terminal:
            screen.width = page.WIDTH
        if arguments.output == "json":
            print(json.dumps({"fine": fine, "min_leaves": min_leaves} | msgspec.to_builtins(outcome), indent=1))
        else:
            screen.print(rendering.render(running, outcome))
        if arguments.svg:
            arguments.svg.write_text(
                output.offline(screen.export_svg(title="railwright demo", clear=False)), encoding="utf-8"
            )
        if arguments.serve:
            print(f"webhook:  https://{running.webhook.address}  ops http://{running.webhook.ops}")
            print(f"extender: http://{running.extender.address}  ops http://{running.extender.ops}")
            await page.serve(page.build_html(rendering.render(running, outcome)))
        if not fine:
            print("railwright demo: the gang was not placed optimally", file=sys.stderr)
        return 0 if fine else 1
