"""What the demo shows: the pod before and after, where each rank landed, and what it would have been without us."""

import difflib
import json
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

from railwright.cli.demo import play
from railwright.cli.demo import stage as stages
from railwright.fabric import names

Tree = dict[str, Any]
ADDED, REMOVED, PLAIN = "green", "red", "default"


def render(stage: stages.Stage, outcome: play.Outcome) -> Group:
    """The whole picture, top to bottom."""
    first = outcome.admitted[0]
    return Group(
        Text("1. What the user writes, with one label", style="bold"),
        Panel(Syntax(_template(stage.job), "yaml", theme="ansi_dark", background_color="default"), box=box.ROUNDED),
        Text(
            "2. What the pod is after admission (POST /mutate/pods, applied by an independent JSON Patch applier)",
            "bold",
        ),
        Panel(_difference(first.before, first.after), box=box.ROUNDED, title=first.after["metadata"]["name"]),
        *[Text(f"Warning: {warning}", style="yellow") for warning in first.warnings],
        Text("3. Where the gang landed (Volcano's extender protocol), and where it would have landed", style="bold"),
        Columns([_ranks("with railwright", outcome.placed), _ranks("without (modelled)", outcome.without)]),
        _summary(outcome),
    )


_RECORD = f"{names.INJECTION} (JSON)"


def _template(job: Tree) -> str:
    return yaml.safe_dump(job["spec"]["tasks"][0]["template"], sort_keys=False).rstrip()


def _difference(before: Tree, after: Tree) -> RenderableType:
    """A coloured diff of the parts of the pod that a fabric concerns."""
    text = Text()
    for line in _diff_lines(_shown(before), _shown(after)):
        style = ADDED if line.startswith("+") else REMOVED if line.startswith("-") else PLAIN
        text.append(line + "\n", style=style)
    text.rstrip()
    return text


def _shown(pod: Tree) -> Tree:
    """The parts a fabric concerns; the record, one line of JSON on the pod, is shown as the mapping it is."""
    annotations = dict(pod["metadata"].get("annotations", {}))
    if record := annotations.pop(names.INJECTION, None):
        annotations[_RECORD] = {name: _joined(value) for name, value in json.loads(record).items()}
    return {"metadata": {"labels": pod["metadata"].get("labels"), "annotations": annotations}, "spec": pod["spec"]}


def _joined(value: Any) -> Any:
    return ", ".join(value) if isinstance(value, list) else value


def _diff_lines(before: Tree, after: Tree) -> Iterator[str]:
    one, other = (yaml.safe_dump(tree, sort_keys=True, width=90).splitlines() for tree in (before, after))
    yield from (line for line in difflib.ndiff(one, other) if not line.startswith("?"))


def _ranks(title: str, placed: Sequence[play.Placed]) -> Table:
    table = Table(title=title, box=box.SIMPLE_HEAD, title_style="bold")
    for column in ("rank", "node", "leaf", "superpod"):
        table.add_column(column)
    colours = dict(zip(dict.fromkeys(each.leaf for each in placed), _COLOURS * len(placed), strict=False))
    for each in placed:
        table.add_row(each.pod, each.node, Text(each.leaf, style=colours[each.leaf]), each.spine)
    return table


_COLOURS = ("green", "cyan", "magenta", "yellow", "blue", "red")


def _summary(outcome: play.Outcome) -> Table:
    least = play.least_leaves(outcome.free_by_leaf, len(outcome.placed))
    table = Table(box=box.SIMPLE_HEAD, title="summary", title_style="bold")
    for column in ("", "with railwright", "without"):
        table.add_column(column)
    used, alone = play.leaves(outcome.placed), play.leaves(outcome.without)
    table.add_row(f"leaves used (least possible: {least})", _verdict(used, least), _verdict(alone, least))
    table.add_row(
        "ring edges that leave a leaf",
        _verdict(play.crossings(outcome.placed), 0 if least == 1 else least),
        _verdict(play.crossings(outcome.without), 0 if least == 1 else least),
    )
    added = len(difference(outcome))
    rails = len(outcome.annotations[0].get("rails", ()))
    table.add_row("network of the ranks", Text(f"RDMA on {rails} rails", style="green"), Text("TCP", style="red"))
    table.add_row("pod YAML for that, by hand", Text("1 line", style="green"), Text(f"{added} lines", style="red"))
    told = sum(map(bool, outcome.annotations))
    table.add_row("pods that say where they landed", Text(f"{told} of {len(outcome.placed)}", style="green"), "none")
    return table


def difference(outcome: play.Outcome) -> list[str]:
    """The lines admission added to the first pod, without the record, which nobody would write by hand."""
    first = outcome.admitted[0]
    before, after = _shown(first.before), _shown(first.after)
    after["metadata"]["annotations"].pop(_RECORD, None)
    return [line for line in _diff_lines(before, after) if line.startswith("+")]


def _verdict(value: int, best: int) -> Text:
    return Text(str(value), style="green" if value <= best else "red")
