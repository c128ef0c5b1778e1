"""`railwright explain FILE --policy P`: what admission would do to the pods of a manifest, and why.

Owns the arguments and the exit code. What happens to a pod is the webhook's own function; how it looks is `picture`'s.
"""

import argparse
import io
import pathlib
import sys
import typing
from collections.abc import Sequence

from cli import output

if typing.TYPE_CHECKING:  # slow to import; the commands beside this one do not wait for them
    from cli.explanation import account
    from fabric.policy import model as policies

NAME = "explain"
HELP = "the patch for a manifest as a coloured diff, with a reason for each change"
_UNCONSULTED = (
    "cluster not consulted: namespace labels, networks, pod-security level and node resources were not checked; "
    "give --snapshot"
)
_PIPED_WIDTH, _PICTURE_WIDTH = 160, 120  # columns where there is no terminal to ask, and of a picture


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of this command."""
    parser.add_argument("file", metavar="FILE", help="pods and workloads, YAML or JSON; - = standard input")
    parser.add_argument("--policy", metavar="FILE", required=True, help="the policy, or the ConfigMap that holds it")
    parser.add_argument("--snapshot", metavar="FILE", help="Namespaces, networks and Nodes, as the servers take them")
    parser.add_argument("-n", "--namespace", default="", help="of objects that name none (default: default)")
    parser.add_argument("--full", action="store_true", help="show the whole pod, not only what changes")
    parser.add_argument("--svg", metavar="FILE", type=pathlib.Path, help="also write the picture as SVG")


def run(arguments: argparse.Namespace) -> int:
    """0 every pod would be created, 1 one would be refused, 2 a file that cannot be read or has no pods."""
    from cli.explanation import account, manifests, templates  # noqa: PLC0415 - slow to import, as in all commands

    policy = _policy(arguments.policy)
    snapshot = None if arguments.snapshot is None else output.read_text(arguments.snapshot)
    caches = account.known(snapshot, arguments.snapshot or "")
    found: list[templates.Template] = []
    for tree in manifests.read(output.read_text(arguments.file), arguments.file):
        made = templates.of(tree, arguments.namespace or templates.DEFAULT_NAMESPACE)
        if made is None:
            print(f"railwright: {output.visible(manifests.title(tree))} makes no pods, left out", file=sys.stderr)
        found += made or ()
    if not found:
        known = ", ".join(templates.known())
        raise output.UnreadableError(f"{arguments.file}: there is no pod and no pod template in it; known are {known}")
    accounts = [account.give(each, policy, caches) for each in found]
    _answer(arguments, accounts)
    if snapshot is None:
        print(f"railwright: {_UNCONSULTED}", file=sys.stderr)
    return output.FINDINGS if any(map(account.refused, accounts)) else output.OK


def _policy(path: str) -> "policies.Policy":
    """The policy of a file. Raises UnreadableError with all that is wrong with it."""
    from cluster import manifests, policies  # noqa: PLC0415 - as above

    result = manifests.read(output.read_text(path))
    if not isinstance(result, policies.Rejected):
        return result
    places = [path if each.line is None else f"{path}:{each.line}" for each in result.errors]
    lines = [
        ": ".join(filter(None, (place, each.path, each.message)))
        for place, each in zip(places, result.errors, strict=True)
    ]
    raise output.UnreadableError("\n  ".join(["the policy would be refused:", *map(output.visible, lines)]))


def _answer(arguments: argparse.Namespace, accounts: "Sequence[account.Account]") -> None:
    from rich.console import Console  # noqa: PLC0415 - as above

    from cli.explanation import picture  # noqa: PLC0415

    if arguments.output == "json":
        output.print_json([_plain(each) for each in accounts])
    console = Console(record=True, highlight=False, file=io.StringIO() if arguments.output == "json" else None)
    if arguments.svg or not console.is_terminal:
        console.width = _PICTURE_WIDTH if arguments.svg else _PIPED_WIDTH
    for each in accounts:
        console.print(picture.render(each, full=arguments.full))
    console.print(picture.summary(accounts))
    if arguments.svg:
        svg = console.export_svg(title=f"railwright explain {arguments.file}")
        arguments.svg.write_text(output.offline(svg), encoding="utf-8")


def _plain(given: "account.Account") -> dict[str, object]:
    """The account without the pods themselves: the file has the one, the operations make the other."""
    import msgspec  # noqa: PLC0415 - as above

    tree: dict[str, object] = msgspec.to_builtins(given)
    return {key: value for key, value in tree.items() if key not in {"before", "after"}}
