"""Runs `railwright demo`: shows each step and the result, serves the dashboard, and sets the exit code.

The result is a card of one screen; --full also prints a report.
"""

import argparse
import asyncio
import contextlib
import itertools
import pathlib
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import yaml
from rich import box, console
from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from railwright.cli import formats, object_files, output
from railwright.cli.demo import fixture as fixtures
from railwright.cli.demo import live_view, scenario
from railwright.cli.output import Line
from railwright.fabric import names, text
from railwright.simulator import cluster_specs, optimum


def run(arguments: argparse.Namespace) -> int:
    """Return 0 if all pods were injected and placed optimally, 1 if not, 2 if a server did not start."""
    with tempfile.TemporaryDirectory(prefix="railwright-demo-") as folder:
        try:
            return asyncio.run(_run_demo(arguments, pathlib.Path(folder)))
        except fixtures.StartError as error:
            print(f"railwright demo: {error}", file=sys.stderr)
            return output.UNUSABLE
        except KeyboardInterrupt:
            return output.OK


async def _run_demo(arguments: argparse.Namespace, folder: pathlib.Path) -> int:
    steps = _Steps()
    steps.report("starting")
    async with contextlib.AsyncExitStack() as stack:
        async with output.show_spinner(lambda: steps.text):
            running = await stack.enter_async_context(fixtures.start(folder, report=steps.report))
            outcome = await scenario.run(running, steps.report)
        min_leaves = optimum.count_leaves(sorted(outcome.free_by_leaf.values(), reverse=True), len(outcome.placed))
        is_optimal = scenario.count_leaves(outcome.placed) == min_leaves and all(outcome.annotations)
        if formats.is_document(arguments.output):
            document = {"fine": is_optimal, "min_leaves": min_leaves} | msgspec.to_builtins(outcome)
            formats.print_document(document, arguments.output)
        else:
            if arguments.full:
                screen = console.Console()
                screen.width = screen.width if screen.is_terminal else _PIPED_WIDTH
                screen.print(_render(running, outcome))
            output.print_lines(_format_card(running, outcome))
        if arguments.svg:
            lines = _format_card(running, outcome)
            picture = output.draw(lines, title="railwright demo", width=_CARD_WIDTH)
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


# --- the card -------------------------------------------------------------------------------------------

_Tree = dict[str, Any]
_CARD_WIDTH = 80  # columns
_LEFT = 39  # columns before the line in the middle
_MAP = 37  # columns of a map of the leaves
_POD, _FREE, _BUSY = "●", "○", "x"
_BAR = 20  # columns of a bar at full bandwidth
_NEXT = (
    ("Your job:  ", "railwright explain job.yaml --policy policy.yaml"),
    ("Live page: ", "railwright demo --serve; of your cluster: railwright dashboard --open"),
    ("Install:   ", "helm install railwright CHART -n railwright-system --create-namespace"),
)


def _format_card(fixture: fixtures.Fixture, outcome: scenario.Outcome) -> Iterator[Line]:
    """Yield the lines of the card."""
    resources = fixture.nodes[0]["status"]["allocatable"]
    rails = len(outcome.annotations[0].get("rails", ()))
    job = f"A job of {len(outcome.placed)} pods on {len(fixture.nodes)} simulated nodes"
    yield ((f"{job} with {resources['nvidia.com/gpu']} GPUs and {rails} RDMA rails each", "bold"),)
    yield _join((("You write one label", "bold"),), (("The webhook adds to each pod", "bold"),))
    yield from map(_join, *_pad(_format_job(fixture.job), _format_changes(outcome.admitted[0])))
    yield ()
    yield _join((("Without: no label, Volcano alone", "bold"),), (("With railwright: label and extender", "bold"),))
    maps = (_format_map(fixture, placed) for placed in (outcome.without, outcome.placed))
    yield from map(_join, *maps)
    yield _join(_format_leaves(outcome.without, "red"), _format_leaves(outcome.placed, "green"))
    yield _join((("network: TCP on the pod network", "red"),), ((f"network: RDMA on {rails} rails", "green"),))
    yield _join(_format_bar(outcome.bandwidth_without, "red"), _format_bar(outcome.bandwidth, "green"))
    legend = f"{_POD} node of the job   {_FREE} free   {_BUSY} busy   a group: the nodes of one leaf switch"
    yield ((legend, "dim"),)
    placement = yaml.safe_load(fixture.policy_text)["fabrics"]["roce"]["placement"]
    uplinks = f"uplinks {placement['oversubscription'][0]}:1"  # of a leaf
    yield ((f"Bandwidth: both placements over RDMA, {uplinks}. Modelled, not measured.", "dim"),)
    yield ()
    yield from (((purpose, ""), (command, "bold")) for purpose, command in _NEXT)


def _join(left: Line, right: Line) -> Line:
    """Return a line with two columns."""
    used = sum(len(part) for part, _ in left)
    return (*left, (" " * (_LEFT - used), ""), ("│ ", "dim"), *right)


def _pad(*columns: Sequence[Line]) -> list[list[Line]]:
    """Return the columns with equal numbers of lines."""
    height = max(map(len, columns))
    return [[*column, *[()] * (height - len(column))] for column in columns]


def _format_job(job: _Tree) -> list[Line]:
    """Return the parts of the job's template that the demo concerns, with the label marked."""
    template = job["spec"]["tasks"][0]["template"]
    [container] = template["spec"]["containers"]
    limits = {"name": container["name"], "resources": {"limits": container["resources"]["limits"]}}
    tree = {"metadata": {"labels": template["metadata"]["labels"]}, "spec": {"containers": [limits]}}
    lines = yaml.safe_dump(tree, sort_keys=False, default_flow_style=None, width=_LEFT).splitlines()
    return [((line, "green" if names.FABRIC in line else ""),) for line in lines]


def _format_changes(pod: scenario.Admitted) -> list[Line]:
    """Return a line for each kind of change."""
    before, after = pod.before["spec"]["containers"][0], pod.after["spec"]["containers"][0]
    networks = pod.after["metadata"]["annotations"][names.NETWORKS].split(",")
    devices = [name for name in after["resources"]["limits"] if name not in before["resources"]["limits"]]
    variables = {variable["name"]: variable["value"] for variable in after["env"]}
    memory = next(volume["emptyDir"]["sizeLimit"] for volume in pod.after["spec"]["volumes"] if "emptyDir" in volume)
    capabilities = after["securityContext"]["capabilities"]["add"]
    return [
        (("networks  ", "dim"), (_shorten(networks), "green")),
        (("devices   ", "dim"), (_shorten(devices), "green")),
        (("memory    ", "dim"), (f"{memory} of shared memory", "green")),
        (("rights    ", "dim"), (", ".join(capabilities), "green")),
        (("NCCL      ", "dim"), (f"NCCL_IB_HCA{variables['NCCL_IB_HCA'].partition(',')[0]}, ...", "green")),
        (("          ", ""), (f"and {len(variables) - 1} more variables", "green")),
        (("record    ", "dim"), ("the reason for each change", "green")),
    ]


def _shorten(values: Sequence[str]) -> str:
    """Return names that differ in their last number as FIRST..LAST."""
    last = re.search(r"\d+$", values[-1])
    return f"{values[0]}..{last[0]}" if last and len(values) > 1 else values[0]


def _format_map(fixture: fixtures.Fixture, placed: Sequence[scenario.Placed]) -> list[Line]:
    """Return the nodes of each leaf as cells, the leaves of a superpod together."""
    gang = {pod.node for pod in placed}
    busy = {pod["spec"]["nodeName"] for pod in fixture.pods if _requests_gpus(pod)}
    lines: list[Line] = []
    for _, nodes in itertools.groupby(
        fixture.nodes, key=lambda node: node["metadata"]["labels"][cluster_specs.SPINE_LABEL]
    ):
        lines.append(())
        for _, members in itertools.groupby(
            nodes, key=lambda node: node["metadata"]["labels"][cluster_specs.LEAF_LABEL]
        ):
            cells = [_format_cell(node["metadata"]["name"], gang, busy) for node in members]
            if sum(len(part) for part, _ in lines[-1]) + 1 + len(cells) > _MAP:
                lines.append(())
            lines[-1] = (*lines[-1], (" ", ""), *cells)
    return lines


def _format_cell(node: str, gang: set[str], busy: set[str]) -> tuple[str, str]:
    if node in gang:
        return (_POD, "bold cyan")
    return (_BUSY, "dim") if node in busy else (_FREE, "dim")


def _requests_gpus(pod: _Tree) -> bool:
    return "nvidia.com/gpu" in pod["spec"]["containers"][0]["resources"]["requests"]


def _format_leaves(placed: Sequence[scenario.Placed], style: str) -> Line:
    leaves = text.format_count(scenario.count_leaves(placed), "leaf")
    return ((f"{leaves}; {scenario.count_crossings(placed)} of {len(placed)} ring edges leave one", style),)


def _format_bar(bandwidth: float, style: str) -> Line:
    return (("bandwidth ", ""), ("█" * round(bandwidth * _BAR), style), (f" {round(bandwidth * 100)} %", style))


# --- the report of --full -------------------------------------------------------------------------------

_PIPED_WIDTH = 120  # columns of the report without a terminal


def _render(fixture: fixtures.Fixture, outcome: scenario.Outcome) -> Group:
    """Return the job, the changes of its first pod, and the node of each rank."""
    first = outcome.admitted[0]
    template = yaml.safe_dump(fixture.job["spec"]["tasks"][0]["template"], sort_keys=False)
    return Group(
        Text("1. What the user writes, with one label", style="bold"),
        Panel(
            Syntax(template.rstrip(), "yaml", theme="ansi_dark", background_color="default"),
            box=box.ROUNDED,
        ),
        Text("2. The pod after admission", "bold"),
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


def _render_difference(before: _Tree, after: _Tree) -> RenderableType:
    """Return a coloured diff of the parts of the pod that a fabric concerns, with the injection record as a mapping."""
    old, new = ({"metadata": pod["metadata"], "spec": pod["spec"]} for pod in (before, after))
    lines = itertools.islice(object_files.format_difference(old, new), 1, None)  # the first has the line numbers
    return Text("\n").join(Text(line, "default" if style == "dim" else style) for line, style in lines)


def _build_rank_table(title: str, placed: Sequence[scenario.Placed]) -> Table:
    table = Table(title=title, box=box.SIMPLE_HEAD, title_style="bold")
    for column in ("rank", "node", "leaf", "superpod"):
        table.add_column(column)
    colours = dict(zip(dict.fromkeys(pod.leaf for pod in placed), _COLOURS * len(placed), strict=False))
    for pod in placed:
        table.add_row(pod.pod, pod.node, Text(pod.leaf, style=colours[pod.leaf]), pod.spine)
    return table


_COLOURS = ("green", "cyan", "magenta", "yellow", "blue", "red")
