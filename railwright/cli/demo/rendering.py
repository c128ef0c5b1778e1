"""Renders the demo: the pod before and after admission, and the node of each rank with and without railwright."""

import difflib
from collections.abc import Iterator, Sequence
from typing import Any

import yaml
from rich import box
from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from railwright.cli import pod_yaml
from railwright.cli.demo import fixture as fixtures
from railwright.cli.demo import scenario

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
    metadata = pod_yaml.decode_record(pod)["metadata"]
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
    after["metadata"]["annotations"].pop(pod_yaml.RECORD, None)
    return [line for line in _diff_lines(before, after) if line.startswith("+")]


def _format_count(value: int, best: int) -> Text:
    return Text(str(value), style="green" if value <= best else "red")
