"""Shows the demo in full: the job, the changes of a pod line by line, and the node of each rank."""

import difflib
from collections.abc import Iterator, Sequence
from typing import Any

import yaml
from rich import box, console
from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from railwright.cli import object_files
from railwright.cli.demo import fixture as fixtures
from railwright.cli.demo import scenario

_WIDTH = 120  # columns without a terminal


def print_report(fixture: fixtures.Fixture, outcome: scenario.Outcome) -> None:
    """Print the report on stdout."""
    screen = console.Console()
    if not screen.is_terminal:
        screen.width = _WIDTH
    screen.print(render(fixture, outcome))


Tree = dict[str, Any]
ADDED, REMOVED, PLAIN = "green", "red", "default"


def render(fixture: fixtures.Fixture, outcome: scenario.Outcome) -> Group:
    """Return the job, the changes of its first pod, and the node of each rank."""
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
    )


def _format_template(job: Tree) -> str:
    return yaml.safe_dump(job["spec"]["tasks"][0]["template"], sort_keys=False).rstrip()


def _render_difference(before: Tree, after: Tree) -> RenderableType:
    """Return a coloured diff of the parts of the pod that a fabric concerns."""
    text = Text()
    for line in diff_lines(_select_parts(before), _select_parts(after)):
        style = ADDED if line.startswith("+") else REMOVED if line.startswith("-") else PLAIN
        text.append(line + "\n", style=style)
    text.rstrip()
    return text


def _select_parts(pod: Tree) -> Tree:
    """Return the parts of a pod that a fabric concerns, with the injection record as a mapping."""
    metadata = object_files.decode_record(pod)["metadata"]
    selected = {"labels": metadata.get("labels"), "annotations": dict(metadata.get("annotations", {}))}
    return {"metadata": selected, "spec": pod["spec"]}


def diff_lines(before: Tree, after: Tree) -> Iterator[str]:
    """Yield the lines of both trees as YAML, with a sign for those that differ."""
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
