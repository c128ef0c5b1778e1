"""Prints the table of `railwright gangs`. `railwright.fabric.overview` computes the content."""

import argparse
import sys

from railwright.cli import cluster_overview, formats, output, tables
from railwright.fabric.overview import model

_STYLES = {"placed": "", "starting": "yellow", "waiting": "yellow", "unplaceable": "bold red"}


def run(arguments: argparse.Namespace) -> int:
    """Return 0 if all shown gangs are or can be placed, 1 if one cannot, 2 without a cluster, file or such a fabric."""
    if arguments.namespace and arguments.all_namespaces:
        raise output.UnreadableError(f"-n {arguments.namespace} and -A exclude each other; give one of them")
    sources = cluster_overview.Sources(arguments.kubeconfig, arguments.context, arguments.snapshot, arguments.policy)
    overview = cluster_overview.read(sources)
    for problem in overview.site.problems:
        print(f"railwright: {output.visible(problem)}", file=sys.stderr)
    _require_fabric(arguments.fabric, overview)
    gangs = [gang for gang in overview.gangs if _matches(gang, arguments)]
    if arguments.output in formats.DOCUMENTS:
        formats.print_document(gangs, arguments.output)
    else:
        _print_table(gangs, overview, arguments, wide=arguments.output == "wide")
    return output.FINDINGS if any(gang.state == "unplaceable" for gang in gangs) else output.OK


def _require_fabric(name: str, overview: model.Overview) -> None:
    """Raise UnreadableError for an undefined fabric; an empty table would look like success."""
    fabrics = dict.fromkeys([*overview.site.fabrics, *(gang.fabric for gang in overview.gangs if gang.fabric)])
    if name and name not in fabrics:
        defined = ", ".join(fabrics) or "none with rails"
        raise output.UnreadableError(f"--fabric {name}: not defined in the policy (defined: {defined})")


def _describe_filters(arguments: argparse.Namespace, overview: model.Overview) -> str:
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


def _matches(gang: model.Gang, arguments: argparse.Namespace) -> bool:
    return (
        arguments.namespace in ("", gang.namespace)
        and arguments.fabric in ("", gang.fabric)
        and not (arguments.waiting and gang.placed >= gang.size)
    )


def _print_table(
    gangs: list[model.Gang], overview: model.Overview, arguments: argparse.Namespace, *, wide: bool
) -> None:
    if not gangs:
        print(output.visible(_describe_filters(arguments, overview)))
        return
    columns = (
        tables.Column("NAMESPACE", drop=5),
        tables.Column("GANG"),
        tables.Column("STATE"),
        tables.Column("PLACED", right=True),
        tables.Column("LEAVES", drop=2, right=True),
        tables.Column("BANDWIDTH", drop=1, right=True),
        tables.Column("FABRIC", drop=4),
        tables.Column("WHY", drop=3, cut=True),
    )
    if len({gang.namespace for gang in overview.gangs}) > 1:  # otherwise names are unique
        columns = (columns[0]._replace(drop=0), *columns[1:])
    tables.show(
        columns,
        [_format_row(gang, wide=wide) for gang in gangs],
        styles=[_STYLES[gang.state] for gang in gangs],
        wide=wide,
    )


def _format_row(gang: model.Gang, *, wide: bool) -> tuple[str, ...]:
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
