"""Measures how the cost of a request grows, and draws docs/evidence/growth.svg.

Requests of kube-scheduler for pods of waiting gangs: filter, then prioritize, offered all nodes or the nodes of one
leaf. Everything runs in this process, without sockets, and the figures are CPU time of both requests: the median of
those after the first. Each panel varies one size of a cluster of 5,000 nodes, half of them occupied. Prints a table of
Markdown for the page.
"""

import dataclasses
import gc
import itertools
import pathlib
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence

import bodies
import clusters
import machine
import msgspec

from extender import decider, kube_scheduler
from extender import state as states
from railwright.cluster import policies, resources
from railwright.fabric import hypernodes
from railwright.fabric.policy import model
from railwright.fabric.workloads import membership

HERE = pathlib.Path(__file__).resolve().parent
PICTURE = HERE.parents[1] / "docs" / "evidence" / "growth.svg"
NODES = 5000
PODS = 24  # of a gang, asked about one after the other
LEAF = 64  # nodes of the short lists
ALL, SHORT = "all nodes", f"a list of {LEAF} nodes"
_LEVELS = ("hypernode/level-1", "hypernode/level-2")

Costs = Mapping[str, float]
"""What is offered -> milliseconds of CPU of filter and prioritize."""


class Site:
    """An extender with a generated cluster, in this process."""

    def __init__(self, shape: clusters.Shape, **placement: object) -> None:
        self.cluster, self.now = clusters.Cluster(shape), 1000.0
        state = states.State(assume_seconds=30, clock=lambda: self.now)
        self._watches = {watch.kind.name: watch for watch in states.list_watches(state)}
        self._load(resources.DEVICE_CLASSES, self.cluster.classes())
        self._load(resources.RESOURCE_SLICES, self.cluster.slices())
        self._load(resources.CLAIM_TEMPLATES, self.cluster.templates())
        self._load(resources.NODES, self.cluster.nodes())
        self._load(resources.PLACED_PODS, self.cluster.pods())
        self._load(resources.RESOURCE_CLAIMS, self.cluster.claims())
        for kind in membership.SIZE_KINDS:
            if kind.name.endswith("scheduling.x-k8s.io"):
                self._load(resources.GANG_SIZES[kind.name], self.cluster.kube_groups())
        policy = _read_policy(shape, placement)
        state.apply_policy(policy)
        self.state, self._claiming = state, shape.claims == clusters.TEMPLATES
        self._decider = decider.Decider(state, lambda: policy, clock=lambda: self.now, count_rejected=lambda *_: None)
        self._decider.warm()
        self.handlers = kube_scheduler.KubeScheduler(self._decider)
        gc.collect()
        gc.freeze()

    def _load(self, kind: resources.Kind, objects) -> None:
        watch, decode = self._watches[kind.name], msgspec.json.Decoder(kind.view).decode
        watch.sink.replace([watch.excerpt(decode(obj)) for obj in objects])

    def ask(self, gang: int, rank: int, names: Sequence[str], kind: int = 0) -> float:
        """Return the CPU milliseconds of filter and prioritize for a pod. `kind` changes what it requests."""
        pod = clusters.kube_pod(gang, rank, claiming=self._claiming)
        pod = pod.replace(b'"requests":{', b'"requests":{"cpu":"%d",' % (kind + 1), 1)
        body = bodies.kube(pod, names)
        began = time.thread_time()
        answer = self.handlers.filter(body)
        spent = time.thread_time() - began
        body = bodies.kube(pod, msgspec.json.decode(answer)["NodeNames"])
        began = time.thread_time()
        self.handlers.prioritize(body)
        self.now += 0.02
        return (spent + time.thread_time() - began) * 1e3

    def measure(self, ask: Callable[[int, Sequence[str]], float] | None = None) -> Costs:
        """Return the median cost of requests with all nodes and with a short list."""
        ask = ask or (lambda rank, names: self.ask(0, rank, names))
        free = self.cluster.free[:LEAF]
        costs = {}
        for title, names in ((ALL, self.cluster.names), (SHORT, free)):
            self.now += 60  # what was guessed of earlier requests no longer counts
            costs[title] = statistics.median([ask(rank, names) for rank in range(PODS)][2:])
        return costs


def _read_policy(shape: clusters.Shape, placement: Mapping[str, object]) -> model.Policy:
    name = "placement-claims.yaml" if shape.claims == clusters.TEMPLATES else "placement.yaml"
    policy = policies.read((HERE / name).read_text())
    assert isinstance(policy, model.Policy)
    fabric = policy.document.fabrics["roce"]
    changed = msgspec.structs.replace(fabric, placement=msgspec.structs.replace(fabric.placement, **placement))
    document = msgspec.structs.replace(policy.document, fabrics={"roce": changed})
    return msgspec.structs.replace(policy, document=document)


# --- panels -------------------------------------------------------------------------------------------


def build_shape(**changes: object) -> clusters.Shape:
    return dataclasses.replace(clusters.Shape(volcano_gangs=(), bulky=False), **changes)


def vary_nodes(nodes: int) -> Costs:
    return Site(build_shape(nodes=nodes, pods=4 * nodes)).measure()


def vary_gangs(gangs: int) -> Costs:
    """Measure one gang while others have a plan and wait."""
    site = Site(build_shape(kube_gangs=gangs))
    for gang in range(1, gangs):
        site.ask(gang, 0, site.cluster.names)
    return site.measure()


def vary_kinds(kinds: int) -> Costs:
    """Measure pods of so many kinds in turn."""
    site = Site(build_shape())
    for kind in range(kinds):
        site.ask(0, 0, site.cluster.names, kind)
    turns_of_kinds = itertools.cycle(range(kinds))
    return site.measure(lambda rank, names: site.ask(0, rank, names, next(turns_of_kinds)))


def vary_leaves(leaves: int) -> Costs:
    site = Site(build_shape(leaf_nodes=max(6, NODES // leaves)))
    return site.measure()


def vary_hyper_nodes(count: int) -> Costs:
    """Measure with domains from HyperNodes of two tiers, each of which lists its members."""
    site = Site(build_shape(), domains=_LEVELS)
    names, size = site.cluster.names, NODES // count
    leaves = [names[start : start + size] for start in range(0, NODES, size)]
    tree = [build_hyper_node(f"leaf-{number}", 1, "Node", members) for number, members in enumerate(leaves)]
    for first in range(0, len(leaves), 8):
        members = [f"leaf-{number}" for number in range(first, min(first + 8, len(leaves)))]
        tree.append(build_hyper_node(f"spine-{first}", 2, "HyperNode", members))
    site.state.cluster.replace_hyper_nodes(tree)
    return site.measure()


def build_hyper_node(name: str, tier: int, kind: str, members: Sequence[str]) -> hypernodes.HyperNode:
    selectors = [{"type": kind, "selector": {"exactMatch": {"name": member}}} for member in members]
    return msgspec.convert(
        {"metadata": {"name": name}, "spec": {"tier": tier, "members": selectors}}, hypernodes.HyperNode
    )


def vary_claims(claims: int) -> Costs:
    return Site(build_shape(claims=clusters.TEMPLATES, taken=claims / NODES, bulky=True)).measure()


PANELS: Mapping[str, tuple[Callable[[int], Costs], Sequence[int]]] = {
    "nodes": (vary_nodes, (500, 1000, 2000, 5000, 10_000, 20_000)),
    "gangs that wait": (vary_gangs, (1, 16, 64, 128, 256)),
    "kinds of pods, in turn": (vary_kinds, (1, 16, 64, 65, 80)),
    "leaves": (vary_leaves, (10, 40, 160, 400, 800)),
    "HyperNodes": (vary_hyper_nodes, (10, 50, 200, 500)),
    "claims that hold devices": (vary_claims, (0, 1250, 2500, 4500)),
}


def main() -> int:
    """Measure, draw and print."""
    options = machine.parse_options(__doc__, only=list(PANELS))
    random.seed(0)
    gauges, measured = [machine.time_fixed_work()], {}
    for title in options.only or PANELS:
        vary, sizes = PANELS[title]
        measured[title] = {size: vary(size) for size in sizes}
        gauges.append(machine.time_fixed_work())
        print(title, measured[title], file=sys.stderr, flush=True)
        gc.unfreeze()
    machine.write_results("growth", panels=measured, fixed_work_us=gauges)
    print(format_table(measured))
    print(machine.describe_disturbance(gauges))
    if not options.only:
        PICTURE.write_text(draw(measured))
    return 0


def format_table(measured: Mapping[str, Mapping[int, Costs]]) -> str:
    """Return the figures as Markdown."""
    lines = ["| what grows | offered | ms of CPU for filter and prioritize |", "|---|---|---|"]
    for title, rows in measured.items():
        for offered in (ALL, SHORT):
            cells = ", ".join(f"{size:,}: {costs[offered]:.2f}" for size, costs in rows.items())
            lines.append(f"| {title} | {offered} | {cells} |")
    return "\n".join(lines)


# --- picture ------------------------------------------------------------------------------------------

_WIDTH, _HEIGHT, _COLUMNS = 280, 190, 3
_LEFT, _BOTTOM, _TOP, _RIGHT = 40, 34, 30, 12
_COLORS = {ALL: "#2563eb", SHORT: "#ea580c"}
_TEXT = 'font-family="sans-serif" fill="#374151"'


def draw(measured: Mapping[str, Mapping[int, Costs]]) -> str:
    """Draw one panel for each size that grows. Both axes are linear and begin at 0."""
    rows = -(-len(measured) // _COLUMNS)
    width, height = _COLUMNS * _WIDTH, rows * _HEIGHT + 24
    label = "CPU time of filter and prioritize against the size of the cluster"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{label}">',
        f'<rect width="{width}" height="{height}" rx="6" fill="#f9fafb"/>',
    ]
    for number, (title, costs) in enumerate(measured.items()):
        parts += _draw_panel(number % _COLUMNS * _WIDTH, number // _COLUMNS * _HEIGHT, title, costs)
    for number, (offered, color) in enumerate(_COLORS.items()):
        x, y = 40 + 200 * number, height - 14
        parts.append(f'<line x1="{x}" y1="{y}" x2="{x + 24}" y2="{y}" stroke="{color}" stroke-width="2"/>')
        parts.append(_draw_text(x + 30, y + 4, f"ms of CPU, {offered}"))
    return "\n".join([*parts, "</svg>", ""])


def _draw_panel(left: int, top: int, title: str, costs: Mapping[int, Costs]) -> list[str]:
    highest = max(max(values.values()) for values in costs.values()) * 1.1
    widest = max(costs) or 1
    x_of = lambda size: left + _LEFT + (_WIDTH - _LEFT - _RIGHT) * size / widest  # noqa: E731
    y_of = lambda value: top + _HEIGHT - _BOTTOM - (_HEIGHT - _BOTTOM - _TOP) * value / highest  # noqa: E731
    axis = 'stroke="#9ca3af" stroke-width="1"'
    parts = [
        _draw_text(left + _LEFT, top + 18, title, weight="bold"),
        f'<line x1="{x_of(0):.1f}" y1="{y_of(0):.1f}" x2="{x_of(widest):.1f}" y2="{y_of(0):.1f}" {axis}/>',
        f'<line x1="{x_of(0):.1f}" y1="{y_of(0):.1f}" x2="{x_of(0):.1f}" y2="{y_of(highest):.1f}" {axis}/>',
        _draw_text(left + 6, round(y_of(highest / 1.1)) + 4, f"{highest / 1.1:.1f}"),
        _draw_text(left + _LEFT, round(y_of(0)) + 16, "0"),
        _draw_text(round(x_of(widest)), round(y_of(0)) + 16, f"{widest:,}", anchor="end"),
    ]
    for offered, color in _COLORS.items():
        points = [(x_of(size), y_of(values[offered])) for size, values in costs.items()]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{color}"/>' for x, y in points]
    return parts


def _draw_text(x: int, y: int, text: str, *, weight: str = "normal", anchor: str = "start") -> str:
    return f'<text x="{x}" y="{y}" font-size="11" font-weight="{weight}" text-anchor="{anchor}" {_TEXT}>{text}</text>'


if __name__ == "__main__":
    sys.exit(main())
