"""Runs `railwright gangs` and `railwright fabric`: prints tables and documents.

A gang is a row, and a fabric is a tree of spines, leaves and nodes. `railwright.fabric.overview` computes both from
objects that are read once: from the API server, with the user's permissions, or from a snapshot file.
"""

import argparse
import asyncio
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from extender import state as states
from railwright.cli import cluster_access, formats, object_files, options, output, policy_sources
from railwright.cluster import client as clients
from railwright.cluster import errors, installed_names, reflector, resources, watch_wire
from railwright.fabric import text
from railwright.fabric.overview import fabric_view, overview_builder, overview_types
from railwright.fabric.policy import model as policy_model

_STYLES = {
    overview_types.STARTING: "yellow",
    overview_types.WAITING: "yellow",
    overview_types.SPREAD: "yellow",
    overview_types.NEVER: "bold red",
}


def show_gangs(arguments: argparse.Namespace) -> int:
    """Print the gangs. Return 1 if one of them never fits, otherwise 0. Raise UnreadableError or ClusterError."""
    if arguments.namespace and arguments.all_namespaces:
        raise output.UnreadableError(f"-n {arguments.namespace} and -A exclude each other; give one of them")
    options.check_sources(arguments)
    overview = read_overview(arguments)
    gangs = [
        gang
        for gang in overview.gangs
        if arguments.namespace in ("", gang.namespace) and not (arguments.waiting and gang.placed >= gang.size)
    ]
    if formats.is_document(arguments.output):
        formats.print_document(gangs, arguments.output)
    elif gangs:
        rows = list(map(_format_gang, gangs))
        styles = [_STYLES.get(gang.state, "") for gang in gangs]
        formats.print_table(_GANG_COLUMNS, rows, styles=styles, wide=arguments.output == output.WIDE)
    else:
        waiting = " that wait" if arguments.waiting else ""
        where = f" in namespace {arguments.namespace}" if arguments.namespace else ""
        namespaces = sorted({gang.namespace for gang in overview.gangs})
        hint = f"; there are gangs in {', '.join(namespaces)}" if arguments.namespace and namespaces else ""
        print(output.escape_controls(f"no gangs of opted-in pods{waiting}{where}{hint}"))
    return output.FINDINGS if any(gang.state == overview_types.NEVER for gang in gangs) else output.OK


# --- the table --------------------------------------------------------------------------------------------


_GANG_COLUMNS = (
    formats.Column("NAMESPACE"),
    formats.Column("GANG"),
    formats.Column("STATE"),
    formats.Column("PLACED", right=True),
    formats.Column("LEAVES", right=True),
    formats.Column("BANDWIDTH", right=True),
    formats.Column("AGE", wide=True),
    formats.Column("FABRIC", wide=True),
    formats.Column("WHY", cut=True),
)


def _format_gang(gang: overview_types.Gang) -> tuple[str, ...]:
    return (
        gang.namespace,
        gang.name,
        gang.state,
        f"{gang.placed}/{gang.size}",
        _format_ratio(str(gang.leaves or "-"), str(gang.min_leaves or "-")),
        _format_ratio(_format_share(gang.bandwidth), _format_share(gang.best)),
        formats.format_age(gang.created_at),
        gang.fabric or "-",
        "; ".join(why.text for why in gang.why) or "-",
    )


def _format_share(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _format_ratio(actual: str, best: str) -> str:
    """Return a value and the best possible value as ACTUAL/BEST; only the former if the latter is unknown."""
    return actual if best == "-" else f"{actual}/{best}"


# --- fabrics ------------------------------------------------------------------------------------------------


_LEGEND = (
    "one letter per rail: f free, b busy (in use; a shared device may have free shares), w degraded (fewer devices "
    "than before), d dead or absent, - not counted"
)
_COLUMNS = (
    formats.Column("DOMAIN"),
    formats.Column("RAILS"),
    formats.Column("FREE", right=True),
    formats.Column("BUSY", right=True),
    formats.Column("DEAD", right=True),
    formats.Column("PODS", cut=True),
)
_MANY_NODES = 64  # fabrics with more nodes show them only with -o wide


def show_fabrics(arguments: argparse.Namespace) -> int:
    """Print the fabrics. Return 1 if a rail is dead or degraded, otherwise 0. Raise UnreadableError or ClusterError."""
    options.check_sources(arguments)
    overview = read_overview(arguments)
    if formats.is_document(arguments.output):
        formats.print_document({"fabrics": overview.fabrics, "leaves": overview.leaves}, arguments.output)
    else:
        if not overview.fabrics:
            print("the policy defines no fabric with rails")
        for fabric in overview.fabrics:
            _print_fabric(fabric, [overview.leaves[key] for key in fabric.leaves], arguments)
        if not (arguments.policy or arguments.snapshot):  # there may be several installations, or one under other names
            output.print_styled((f"policy: {policy_sources.CONFIG_MAP}", "dim"))
    is_healthy = not any(_has_unhealthy_rail(node) for leaf in overview.leaves.values() for node in leaf.nodes)
    return output.OK if is_healthy else output.FINDINGS


def _has_unhealthy_rail(node: overview_types.Node) -> bool:
    return not {overview_types.DEAD, overview_types.DEGRADED}.isdisjoint(node.rails)


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
    is_wide = arguments.output == output.WIDE
    each_node = arguments.dead or is_wide or fabric.nodes <= _MANY_NODES
    rows = list(_list_rows(leaves, each_node=each_node, dead_only=arguments.dead))
    cells, styles = [row for row, _ in rows], [style for _, style in rows]
    formats.print_table(_COLUMNS, cells, styles=styles, wide=is_wide)
    if each_node and any(node.rails for leaf in leaves for node in leaf.nodes):
        output.print_styled((_LEGEND, "dim"))


def _list_rows(
    leaves: Iterable[overview_types.Leaf], *, each_node: bool, dead_only: bool
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield (cells, style) of a row for each spine, leaf and node, in tree order."""
    before: tuple[str, ...] = ()
    for leaf in leaves:
        nodes = [node for node in leaf.nodes if not dead_only or _has_unhealthy_rail(node) or node.note]
        if dead_only and not nodes:
            continue
        above = tuple(reversed(leaf.above))
        for depth, domain in enumerate(above):
            if above[: depth + 1] != before[: depth + 1]:
                yield ((f"{'  ' * depth}{domain}", "", "", "", "", ""), "bold")
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
            pods = ", ".join(pod.pod for pod in node.pods)
            note = "; ".join(filter(None, (node.note, *node.rail_notes, pods))) or "-"
            style = "red" if "d" in node.rails else "yellow" if node.note or "w" in node.rails else ""
            counts = map(str, fabric_view.count_rails([node]))
            yield (f"{'  ' * (depth + 1)}{node.name}", node.rails, *counts, note), style


# --- what is read -------------------------------------------------------------------------------------------

_REQUIRED = frozenset({resources.NODES, resources.PLACED_PODS})  # without the other kinds some columns are missing
_ROLE = f"ClusterRole {installed_names.CLUSTER_ROLE}"


def read_overview(arguments: argparse.Namespace) -> overview_types.Overview:
    """Return the overview of the cluster, or of the files of --snapshot and --policy. Print notes on unread kinds.

    Raises UnreadableError or ClusterError.
    """
    state = states.State()
    watch_specs = states.list_watches(state)
    problems: list[str] = []
    if arguments.snapshot:
        policy = object_files.read_policy(arguments.policy)
        fill_caches(watch_specs, object_files.read_snapshot(arguments.snapshot, needs="Node"))
    else:
        policy, problems = asyncio.run(_read_cluster(arguments, watch_specs))
    builder = assess_gangs(state, policy)
    for problem in problems:
        output.print_note(problem)
    return builder.build_overview()


def fill_caches(watch_specs: Sequence[reflector.WatchSpec], objects: Mapping[str, Sequence[Any]]) -> None:
    """Fill the cache of each watched kind with the objects of a snapshot."""
    for kind, sink in {spec.kind.snapshot_kind: spec.sink for spec in watch_specs}.items():
        sink.replace(objects[kind])


def assess_gangs(state: states.State, policy: policy_model.Policy) -> overview_builder.OverviewBuilder:
    """Return the builder of overviews of a cluster's state, after it has assessed every gang."""
    state.apply_policy(policy)
    builder = overview_builder.OverviewBuilder(state.cluster, lambda: policy, state.pools)
    with output.show_progress("assessing gangs"):
        builder.refresh_fully()
    return builder


async def _read_cluster(
    arguments: argparse.Namespace, watch_specs: Sequence[reflector.WatchSpec]
) -> tuple[policy_model.Policy, list[str]]:
    async with cluster_access.connect(arguments, cluster_access.SNAPSHOT) as client:
        file = arguments.policy
        policy = object_files.read_policy(file) if file else (await policy_sources.fetch_policy(client, _ROLE))[0]
        with output.show_progress("reading the cluster", total=len(watch_specs)) as advance:
            read = functools.partial(_read_kind, client)
            return policy, list(filter(None, await cluster_access.call_for_each(read, watch_specs, advance=advance)))


async def _read_kind(client: clients.Client, spec: reflector.WatchSpec) -> str:
    """Fill the cache of a kind from the API server. Return a warning if the kind may be missing and is forbidden."""
    try:
        spec.sink.replace(await watch_wire.list_objects(client, spec.kind.path, spec.kind.view))
    except errors.ApiError as error:
        if error.status == 404 and spec.kind.optional:
            spec.sink.replace([])
            return ""
        if error.status != 403:
            raise
        plural = spec.kind.path.rpartition("/")[2]
        if spec.kind in _REQUIRED:
            right = f"the {_ROLE} has this right"
            raise output.UnreadableError(f"{error.sentence}; {right}. Or {cluster_access.SNAPSHOT}") from None
        spec.sink.replace([])
        return f"you may not list {plural}: data from them is not shown"
    return ""
