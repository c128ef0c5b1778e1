"""`railwright fabric`: the spines, leaves and nodes of each fabric, with their free, busy and dead rails.

Owns the arguments and the rows. What a fabric is made of is `railwright.fabric.overview`'s.
"""

import argparse
import sys
import typing
from collections import Counter
from collections.abc import Iterable, Iterator

from railwright.cli import output
from railwright.cli.viewing import options

if typing.TYPE_CHECKING:  # slow to import; the commands beside this one do not wait for them
    from railwright.fabric.overview import model

NAME = "fabric"
HELP = "spines, leaves and nodes of each fabric, with their free, busy and dead rails"
_LEGEND = "f free, b busy, w fewer devices than there were, d dead, - uncounted: one letter a rail"
_MANY = 64  # nodes up to which each is shown unasked


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of this command."""
    parser.add_argument("name", metavar="FABRIC", nargs="?", default="", help="one fabric of the policy (default: all)")
    parser.add_argument("--nodes", action="store_true", help=f"a row for each node, also of more than {_MANY}")
    parser.add_argument("--leaves", action="store_true", help="no rows for nodes")
    parser.add_argument("--dead", action="store_true", help="only nodes with a dead or degraded rail, or not ready")
    options.add(parser)


def run(arguments: argparse.Namespace) -> int:
    """0 no rail is dead or degraded, 1 one is, 2 no cluster or file to look at, or no such fabric."""
    from railwright.cli.viewing import forms, reading  # noqa: PLC0415 - slow to import, as in all commands

    if arguments.nodes and arguments.leaves:
        raise output.UnreadableError("--nodes contradicts --leaves: leave out one")
    way = reading.Way(arguments.kubeconfig, arguments.context, arguments.snapshot, arguments.policy)
    seen = reading.overview(way)
    for problem in seen.site.problems:
        print(f"railwright: {output.visible(problem)}", file=sys.stderr)
    fabrics = [each for each in seen.fabrics if arguments.name in ("", each.name)]
    if arguments.name and not fabrics:
        known = ", ".join(each.name for each in seen.fabrics) or "none with rails"
        raise output.UnreadableError(f"fabric {arguments.name}: is none of the policy; there are {known}")
    leaves = {key: seen.leaves[key] for each in fabrics for key in each.leaves}
    if forms.is_document(arguments.output):
        forms.print_document({"fabrics": fabrics, "leaves": leaves}, arguments.output)
    else:
        for each in fabrics:
            _show(each, [leaves[key] for key in each.leaves], arguments)
    hurt = any(_hurt(node) for leaf in leaves.values() for node in leaf.nodes)
    return output.FINDINGS if hurt else output.OK


def _hurt(node: "model.Node") -> bool:
    return not {"d", "w"}.isdisjoint(node.rails)


def _show(fabric: "model.Fabric", leaves: "list[model.Leaf]", arguments: argparse.Namespace) -> None:
    from railwright.cli import tables  # noqa: PLC0415 - as above

    counts = f"{fabric.rails_free} free, {fabric.rails_busy} busy, {fabric.rails_dead} dead"
    output.print_styled(
        (fabric.name, "bold"), (f" {fabric.transport}, {fabric.nodes} nodes, {len(fabric.rails)} rails: {counts}", "")
    )
    each_node = arguments.dead or arguments.nodes or (fabric.nodes <= _MANY and not arguments.leaves)
    columns = (
        tables.Column("DOMAIN"),
        tables.Column("RAILS"),
        tables.Column("FREE", right=True),
        tables.Column("BUSY", drop=2, right=True),
        tables.Column("DEAD", drop=1, right=True),
        tables.Column("PODS", drop=3, cut=True),
    )
    rows, styles = [], []
    for row, style in _rows(leaves, each_node=each_node, hurt_only=arguments.dead):
        rows.append(row)
        styles.append(style)
    tables.show(columns, rows, styles=styles, wide=arguments.output == "wide")
    if each_node and any(node.rails for leaf in leaves for node in leaf.nodes):
        output.print_styled((_LEGEND, "dim"))


def _rows(leaves: "Iterable[model.Leaf]", *, each_node: bool, hurt_only: bool) -> Iterator[tuple[tuple[str, ...], str]]:
    """(cells, style): a row where a spine begins, one a leaf, one a node below it."""
    before: tuple[str, ...] = ()
    for leaf in leaves:
        nodes = [node for node in leaf.nodes if not hurt_only or _hurt(node) or node.note]
        if hurt_only and not nodes:
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
        yield ((f"{'  ' * depth}{name}", f"{len(leaf.nodes)} nodes", *_counts(leaf.nodes), ""), "bold")
        for node in nodes if each_node else ():
            yield _node(node, depth + 1)


def _node(node: "model.Node", depth: int) -> tuple[tuple[str, ...], str]:
    pods = ", ".join(pod.pod for pod in node.pods)
    told = "; ".join(filter(None, (node.note, pods)))
    style = "red" if "d" in node.rails else "yellow" if node.note or "w" in node.rails else ""
    return ((f"{'  ' * depth}{node.name}", node.rails, *_counts([node]), told or "-"), style)


def _counts(nodes: "Iterable[model.Node]") -> tuple[str, str, str]:
    """Free, busy and dead rails; a degraded one is free or busy, as its pods say."""
    letters: Counter[str] = Counter()
    for node in nodes:
        held = {rail for pod in node.pods for rail in pod.rails}
        letters.update(("b" if at in held else "f") if each == "w" else each for at, each in enumerate(node.rails))
    return str(letters["f"]), str(letters["b"]), str(letters["d"])
