"""Runs `railwright gangs` and `railwright fabric`: prints tables and documents, or rows as they change.

Gangs are listed, or one is described. Fabrics are trees of spines, leaves and nodes.
"""

import argparse
import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from railwright.cli import cluster_overview, formats, output
from railwright.fabric import label_selectors, text
from railwright.fabric.overview import fabric_view, overview_types
from railwright.fabric.placement.state import pod_usage

_STYLES = {
    overview_types.STARTING: "yellow",
    overview_types.WAITING: "yellow",
    overview_types.SPREAD: "yellow",
    overview_types.NEVER: "bold red",
}
_MAX_NAMES = 10  # of gangs in a message


def show_gangs(arguments: argparse.Namespace) -> int:
    """Return 1 if a shown gang never fits, otherwise 0; 2 without a cluster, file, gang or fabric."""
    if arguments.namespace and arguments.all_namespaces:
        raise output.UnreadableError(f"-n {arguments.namespace} and -A exclude each other; give one of them")
    sources, cluster = cluster_overview.open_view(arguments)
    _require_fabric(arguments.fabric, cluster.overview)
    if arguments.watch:
        asyncio.run(_watch(sources, cluster, arguments))
    gangs = _select(cluster, arguments)
    if arguments.gang:
        gang = _find_gang(gangs, cluster.overview, arguments)
        _print_gang(gang, arguments)
        return output.FINDINGS if gang.state == overview_types.NEVER else output.OK
    if formats.is_document(arguments.output):
        formats.print_document(gangs, arguments.output, names=map(_format_name, gangs))
    elif gangs:
        _print_table(gangs, cluster.overview, arguments, headers=not arguments.no_headers)
    else:
        print(output.escape_controls(_describe_filters(arguments, cluster.overview)))
    return output.FINDINGS if any(gang.state == overview_types.NEVER for gang in gangs) else output.OK


def _select(cluster: cluster_overview.ClusterView, arguments: argparse.Namespace) -> list[overview_types.Gang]:
    """Return the gangs that the options select."""
    return [
        gang
        for gang in cluster.overview.gangs
        if arguments.namespace in ("", gang.namespace)
        and arguments.fabric in ("", gang.fabric)
        and not (arguments.waiting and gang.placed >= gang.size)
        and _has_labels(cluster, gang, arguments)
    ]


def _has_labels(
    cluster: cluster_overview.ClusterView, gang: overview_types.Gang, arguments: argparse.Namespace
) -> bool:
    """True without a selector, or if a pod of the gang matches it."""
    pods = cluster.list_labels(gang.key)
    return not arguments.selector or any(label_selectors.matches({}, arguments.selector, labels) for labels in pods)


def _require_fabric(name: str, overview: overview_types.Overview) -> None:
    """Raise UnreadableError for an undefined fabric; an empty table would look like success."""
    fabrics = dict.fromkeys(
        [*(fabric.name for fabric in overview.fabrics), *(gang.fabric for gang in overview.gangs if gang.fabric)]
    )
    if name and name not in fabrics:
        defined = ", ".join(fabrics) or "none with rails"
        raise output.UnreadableError(f"--fabric {name}: not defined in the policy (defined: {defined})")


def _describe_filters(arguments: argparse.Namespace, overview: overview_types.Overview) -> str:
    """Return the message for an empty table: the filters, and the namespaces that have gangs."""
    filters = "".join(
        [
            " that wait" if arguments.waiting else "",
            f" on fabric {arguments.fabric}" if arguments.fabric else "",
            f" in namespace {arguments.namespace}" if arguments.namespace else "",
            " with these labels" if arguments.selector else "",
        ]
    )
    namespaces = sorted({gang.namespace for gang in overview.gangs})
    hint = f"; there are some in {', '.join(namespaces)}" if arguments.namespace and namespaces else ""
    return f"no gangs of opted-in pods{filters}{hint}"


# --- the table --------------------------------------------------------------------------------------------


def _print_table(
    gangs: Sequence[overview_types.Gang],
    overview: overview_types.Overview,
    arguments: argparse.Namespace,
    *,
    headers: bool,
) -> None:
    columns = (
        formats.Column("NAMESPACE", drop=6),
        formats.Column("GANG"),
        formats.Column("STATE"),
        formats.Column("PLACED", right=True),
        formats.Column("LEAVES", drop=2, right=True),
        formats.Column("BANDWIDTH", drop=1, right=True),
        formats.Column("AGE", drop=5),
        formats.Column("FABRIC", drop=4),
        formats.Column("WHY", drop=3, cut=True),
    )
    if len({gang.namespace for gang in overview.gangs}) > 1:  # otherwise names are unique
        columns = (columns[0]._replace(drop=0), *columns[1:])
    is_wide = arguments.output == output.WIDE
    formats.print_table(
        columns,
        [_format_row(gang, wide=is_wide) for gang in gangs],
        styles=[_get_style(gang) for gang in gangs],
        wide=is_wide,
        headers=headers,
    )


def _format_row(gang: overview_types.Gang, *, wide: bool) -> tuple[str, ...]:
    return (
        gang.namespace,
        gang.name,
        gang.state,
        f"{gang.placed}/{gang.size}",
        _format_ratio(str(gang.leaves or "-"), str(gang.min_leaves or "-")),
        _format_ratio(_format_share(gang.bandwidth), _format_share(gang.best)),
        formats.format_age(gang.created_at),
        gang.fabric or "-",
        "; ".join(why.text for why in (gang.why if wide else gang.why[:1])) or "-",
    )


def _get_style(gang: overview_types.Gang) -> str:
    return _STYLES.get(gang.state, "")


def _format_share(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _format_ratio(actual: str, best: str) -> str:
    """Return the actual value and the best possible one, as `1/2`."""
    return actual if best == "-" else f"{actual}/{best}"


def _format_name(gang: overview_types.Gang) -> str:
    return f"gang/{gang.name}"


# --- one gang ---------------------------------------------------------------------------------------------


def _find_gang(
    gangs: Sequence[overview_types.Gang], overview: overview_types.Overview, arguments: argparse.Namespace
) -> overview_types.Gang:
    """Return the gang that the user named as NAME, gang/NAME or NAMESPACE/NAME. Raise UnreadableError."""
    name = arguments.gang.removeprefix("gang/")
    matches = [gang for gang in gangs if name in (gang.name, gang.key)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        namespaces = ", ".join(gang.namespace for gang in matches)
        raise output.UnreadableError(f"gang {name}: is in several namespaces ({namespaces}); choose one with -n")
    elsewhere = [gang.namespace for gang in overview.gangs if name in (gang.name, gang.key)]
    if elsewhere:
        hint = f"there is one in {', '.join(elsewhere)}, which the other options leave out"
    else:
        known = text.join_first((gang.name for gang in gangs), _MAX_NAMES)
        hint = f"there are {known}" if known else "there are no gangs"
    where = f" in namespace {arguments.namespace}" if arguments.namespace else ""
    raise output.UnreadableError(f"gang {name}: no opted-in pod belongs to such a gang{where}; {hint}")


def _print_gang(gang: overview_types.Gang, arguments: argparse.Namespace) -> None:
    """Print what is known of one gang, as kubectl describe does, or its document."""
    if formats.is_document(arguments.output):
        formats.print_document(gang, arguments.output, names=[_format_name(gang)])
        return
    for title, value in _list_facts(gang):
        output.print_styled((f"{title + ':':<14}", "bold"), (value, _get_style(gang) if title == "State" else ""))
    if gang.why:
        output.print_styled(("Why:", "bold"))
        for why in gang.why:
            output.print_styled((f"  {why.text}", _get_style(gang)))
    print()
    columns: tuple[formats.Column, ...] = (
        formats.Column("RANK", right=True),
        formats.Column("POD"),
        formats.Column("NODE"),
        formats.Column("LEAF", drop=1),
    )
    rows: list[tuple[str, ...]] = [
        (str(rank.rank), rank.pod, _format_node(rank), rank.leaf or "-") for rank in gang.ranks
    ]
    if any(rank.rails for rank in gang.ranks):  # they come as claims, which may differ from what the record says
        columns = (*columns, formats.Column("RAILS", drop=2))
        rows = [
            (*row, pod_usage.format_held_rails(rank.rails) or "-") for row, rank in zip(rows, gang.ranks, strict=True)
        ]
    formats.print_table(columns, rows, wide=arguments.output == output.WIDE, headers=not arguments.no_headers)
    if hidden := gang.placed - sum(1 for rank in gang.ranks if rank.node):
        output.print_styled((f"and {hidden} more placed pods", "dim"))


def _list_facts(gang: overview_types.Gang) -> Iterator[tuple[str, str]]:
    """Yield the lines before the pods as (title, text)."""
    yield "Name", gang.name
    yield "Namespace", gang.namespace
    yield "Fabric", gang.fabric or "-"
    yield "State", gang.state
    yield "Placed", text.format_count(gang.size, "pod", part=gang.placed)
    if gang.leaves:
        least = f", at least {gang.min_leaves}" if gang.min_leaves else ""
        yield "Leaves", f"{gang.leaves}{least}"
    if gang.bandwidth is not None or gang.best is not None:
        best = f", best possible {_format_share(gang.best)}" if gang.best is not None else ""
        yield "Bandwidth", f"{_format_share(gang.bandwidth)}{best} (modelled)"
    yield "Age", formats.format_age(gang.created_at)
    if gang.placed_at:
        yield "Placed for", formats.format_age(gang.placed_at)


def _format_node(rank: overview_types.Rank) -> str:
    return f"{rank.node or '-'}{' (assumed)' if rank.assumed else ''}"


# --- changes ----------------------------------------------------------------------------------------------


async def _watch(
    sources: cluster_overview.Sources, cluster: cluster_overview.ClusterView, arguments: argparse.Namespace
) -> None:
    """Print the present gangs, then each that appears or changes, until Ctrl-C."""
    printed: dict[str, overview_types.Gang] = {}
    name = arguments.gang.removeprefix("gang/")

    def list_changes(view: cluster_overview.ClusterView) -> list[tuple[overview_types.Gang, list[str]]]:
        gangs = {gang.key: gang for gang in _select(view, arguments) if name in ("", gang.name, gang.key)}
        changed = [(gang, [_format_name(gang)]) for key, gang in gangs.items() if printed.get(key) != gang]
        printed.clear()
        printed.update(gangs)
        return changed

    await cluster_overview.follow(
        sources,
        cluster,
        arguments,
        list_changes,
        lambda view, gangs, headers: _print_table(gangs, view.overview, arguments, headers=headers),
    )


# --- fabrics ------------------------------------------------------------------------------------------------


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
    selection = _select_fabrics(view, arguments)
    if arguments.name and not selection.fabrics:
        defined = ", ".join(fabric.name for fabric in view.overview.fabrics) or "none with rails"
        raise output.UnreadableError(f"fabric {arguments.name}: not defined in the policy (defined: {defined})")
    if arguments.selector and not selection.leaves:
        raise output.UnreadableError("no node has these labels; kubectl get nodes --show-labels has those of each node")
    if arguments.watch:
        asyncio.run(_watch_nodes(sources, view, arguments))
    if formats.is_document(arguments.output):
        names = [f"fabric/{fabric.name}" for fabric in selection.fabrics]
        document = {"fabrics": selection.fabrics, "leaves": selection.leaves}
        formats.print_document(document, arguments.output, names=names)
    else:
        for fabric in selection.fabrics:
            _print_fabric(fabric, [selection.leaves[key] for key in fabric.leaves], arguments)
    has_findings = any(_has_dead_rail(node) for leaf in selection.leaves.values() for node in leaf.nodes)
    return output.FINDINGS if has_findings else output.OK


def _select_fabrics(view: cluster_overview.ClusterView, arguments: argparse.Namespace) -> _Selection:
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
    free, busy, dead = fabric_view.count_rails(nodes)
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
        _COLUMNS, rows, styles=styles, wide=arguments.output == output.WIDE, headers=not arguments.no_headers
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
            (
                f"{'  ' * depth}{name}",
                text.format_count(len(leaf.nodes), "node"),
                *map(str, fabric_view.count_rails(leaf.nodes)),
                "",
            ),
            "bold",
        )
        for node in nodes if each_node else ():
            yield _format_node_row(node, depth + 1)


def _format_node_row(node: overview_types.Node, depth: int) -> tuple[tuple[str, ...], str]:
    pods = ", ".join(pod.pod for pod in node.pods)
    note = "; ".join(filter(None, (node.note, *node.rail_notes, pods)))
    style = "red" if "d" in node.rails else "yellow" if node.note or "w" in node.rails else ""
    return ((f"{'  ' * depth}{node.name}", node.rails, *map(str, fabric_view.count_rails([node])), note or "-"), style)


# --- changes ----------------------------------------------------------------------------------------------


async def _watch_nodes(
    sources: cluster_overview.Sources, view: cluster_overview.ClusterView, arguments: argparse.Namespace
) -> None:
    """Print the present nodes, then each that appears or changes, until Ctrl-C; as documents, the leaves with these."""
    printed: dict[tuple[str, str], overview_types.Node] = {}

    def list_changes(view: cluster_overview.ClusterView) -> list[tuple[overview_types.Leaf, list[str]]]:
        leaves = _select_fabrics(view, arguments).leaves.values()
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
        wide=arguments.output == output.WIDE,
        headers=headers,
    )


def _format_change(leaf: overview_types.Leaf, node: overview_types.Node) -> tuple[tuple[str, ...], str]:
    cells, style = _format_node_row(node, 0)
    return (leaf.fabric, leaf.name or "-", *cells), style
