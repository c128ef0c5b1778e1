"""Runs `railwright fabric`: prints fabrics as trees of spines, leaves and nodes, or as documents."""

import argparse
import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from railwright.cli import cluster_overview, formats, options, output
from railwright.fabric import label_selectors, text
from railwright.fabric.overview import overview_types

_LEGEND = "one letter per rail: f free, b busy, w degraded (fewer devices than before), d dead, - not counted"
_COLUMNS = (
    formats.Column("DOMAIN"),
    formats.Column("RAILS"),
    formats.Column("FREE", right=True),
    formats.Column("BUSY", drop=2, right=True),
    formats.Column("DEAD", drop=1, right=True),
    formats.Column("PODS", drop=3, cut=True),
)
_MANY_NODES = 64  # fabrics with more nodes show them only with --nodes


class _Selection(NamedTuple):
    """The fabrics that the options select, with the leaves of the selected nodes."""

    fabrics: Sequence[overview_types.Fabric]
    leaves: Mapping[str, overview_types.Leaf]


def show_fabrics(arguments: argparse.Namespace) -> int:
    """Return 0 if no rail is dead or degraded, 1 if one is, 2 without a cluster or file or such a fabric or nodes."""
    if arguments.nodes and arguments.leaves:
        raise output.UnreadableError("--nodes and --leaves exclude each other; give one of them")
    sources, view = cluster_overview.open_view(arguments)
    selection = _select(view, arguments)
    if arguments.name and not selection.fabrics:
        defined = ", ".join(fabric.name for fabric in view.overview.fabrics) or "none with rails"
        raise output.UnreadableError(f"fabric {arguments.name}: not defined in the policy (defined: {defined})")
    if arguments.selector and not selection.leaves:
        raise output.UnreadableError("no node has these labels; kubectl get nodes --show-labels has those of each node")
    if arguments.watch:
        asyncio.run(_watch(sources, view, arguments))
    if formats.is_document(arguments.output):
        names = [f"fabric/{fabric.name}" for fabric in selection.fabrics]
        document = {"fabrics": selection.fabrics, "leaves": selection.leaves}
        formats.print_document(document, arguments.output, names=names)
    else:
        for fabric in selection.fabrics:
            _print_fabric(fabric, [selection.leaves[key] for key in fabric.leaves], arguments)
    has_findings = any(_has_dead_rail(node) for leaf in selection.leaves.values() for node in leaf.nodes)
    return output.FINDINGS if has_findings else output.OK


def _select(view: cluster_overview.ClusterView, arguments: argparse.Namespace) -> _Selection:
    fabrics = [fabric for fabric in view.overview.fabrics if arguments.name in ("", fabric.name)]
    leaves = {key: view.overview.leaves[key] for fabric in fabrics for key in fabric.leaves}
    if not arguments.selector:
        return _Selection(fabrics, leaves)
    nodes = {name for name, node in view.nodes.items() if label_selectors.matches({}, arguments.selector, node.labels)}
    leaves = {
        key: msgspec.structs.replace(leaf, nodes=selected)
        for key, leaf in leaves.items()
        if (selected := tuple(node for node in leaf.nodes if node.name in nodes))
    }
    return _Selection([_count_again(fabric, leaves) for fabric in fabrics], leaves)


def _count_again(fabric: overview_types.Fabric, leaves: Mapping[str, overview_types.Leaf]) -> overview_types.Fabric:
    """Return the fabric as if it had no leaves and nodes but these."""
    keys = tuple(key for key in fabric.leaves if key in leaves)
    nodes = [node for key in keys for node in leaves[key].nodes]
    free, busy, dead = map(int, _count_rails(nodes))
    return msgspec.structs.replace(
        fabric, leaves=keys, nodes=len(nodes), rails_free=free, rails_busy=busy, rails_dead=dead
    )


def _has_dead_rail(node: overview_types.Node) -> bool:
    return not {"d", "w"}.isdisjoint(node.rails)


def _print_fabric(
    fabric: overview_types.Fabric, leaves: list[overview_types.Leaf], arguments: argparse.Namespace
) -> None:
    counts = f"{fabric.rails_free} free, {fabric.rails_busy} busy, {fabric.rails_dead} dead"
    rails = text.format_count(len(fabric.rails), "rail")
    if fabric.device_class:
        rails = f"{rails} by claims of DeviceClass {fabric.device_class}"
    output.print_styled(
        (fabric.name, "bold"),
        (f" {fabric.transport}, {text.format_count(fabric.nodes, 'node')}, {rails}: {counts}", ""),
    )
    each_node = arguments.dead or arguments.nodes or (fabric.nodes <= _MANY_NODES and not arguments.leaves)
    rows, styles = [], []
    for row, style in _list_rows(leaves, each_node=each_node, dead_only=arguments.dead):
        rows.append(row)
        styles.append(style)
    formats.print_table(
        _COLUMNS, rows, styles=styles, wide=arguments.output == options.WIDE, headers=not arguments.no_headers
    )
    if each_node and any(node.rails for leaf in leaves for node in leaf.nodes):
        output.print_styled((_LEGEND, "dim"))


def _list_rows(
    leaves: Iterable[overview_types.Leaf], *, each_node: bool, dead_only: bool
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield (cells, style) of a row for each spine, leaf and node, in tree order."""
    before: tuple[str, ...] = ()
    for leaf in leaves:
        nodes = [node for node in leaf.nodes if not dead_only or _is_faulty(node)]
        if dead_only and not nodes:
            continue
        above = tuple(reversed(leaf.above))
        shared = 0
        while shared < min(len(above), len(before)) and above[shared] == before[shared]:
            shared += 1
        for depth in range(shared, len(above)):
            yield ((f"{'  ' * depth}{above[depth]}", "", "", "", "", ""), "bold")
        before = above
        depth = len(above)
        name = leaf.name or "(no leaf)"
        yield (
            (f"{'  ' * depth}{name}", text.format_count(len(leaf.nodes), "node"), *_count_rails(leaf.nodes), ""),
            "bold",
        )
        for node in nodes if each_node else ():
            yield _format_node(node, depth + 1)


def _format_node(node: overview_types.Node, depth: int) -> tuple[tuple[str, ...], str]:
    pods = ", ".join(pod.pod for pod in node.pods)
    note = "; ".join(filter(None, (node.note, *node.rail_notes, pods)))
    style = "red" if "d" in node.rails else "yellow" if node.note or "w" in node.rails else ""
    return ((f"{'  ' * depth}{node.name}", node.rails, *_count_rails([node]), note or "-"), style)


def _count_rails(nodes: Iterable[overview_types.Node]) -> tuple[str, str, str]:
    """Return the numbers of free, busy and dead rails. A degraded rail is busy if a pod uses it, else free."""
    letters: Counter[str] = Counter()
    for node in nodes:
        busy = {rail for pod in node.pods for rail in pod.rails}
        letters.update(
            ("b" if index in busy else "f") if letter == "w" else letter for index, letter in enumerate(node.rails)
        )
    return str(letters["f"]), str(letters["b"]), str(letters["d"])


# --- changes ----------------------------------------------------------------------------------------------


async def _watch(
    sources: cluster_overview.Sources, view: cluster_overview.ClusterView, arguments: argparse.Namespace
) -> None:
    """Print the present nodes, then each that appears or changes, until Ctrl-C; as documents, the leaves with these."""
    printed: dict[tuple[str, str], overview_types.Node] = {}

    def list_changes(view: cluster_overview.ClusterView) -> list[tuple[overview_types.Leaf, list[str]]]:
        leaves = _select(view, arguments).leaves.values()
        changed = [
            (msgspec.structs.replace(leaf, nodes=nodes), [f"node/{node.name}" for node in nodes])
            for leaf in leaves
            if (nodes := tuple(_list_changes(leaf, printed, dead_only=arguments.dead)))
        ]
        printed.clear()
        printed.update({(leaf.fabric, node.name): node for leaf in leaves for node in leaf.nodes})
        return changed

    await cluster_overview.follow(
        sources,
        view,
        arguments,
        list_changes,
        lambda _, leaves, headers: _print_changes(leaves, arguments, headers=headers),
    )


def _list_changes(
    leaf: overview_types.Leaf, printed: Mapping[tuple[str, str], overview_types.Node], *, dead_only: bool
) -> Iterator[overview_types.Node]:
    """Yield the nodes that differ from those printed. With `dead_only`, those that are or were out of order."""
    for node in leaf.nodes:
        before = printed.get((leaf.fabric, node.name))
        is_shown = not dead_only or any(_is_faulty(item) for item in (before, node) if item is not None)
        if is_shown and node != before:
            yield node


def _is_faulty(node: overview_types.Node) -> bool:
    return _has_dead_rail(node) or bool(node.note)


def _print_changes(leaves: Sequence[overview_types.Leaf], arguments: argparse.Namespace, *, headers: bool) -> None:
    rows, styles = zip(*(_format_change(leaf, node) for leaf in leaves for node in leaf.nodes), strict=True)
    formats.print_table(
        (formats.Column("FABRIC"), formats.Column("LEAF"), *_COLUMNS),
        rows,
        styles=styles,
        wide=arguments.output == options.WIDE,
        headers=headers,
    )


def _format_change(leaf: overview_types.Leaf, node: overview_types.Node) -> tuple[tuple[str, ...], str]:
    cells, style = _format_node(node, 0)
    return (leaf.fabric, leaf.name or "-", *cells), style
