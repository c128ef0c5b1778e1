"""Runs `railwright demo`: admits and places a gang on simulated nodes, and prints a summary of one screen, the card.

With --serve, the dashboard shows the simulated cluster with the placed gang.
"""

import argparse
import asyncio
import itertools
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import yaml

from railwright.cli import dashboard, output
from railwright.cli.demo import scenario
from railwright.cli.output import Line
from railwright.dashboard import application
from railwright.fabric import names, text
from railwright.fabric.overview import overview_types
from railwright.fabric.workloads.frameworks import get_mapping
from railwright.serving import settings


def show_demo(arguments: argparse.Namespace) -> int:
    """Admit and place the gang, and print the card. Return 0."""
    with output.show_progress("placing a gang on simulated nodes"):
        cluster = scenario.build_cluster()
        outcome = scenario.admit_and_place(cluster)
    output.print_lines(_format_card(cluster, outcome))
    if arguments.serve:
        feed = application.Feed(outcome.overview, source="demo: simulated nodes")
        asyncio.run(
            dashboard.serve_page(feed, (), settings.parse_address("127.0.0.1:0"), is_opened=sys.stdout.isatty())
        )
    return output.OK


# --- the card -------------------------------------------------------------------------------------------

Tree = dict[str, Any]
_LEFT_WIDTH = 39  # columns before the line in the middle
_MAP = 37  # columns of a map of the leaves
_POD, _FREE, _BUSY = "●", "○", "x"
_BAR = 20  # columns of a bar at full bandwidth
_NEXT = (
    ("Your job:  ", "railwright explain job.yaml --policy policy.yaml"),
    ("Live page: ", "railwright demo --serve; of your cluster: railwright dashboard --open"),
    ("Install:   ", "helm install railwright CHART -n railwright-system --create-namespace"),
)


def _format_card(cluster: scenario.Cluster, outcome: scenario.Outcome) -> Iterator[Line]:
    """Yield the lines of the card: the job, its changes, and its placement with and without railwright."""
    fabric, gpus = cluster.policy.document.fabrics[scenario.FABRIC], cluster.nodes[0]["status"]["allocatable"]
    rails, uplinks = len(fabric.rails), fabric.placement.oversubscription[0]  # of a leaf
    job = f"A job of {outcome.placed.size} pods on {len(cluster.nodes)} simulated nodes"
    yield ((f"{job} with {gpus['nvidia.com/gpu']} GPUs and {rails} RDMA rails each", "bold"),)
    yield _join_columns((("You write one label", "bold"),), (("The webhook adds to each pod", "bold"),))
    columns = _format_job(cluster.job), _format_changes(cluster.job, outcome.pods[0])
    yield from itertools.starmap(_join_columns, itertools.zip_longest(*columns, fillvalue=()))
    yield ()
    yield _join_columns(
        (("Without: no label, Volcano alone", "bold"),), (("With railwright: label and extender", "bold"),)
    )
    without = _format_placement(cluster, outcome.without, "TCP on the pod network", "red")
    placed = _format_placement(cluster, outcome.placed, f"RDMA on {rails} rails", "green")
    yield from map(_join_columns, without, placed)
    legend = f"{_POD} node of the job   {_FREE} free   {_BUSY} busy   a group: the nodes of one leaf switch"
    yield ((legend, "dim"),)
    yield ((f"Bandwidth is modelled: both placements over RDMA, uplinks oversubscribed {uplinks:g}:1.", "dim"),)
    yield ()
    yield from (((purpose, ""), (command, "bold")) for purpose, command in _NEXT)


def _join_columns(left: Line, right: Line) -> Line:
    """Return a line with two columns, separated by a vertical line."""
    used = sum(len(part) for part, _ in left)
    return (*left, (" " * (_LEFT_WIDTH - used), ""), ("│ ", "dim"), *right)


def _format_job(job: Tree) -> list[Line]:
    """Return the labels and limits of the job's template as YAML lines, with the opt-in label in green."""
    template = job["spec"]["tasks"][0]["template"]
    [container] = template["spec"]["containers"]
    requesting = {"name": container["name"], "resources": {"limits": container["resources"]["limits"]}}
    tree = {"metadata": {"labels": template["metadata"]["labels"]}, "spec": {"containers": [requesting]}}
    lines = yaml.safe_dump(tree, sort_keys=False, default_flow_style=None, width=_LEFT_WIDTH).splitlines()
    return [((line, "green" if names.FABRIC in line else ""),) for line in lines]


def _format_changes(job: Tree, pod: Tree) -> list[Line]:
    """Return a line for each kind of change that admission has made to the first pod of the job."""
    before, after = job["spec"]["tasks"][0]["template"]["spec"]["containers"][0], pod["spec"]["containers"][0]
    networks = pod["metadata"]["annotations"][names.NETWORKS].split(",")
    devices = [name for name in after["resources"]["limits"] if name not in before["resources"]["limits"]]
    memory = next(filter(None, (get_mapping(item, "emptyDir").get("sizeLimit") for item in pod["spec"]["volumes"])))
    return [
        (("networks  ", "dim"), (_format_number_range(networks), "green")),
        (("devices   ", "dim"), (_format_number_range(devices), "green")),
        (("memory    ", "dim"), (f"{memory} of shared memory", "green")),
        (("rights    ", "dim"), (", ".join(after["securityContext"]["capabilities"]["add"]), "green")),
        (("variables ", "dim"), (f"{len(after['env'])}, of NCCL, UCX and others", "green")),
        (("finds     ", "dim"), ("devices and GIDs in the pod", "green")),
        (("record    ", "dim"), ("the reason for each change", "green")),
    ]


def _format_number_range(values: Sequence[str]) -> str:
    """Return numbered names such as rail0, rail1 and rail2 as rail0..2."""
    last = re.search(r"\d+$", values[-1])
    return f"{values[0]}..{last[0]}" if last and len(values) > 1 else values[0]


def _draw_nodes(cluster: scenario.Cluster, gang: overview_types.Gang) -> list[Line]:
    """Return lines with a character for each node, grouped by leaf; each superpod begins a line."""
    cells = dict.fromkeys(cluster.busy, (_BUSY, "dim")) | {rank.node: (_POD, "bold cyan") for rank in gang.ranks}
    lines: list[Line] = []
    for _, nodes in itertools.groupby(cluster.nodes, key=lambda node: node["metadata"]["labels"][scenario.SPINE_LABEL]):
        lines.append(())
        for _, members in itertools.groupby(nodes, key=lambda node: node["metadata"]["labels"][scenario.LEAF_LABEL]):
            leaf = [cells.get(node["metadata"]["name"], (_FREE, "dim")) for node in members]
            if sum(len(part) for part, _ in lines[-1]) + 1 + len(leaf) > _MAP:
                lines.append(())
            lines[-1] = (*lines[-1], (" ", ""), *leaf)
    return lines


def _format_placement(cluster: scenario.Cluster, gang: overview_types.Gang, network: str, style: str) -> list[Line]:
    """Return the lines about a placement of the gang: the map of nodes, leaves, network and bandwidth."""
    fewer = f", where {gang.min_leaves} would do" if gang.leaves > gang.min_leaves else ""
    bandwidth = gang.bandwidth or 0.0
    return [
        *_draw_nodes(cluster, gang),
        ((f"{text.format_count(gang.leaves, 'leaf')}{fewer}", style),),
        ((f"network: {network}", style),),
        (("bandwidth ", ""), ("█" * round(bandwidth * _BAR), style), (f" {round(bandwidth * 100)} %", style)),
    ]
