"""Runs `railwright fabric`: prints fabrics as trees of spines, leaves and nodes, or as documents."""

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Iterator

from railwright.cli import cluster_overview, formats, options, output
from railwright.fabric.overview import overview_types

_LEGEND = "one letter per rail: f free, b busy, w degraded (fewer devices than before), d dead, - not counted"
_MANY_NODES = 64  # fabrics with more nodes show them only with --nodes


def show_fabrics(arguments: argparse.Namespace) -> int:
    """Return 0 if no rail is dead or degraded, 1 if one is, 2 without a cluster or file or such a fabric."""
    if arguments.nodes and arguments.leaves:
        raise output.UnreadableError("--nodes and --leaves exclude each other; give one of them")
    overview = cluster_overview.read(cluster_overview.get_sources(arguments)).overview
    for problem in overview.site.problems:
        print(f"railwright: {output.visible(problem)}", file=sys.stderr)
    fabrics = [fabric for fabric in overview.fabrics if arguments.name in ("", fabric.name)]
    if arguments.name and not fabrics:
        defined = ", ".join(fabric.name for fabric in overview.fabrics) or "none with rails"
        raise output.UnreadableError(f"fabric {arguments.name}: not defined in the policy (defined: {defined})")
    leaves = {key: overview.leaves[key] for fabric in fabrics for key in fabric.leaves}
    if formats.is_document(arguments.output):
        names = [f"fabric/{fabric.name}" for fabric in fabrics]
        formats.print_document({"fabrics": fabrics, "leaves": leaves}, arguments.output, names=names)
    else:
        for fabric in fabrics:
            _print_fabric(fabric, [leaves[key] for key in fabric.leaves], arguments)
    has_findings = any(_has_dead_rail(node) for leaf in leaves.values() for node in leaf.nodes)
    return output.FINDINGS if has_findings else output.OK


def _has_dead_rail(node: overview_types.Node) -> bool:
    return not {"d", "w"}.isdisjoint(node.rails)


def _print_fabric(
    fabric: overview_types.Fabric, leaves: list[overview_types.Leaf], arguments: argparse.Namespace
) -> None:
    counts = f"{fabric.rails_free} free, {fabric.rails_busy} busy, {fabric.rails_dead} dead"
    output.print_styled(
        (fabric.name, "bold"), (f" {fabric.transport}, {fabric.nodes} nodes, {len(fabric.rails)} rails: {counts}", "")
    )
    each_node = arguments.dead or arguments.nodes or (fabric.nodes <= _MANY_NODES and not arguments.leaves)
    columns = (
        formats.Column("DOMAIN"),
        formats.Column("RAILS"),
        formats.Column("FREE", right=True),
        formats.Column("BUSY", drop=2, right=True),
        formats.Column("DEAD", drop=1, right=True),
        formats.Column("PODS", drop=3, cut=True),
    )
    rows, styles = [], []
    for row, style in _list_rows(leaves, each_node=each_node, dead_only=arguments.dead):
        rows.append(row)
        styles.append(style)
    formats.print_table(
        columns, rows, styles=styles, wide=arguments.output == options.WIDE, headers=not arguments.no_headers
    )
    if each_node and any(node.rails for leaf in leaves for node in leaf.nodes):
        output.print_styled((_LEGEND, "dim"))


def _list_rows(
    leaves: Iterable[overview_types.Leaf], *, each_node: bool, dead_only: bool
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield (cells, style) of a row for each spine, leaf and node, in tree order."""
    before: tuple[str, ...] = ()
    for leaf in leaves:
        nodes = [node for node in leaf.nodes if not dead_only or _has_dead_rail(node) or node.note]
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
        yield ((f"{'  ' * depth}{name}", f"{len(leaf.nodes)} nodes", *_count_rails(leaf.nodes), ""), "bold")
        for node in nodes if each_node else ():
            yield _format_node(node, depth + 1)


def _format_node(node: overview_types.Node, depth: int) -> tuple[tuple[str, ...], str]:
    pods = ", ".join(pod.pod for pod in node.pods)
    note = "; ".join(filter(None, (node.note, pods)))
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
