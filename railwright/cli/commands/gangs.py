"""`railwright gangs`: each gang, how much of it has a place, how good the place is, and why it waits.

Owns the arguments, the columns and the exit codes. What a gang is and how it is judged is
`railwright.fabric.overview`'s.
"""

import argparse
import sys
import typing

from railwright.cli import output
from railwright.cli.viewing import options

if typing.TYPE_CHECKING:  # slow to import; the commands beside this one do not wait for them
    from railwright.fabric.overview import model

NAME = "gangs"
HELP = "each gang: size, placed, leaves, its bandwidth against the best possible, and why it waits"
_STYLES = {"placed": "", "starting": "yellow", "waiting": "yellow", "unplaceable": "bold red"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of this command."""
    parser.add_argument("-n", "--namespace", metavar="NAME", default="", help="of one namespace (default: of all)")
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="of all namespaces, as without -n")
    parser.add_argument("--fabric", metavar="NAME", default="", help="gangs of one fabric")
    parser.add_argument("--waiting", action="store_true", help="only those that are not placed whole")
    options.add(parser)


def run(arguments: argparse.Namespace) -> int:
    """0 every gang shown can be placed or is, 1 one cannot, 2 no cluster or file to look at, or no such fabric."""
    from railwright.cli.viewing import forms, reading  # noqa: PLC0415 - slow to import, as in all commands

    if arguments.namespace and arguments.all_namespaces:
        raise output.UnreadableError(f"-n {arguments.namespace} contradicts -A: leave out one")
    way = reading.Way(arguments.kubeconfig, arguments.context, arguments.snapshot, arguments.policy)
    seen = reading.overview(way)
    for problem in seen.site.problems:
        print(f"railwright: {output.visible(problem)}", file=sys.stderr)
    _require_fabric(arguments.fabric, seen)
    found = [each for each in seen.gangs if _wanted(each, arguments)]
    if forms.is_document(arguments.output):
        forms.print_document(found, arguments.output)
    else:
        _table(found, seen, arguments, wide=arguments.output == "wide")
    return output.FINDINGS if any(each.state == "unplaceable" for each in found) else output.OK


def _require_fabric(name: str, seen: "model.Overview") -> None:
    """Raise UnreadableError for a fabric that does not exist: no gang found would look as if all were well."""
    known = dict.fromkeys([*seen.site.fabrics, *(each.fabric for each in seen.gangs if each.fabric)])
    if name and name not in known:
        told = ", ".join(known) or "none with rails"
        raise output.UnreadableError(f"--fabric {name}: is none of the policy; there are {told}")


def _nothing(arguments: argparse.Namespace, seen: "model.Overview") -> str:
    """Say what there is none of, and where there is some."""
    where = "".join(
        [
            " that wait" if arguments.waiting else "",
            f" on fabric {arguments.fabric}" if arguments.fabric else "",
            f" in namespace {arguments.namespace}" if arguments.namespace else "",
        ]
    )
    elsewhere = sorted({each.namespace for each in seen.gangs})
    there = f"; there are some in {', '.join(elsewhere)}" if arguments.namespace and elsewhere else ""
    return f"no gangs of opted-in pods{where}{there}"


def _wanted(gang: "model.Gang", arguments: argparse.Namespace) -> bool:
    return (
        arguments.namespace in ("", gang.namespace)
        and arguments.fabric in ("", gang.fabric)
        and not (arguments.waiting and gang.placed >= gang.size)
    )


def _table(gangs: "list[model.Gang]", seen: "model.Overview", arguments: argparse.Namespace, *, wide: bool) -> None:
    from railwright.cli import tables  # noqa: PLC0415 - as above

    if not gangs:
        print(output.visible(_nothing(arguments, seen)))
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
    if len({each.namespace for each in seen.gangs}) > 1:  # else a name alone tells them apart
        columns = (columns[0]._replace(drop=0), *columns[1:])
    tables.show(
        columns, [_row(each, wide=wide) for each in gangs], styles=[_STYLES[each.state] for each in gangs], wide=wide
    )


def _row(gang: "model.Gang", *, wide: bool) -> tuple[str, ...]:
    return (
        gang.namespace,
        gang.name,
        gang.state,
        f"{gang.placed}/{gang.size}",
        _of(str(gang.leaves or "-"), str(gang.leaves_least or "-")),
        _of(_share(gang.bandwidth), _share(gang.best)),
        gang.fabric or "-",
        "; ".join(gang.why if wide else gang.why[:1]) or "-",
    )


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _of(has: str, best: str) -> str:
    """`1/2`: what it has over the best there is."""
    return has if best == "-" else f"{has}/{best}"
