"""`railwright explain`: what admission would do to the pods of a manifest, or why a pod was placed where it is.

Two forms of one question: `explain FILE --policy P` asks the webhook's own function, `explain pod NAMESPACE/NAME` a
running extender. Owns the arguments and the exit codes; how the answers look is `picture`'s and `decision`'s.
"""

import argparse
import io
import pathlib
import sys
import typing
from collections.abc import Sequence
from typing import Any

from railwright.cli import output

if typing.TYPE_CHECKING:  # slow to import; the commands beside this one do not wait for them
    from railwright.cli.explanation import account
    from railwright.fabric.policy import model as policies

NAME = "explain"
HELP = "the patch for a manifest as a coloured diff, with a reason for each change; or why a pod is where it is"
_USAGE = """%(prog)s FILE --policy FILE [--snapshot FILE] [-n NAMESPACE] [--full] [--svg FILE] [-o text|json]
       %(prog)s pod NAMESPACE/NAME [--extender URL] [--token TOKEN | --token-file FILE] [--ca FILE]
                [--kubeconfig FILE] [-o text|json]"""
_POD = "pod"  # the word; a file of this name is ./pod
_UNCONSULTED = (
    "cluster not consulted: namespace labels, networks, pod-security level and node resources were not checked; "
    "give --snapshot"
)
_PIPED_WIDTH, _PICTURE_WIDTH = 160, 120  # columns where there is no terminal to ask, and of a picture


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of this command."""
    parser.usage = _USAGE
    _intermix(parser)
    parser.add_argument("file", metavar="FILE", help="pods and workloads, YAML or JSON; - = standard input; or: pod")
    parser.add_argument("pod", metavar="NAMESPACE/NAME", nargs="?", help="after the word pod: the pod to explain")
    parser.add_argument("-n", "--namespace", default="", help="where none is named (default: default)")
    manifest = parser.add_argument_group("of a manifest")
    manifest.add_argument("--policy", metavar="FILE", help="the policy, or the ConfigMap that holds it (required)")
    manifest.add_argument("--snapshot", metavar="FILE", help="Namespaces, networks and Nodes, as the servers take them")
    manifest.add_argument("--full", action="store_true", help="show the whole pod, not only what changes")
    manifest.add_argument("--svg", metavar="FILE", type=pathlib.Path, help="also write the picture as SVG")
    pod = parser.add_argument_group("of a pod")
    pod.add_argument("--extender", metavar="URL", default="", help="where it listens (default: by the API server)")
    pod.add_argument("--token", default="", help="a bearer token of whom may get pods there")
    pod.add_argument("--token-file", metavar="FILE", default="", help="the same from a file; - = standard input")
    pod.add_argument("--ca", metavar="FILE", default="", help="the authority of the extender's certificate")
    pod.add_argument("--kubeconfig", metavar="FILE", default="", help="the API server (default: as kubectl has it)")


def _intermix(parser: argparse.ArgumentParser) -> None:
    """Let options stand between the words: `pod --extender URL NAME`. argparse has that only for whole programs."""
    plain = parser.parse_known_args

    def parse(args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        parser.parse_known_args = plain  # type: ignore[method-assign]  # which the next line calls
        try:
            return parser.parse_known_intermixed_args(args, namespace)
        finally:
            parser.parse_known_args = parse  # type: ignore[method-assign]

    parser.parse_known_args = parse  # type: ignore[method-assign]


def run(arguments: argparse.Namespace) -> int:
    """Of a manifest: 0 every pod would be created, 1 one would be refused, 2 no such file, or one without pods.

    Of a pod: 0 it can be or was placed as well as possible, 1 it cannot, or worse, 2 nobody can be asked.
    """
    if arguments.file == _POD:
        return _explain_pod(arguments)
    if arguments.pod is not None:
        raise output.UnreadableError(f"{arguments.file} {arguments.pod}: one FILE, or: pod NAMESPACE/NAME")
    _refuse(arguments, ("extender", "token", "token_file", "ca", "kubeconfig"), "explain pod NAMESPACE/NAME")
    if arguments.policy is None:
        raise output.UnreadableError(f"explain {arguments.file}: --policy FILE is missing")
    return _explain_file(arguments)


def _explain_pod(arguments: argparse.Namespace) -> int:
    import msgspec  # noqa: PLC0415 - slow to import, as in all commands
    from rich.console import Console  # noqa: PLC0415 - the same

    from railwright.cli.explanation import asking, decision  # noqa: PLC0415 - the same

    _refuse(arguments, ("policy", "snapshot", "full", "svg"), "explain FILE")
    namespace, name = _named(arguments.pod or "", arguments.namespace)
    way = asking.Way(arguments.extender, arguments.token, arguments.token_file, arguments.ca, arguments.kubeconfig)
    body = asking.explanation(namespace, name, way)
    told = decision.read(body)
    if arguments.output == "json":
        output.print_json(msgspec.Raw(body))
    else:
        console = Console(highlight=False)
        if not console.is_terminal:
            console.width = _PIPED_WIDTH
        console.print(decision.render(told))
    return output.FINDINGS if decision.is_finding(told) else output.OK


def _named(pod: str, namespace: str) -> tuple[str, str]:
    """(namespace, name). Raises UnreadableError."""
    first, slash, rest = pod.partition("/")
    if not pod or (slash and (not first or not rest or "/" in rest)):
        raise output.UnreadableError(
            f"explain pod {pod or '(no pod)'}: write it NAMESPACE/NAME, or NAME -n NAMESPACE (a file: ./pod)"
        )
    if slash and namespace not in ("", first):
        raise output.UnreadableError(f"explain pod {pod}: -n {namespace} is another namespace; leave out one")
    return (first, rest) if slash else (namespace or "default", pod)


def _refuse(arguments: argparse.Namespace, options: Sequence[str], form: str) -> None:
    """Options of the other form are a mistake, not to be read over."""
    given = [f"--{each.replace('_', '-')}" for each in options if getattr(arguments, each)]
    if given:
        raise output.UnreadableError(f"{', '.join(given)}: only of `{form}`")


def _explain_file(arguments: argparse.Namespace) -> int:
    from railwright.cli.explanation import account, manifests, templates  # noqa: PLC0415 - slow to import, as in all commands

    policy = _policy(arguments.policy)
    caches = account.known(arguments.snapshot)
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
    if arguments.snapshot is None:
        print(f"railwright: {_UNCONSULTED}", file=sys.stderr)
    return output.FINDINGS if any(map(account.refused, accounts)) else output.OK


def _policy(path: str) -> "policies.Policy":
    """The policy of a file. Raises UnreadableError with all that is wrong with it."""
    from railwright.cluster import manifests, policies  # noqa: PLC0415 - as above

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

    from railwright.cli.explanation import picture  # noqa: PLC0415

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
