"""Runs `railwright gangs` and `railwright fabric`: prints gangs, or fabrics as trees, as tables or documents."""

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Iterator

from railwright.cli import cluster_overview, formats, options, output
from railwright.fabric.overview import overview_types

_STYLES = {"placed": "", "starting": "yellow", "waiting": "yellow", "unplaceable": "bold red"}


def show_gangs(arguments: argparse.Namespace) -> int:
    """Return 0 if all shown gangs are or can be placed, 1 if one cannot, 2 without a cluster, file or such a fabric."""
    if arguments.namespace and arguments.all_namespaces:
        raise output.UnreadableError(f"-n {arguments.namespace} and -A exclude each other; give one of them")
    overview = cluster_overview.read(cluster_overview.get_sources(arguments))
    for problem in overview.site.problems:
        print(f"railwright: {output.visible(problem)}", file=sys.stderr)
    _require_fabric(arguments.fabric, overview)
    gangs = [gang for gang in overview.gangs if _matches(gang, arguments)]
    if formats.is_document(arguments.output):
        formats.print_document(gangs, arguments.output, names=[f"gang/{gang.name}" for gang in gangs])
    else:
        _print_gangs(gangs, overview, arguments, wide=arguments.output == options.WIDE)
    return output.FINDINGS if any(gang.state == "unplaceable" for gang in gangs) else output.OK


def _require_fabric(name: str, overview: overview_types.Overview) -> None:
    """Raise UnreadableError for an undefined fabric; an empty table would look like success."""
    fabrics = dict.fromkeys([*overview.site.fabrics, *(gang.fabric for gang in overview.gangs if gang.fabric)])
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
        ]
    )
    namespaces = sorted({gang.namespace for gang in overview.gangs})
    hint = f"; there are some in {', '.join(namespaces)}" if arguments.namespace and namespaces else ""
    return f"no gangs of opted-in pods{filters}{hint}"


def _matches(gang: overview_types.Gang, arguments: argparse.Namespace) -> bool:
    return (
        arguments.namespace in ("", gang.namespace)
        and arguments.fabric in ("", gang.fabric)
        and not (arguments.waiting and gang.placed >= gang.size)
    )


def _print_gangs(
    gangs: list[overview_types.Gang], overview: overview_types.Overview, arguments: argparse.Namespace, *, wide: bool
) -> None:
    if not gangs:
        print(output.visible(_describe_filters(arguments, overview)))
        return
    columns = (
        formats.Column("NAMESPACE", drop=5),
        formats.Column("GANG"),
        formats.Column("STATE"),
        formats.Column("PLACED", right=True),
        formats.Column("LEAVES", drop=2, right=True),
        formats.Column("BANDWIDTH", drop=1, right=True),
        formats.Column("FABRIC", drop=4),
        formats.Column("WHY", drop=3, cut=True),
    )
    if len({gang.namespace for gang in overview.gangs}) > 1:  # otherwise names are unique
        columns = (columns[0]._replace(drop=0), *columns[1:])
    formats.print_table(
        columns,
        [_format_gang(gang, wide=wide) for gang in gangs],
        styles=[_STYLES[gang.state] for gang in gangs],
        wide=wide,
        headers=not arguments.no_headers,
    )


def _format_gang(gang: overview_types.Gang, *, wide: bool) -> tuple[str, ...]:
    return (
        gang.namespace,
        gang.name,
        gang.state,
        f"{gang.placed}/{gang.size}",
        _format_ratio(str(gang.leaves or "-"), str(gang.min_leaves or "-")),
        _format_ratio(_format_share(gang.bandwidth), _format_share(gang.best)),
        gang.fabric or "-",
        "; ".join(why.message for why in (gang.why if wide else gang.why[:1])) or "-",
    )


def _format_share(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _format_ratio(actual: str, best: str) -> str:
    """Return the actual value and the best possible one, as `1/2`."""
    return actual if best == "-" else f"{actual}/{best}"


_LEGEND = "one letter per rail: f free, b busy, w degraded (fewer devices than before), d dead, - not counted"
_MANY_NODES = 64  # fabrics with more nodes show them only with --nodes


def show_fabrics(arguments: argparse.Namespace) -> int:
    """Return 0 if no rail is dead or degraded, 1 if one is, 2 without a cluster or file or such a fabric."""
    if arguments.nodes and arguments.leaves:
        raise output.UnreadableError("--nodes and --leaves exclude each other; give one of them")
    overview = cluster_overview.read(cluster_overview.get_sources(arguments))
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
