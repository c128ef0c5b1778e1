"""Formats the demo's result as one screen of 80 columns and at most 24 lines: before, after, and what to do next."""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from railwright.cli.demo import fixture as fixtures
from railwright.cli.demo import scenario
from railwright.cli.styled_lines import Line
from railwright.fabric import names, text
from railwright.simulator import shapes

Tree = dict[str, Any]
WIDTH = 80  # columns
_LEFT = 39  # columns before the line in the middle
_MAP = 37  # columns of a map of the leaves
_POD, _FREE, _BUSY = "●", "○", "x"
_BAR = 20  # columns of a bar at full bandwidth
_NEXT = (
    ("Your job:  ", "railwright explain job.yaml --policy policy.yaml"),
    ("Live page: ", "railwright demo --serve; of your cluster: railwright dashboard --open"),
    ("Install:   ", "helm install railwright CHART -n railwright-system --create-namespace"),
)


def format_card(fixture: fixtures.Fixture, outcome: scenario.Outcome) -> Iterator[Line]:
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
    yield ((f"Bandwidth: both placements over RDMA, uplinks {_get_ratio(fixture)}:1. Modelled, not measured.", "dim"),)
    yield ()
    yield from (((purpose, ""), (command, "bold")) for purpose, command in _NEXT)


def _get_ratio(fixture: fixtures.Fixture) -> int:
    """Return the oversubscription of a leaf's uplinks in the demo's policy."""
    fabric = yaml.safe_load(fixture.policy_text)["fabrics"]["roce"]
    ratio: int = fabric["placement"]["oversubscription"][0]
    return ratio


def _join(left: Line, right: Line) -> Line:
    """Return a line with two columns."""
    used = sum(len(part) for part, _ in left)
    return (*left, (" " * (_LEFT - used), ""), ("│ ", "dim"), *right)


def _pad(*columns: Sequence[Line]) -> list[list[Line]]:
    """Return the columns with equal numbers of lines."""
    height = max(map(len, columns))
    return [[*column, *[()] * (height - len(column))] for column in columns]


def _format_job(job: Tree) -> list[Line]:
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
    busy = {pod["spec"]["nodeName"] for pod in fixture.pods if "nvidia.com/gpu" in _list_requests(pod)}
    lines: list[Line] = []
    for _, nodes in itertools.groupby(fixture.nodes, key=lambda node: node["metadata"]["labels"][shapes.SPINE_LABEL]):
        lines.append(())
        for _, members in itertools.groupby(nodes, key=lambda node: node["metadata"]["labels"][shapes.LEAF_LABEL]):
            cells = [_format_cell(node["metadata"]["name"], gang, busy) for node in members]
            if sum(len(part) for part, _ in lines[-1]) + 1 + len(cells) > _MAP:
                lines.append(())
            lines[-1] = (*lines[-1], (" ", ""), *cells)
    return lines


def _format_cell(node: str, gang: set[str], busy: set[str]) -> tuple[str, str]:
    if node in gang:
        return (_POD, "bold cyan")
    return (_BUSY, "dim") if node in busy else (_FREE, "dim")


def _list_requests(pod: Tree) -> Mapping[str, str]:
    requests: Mapping[str, str] = pod["spec"]["containers"][0]["resources"]["requests"]
    return requests


def _format_leaves(placed: Sequence[scenario.Placed], style: str) -> Line:
    leaves = text.format_count(scenario.count_leaves(placed), "leaf")
    return ((f"{leaves}; {scenario.count_crossings(placed)} of {len(placed)} ring edges leave one", style),)


def _format_bar(bandwidth: float, style: str) -> Line:
    return (("bandwidth ", ""), ("█" * round(bandwidth * _BAR), style), (f" {round(bandwidth * 100)} %", style))
