"""Runs `railwright demo`: shows the result and sets the exit code."""

import argparse
import asyncio
import difflib
import io
import pathlib
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import yaml
from aiohttp import web
from rich import box, console, terminal_theme
from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from railwright.cli import formats, object_files, output
from railwright.cli.demo import fixture, scenario
from railwright.cli.demo import fixture as fixtures


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
    async with fixture.start(folder) as running:
        outcome = await scenario.run(running)
        min_leaves = scenario.count_min_leaves(outcome.free_by_leaf, len(outcome.placed))
        fine = scenario.count_leaves(outcome.placed) == min_leaves and all(outcome.annotations)
        screen = console.Console(record=True)
        if arguments.svg or not screen.is_terminal:
            screen.width = WIDTH
        if formats.is_document(arguments.output):
            document = {"fine": fine, "min_leaves": min_leaves} | msgspec.to_builtins(outcome)
            formats.print_document(document, arguments.output)
        else:
            screen.print(render(running, outcome))
        if arguments.svg:
            arguments.svg.write_text(
                output.offline(screen.export_svg(title="railwright demo", clear=False)), encoding="utf-8"
            )
        if arguments.serve:
            print(f"webhook:  https://{running.webhook.address}  ops http://{running.webhook.ops}")
            print(f"extender: http://{running.extender.address}  ops http://{running.extender.ops}")
            await serve(build_html(render(running, outcome)))
        if not fine:
            print("railwright demo: the gang was not placed optimally", file=sys.stderr)
        return output.OK if fine else output.FINDINGS


WIDTH = 120  # characters, without a terminal
_THEME = terminal_theme.TerminalTheme(
    (17, 26, 43),
    (232, 238, 251),
    [
        (163, 177, 201), (255, 107, 122), (74, 222, 128), (240, 161, 58),
        (125, 176, 255), (214, 140, 255), (94, 220, 230), (232, 238, 251),
    ],
)  # fmt: skip
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>railwright demo</title>
<style>
{stylesheet}
body {{ color: {foreground}; background: {background}; margin: 0; font: 15px/1.5 system-ui, sans-serif; }}
main {{ max-width: 1180px; margin: 0 auto; padding: 20px 16px 48px; }}
pre {{ overflow-x: auto; font: 14px/1.4 ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; }}
@media (width < 760px) {{ pre {{ font-size: 11px; }} }}
</style>
</head>
<body>
<main>
<h1>railwright demo</h1>
<p>A job admitted and placed by the real webhook and the real extender, on a simulated fabric.</p>
<pre>{code}</pre>
</main>
</body>
</html>
"""


def build_html(content: RenderableType) -> str:
    """Return the output as a page, with light text on a dark background whatever the terminal's colours are."""
    recording = console.Console(record=True, file=io.StringIO(), width=WIDTH, color_system="truecolor")
    recording.print(content)
    return recording.export_html(theme=_THEME, code_format=_PAGE)


async def serve(html: str) -> None:
    """Serve one page on a free port of 127.0.0.1; return on SIGINT or SIGTERM."""

    async def page(_: web.Request) -> web.Response:
        return web.Response(text=html, content_type="text/html")

    application = web.Application()
    application.router.add_get("/", page)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        print(f"result:   http://{host}:{port}/  (Ctrl-C to stop)", flush=True)
        stopped = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
        await stopped.wait()
    finally:
        await runner.cleanup()


Tree = dict[str, Any]
ADDED, REMOVED, PLAIN = "green", "red", "default"


def render(fixture: fixtures.Fixture, outcome: scenario.Outcome) -> Group:
    """Return the whole output."""
    first = outcome.admitted[0]
    return Group(
        Text("1. What the user writes, with one label", style="bold"),
        Panel(
            Syntax(_format_template(fixture.job), "yaml", theme="ansi_dark", background_color="default"),
            box=box.ROUNDED,
        ),
        Text(
            "2. The pod after admission",
            "bold",
        ),
        Panel(_render_difference(first.before, first.after), box=box.ROUNDED, title=first.after["metadata"]["name"]),
        *[Text(f"Warning: {warning}", style="yellow") for warning in first.warnings],
        Text("3. Nodes of the gang by Volcano's extender protocol, and without railwright", style="bold"),
        Columns(
            [
                _build_rank_table("with railwright", outcome.placed),
                _build_rank_table("without (modelled)", outcome.without),
            ]
        ),
        _build_summary(outcome),
    )


def _format_template(job: Tree) -> str:
    return yaml.safe_dump(job["spec"]["tasks"][0]["template"], sort_keys=False).rstrip()


def _render_difference(before: Tree, after: Tree) -> RenderableType:
    """Return a coloured diff of the parts of the pod that a fabric concerns."""
    text = Text()
    for line in _diff_lines(_select_parts(before), _select_parts(after)):
        style = ADDED if line.startswith("+") else REMOVED if line.startswith("-") else PLAIN
        text.append(line + "\n", style=style)
    text.rstrip()
    return text


def _select_parts(pod: Tree) -> Tree:
    """Return the parts of a pod that a fabric concerns, with the injection record as a mapping."""
    metadata = object_files.decode_record(pod)["metadata"]
    selected = {"labels": metadata.get("labels"), "annotations": dict(metadata.get("annotations", {}))}
    return {"metadata": selected, "spec": pod["spec"]}


def _diff_lines(before: Tree, after: Tree) -> Iterator[str]:
    one, other = (yaml.safe_dump(tree, sort_keys=True, width=90).splitlines() for tree in (before, after))
    yield from (line for line in difflib.ndiff(one, other) if not line.startswith("?"))


def _build_rank_table(title: str, placed: Sequence[scenario.Placed]) -> Table:
    table = Table(title=title, box=box.SIMPLE_HEAD, title_style="bold")
    for column in ("rank", "node", "leaf", "superpod"):
        table.add_column(column)
    colours = dict(zip(dict.fromkeys(pod.leaf for pod in placed), _COLOURS * len(placed), strict=False))
    for pod in placed:
        table.add_row(pod.pod, pod.node, Text(pod.leaf, style=colours[pod.leaf]), pod.spine)
    return table


_COLOURS = ("green", "cyan", "magenta", "yellow", "blue", "red")


def _build_summary(outcome: scenario.Outcome) -> Table:
    least = scenario.count_min_leaves(outcome.free_by_leaf, len(outcome.placed))
    table = Table(box=box.SIMPLE_HEAD, title="summary", title_style="bold")
    for column in ("", "with railwright", "without"):
        table.add_column(column)
    used, without = scenario.count_leaves(outcome.placed), scenario.count_leaves(outcome.without)
    table.add_row(f"leaves used (least possible: {least})", _format_count(used, least), _format_count(without, least))
    table.add_row(
        "ring edges that leave a leaf",
        _format_count(scenario.count_crossings(outcome.placed), 0 if least == 1 else least),
        _format_count(scenario.count_crossings(outcome.without), 0 if least == 1 else least),
    )
    added = len(list_added_lines(outcome))
    rails = len(outcome.annotations[0].get("rails", ()))
    table.add_row("network of the ranks", Text(f"RDMA on {rails} rails", style="green"), Text("TCP", style="red"))
    table.add_row("pod YAML for that, by hand", Text("1 line", style="green"), Text(f"{added} lines", style="red"))
    annotated = sum(map(bool, outcome.annotations))
    table.add_row(
        "pods annotated with their placement", Text(f"{annotated} of {len(outcome.placed)}", style="green"), "none"
    )
    return table


def list_added_lines(outcome: scenario.Outcome) -> list[str]:
    """Return the lines that admission added to the first pod, without the record, which nobody writes by hand."""
    first = outcome.admitted[0]
    before, after = _select_parts(first.before), _select_parts(first.after)
    after["metadata"]["annotations"].pop(object_files.RECORD, None)
    return [line for line in _diff_lines(before, after) if line.startswith("+")]


def _format_count(value: int, best: int) -> Text:
    return Text(str(value), style="green" if value <= best else "red")
