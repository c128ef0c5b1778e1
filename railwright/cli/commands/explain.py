"""`railwright explain`: shows how admission would change a manifest, or why a pod was placed on its node.

`explain FILE --policy P` runs the webhook's own code. `explain pod NAMESPACE/NAME` queries a running extender. Parses
options and sets the exit code; `picture` and `decision` render the output.
"""

import argparse
import io
import pathlib
import sys
import typing
from collections.abc import Sequence
from typing import Any

from railwright.cli import output

if typing.TYPE_CHECKING:  # slow to import, and other commands do not need them
    from railwright.cli.explanation import account
    from railwright.fabric.policy import model as policies

NAME = "explain"
HELP = "show the patch for a manifest as a diff, with a reason for each change; or why a pod is on its node"
_USAGE = """%(prog)s FILE --policy FILE [--snapshot FILE] [-n NAMESPACE] [--full] [--svg FILE] [-o text|json]
       %(prog)s pod NAMESPACE/NAME [--extender URL] [--token TOKEN | --token-file FILE] [--ca FILE]
                [--kubeconfig FILE] [-o text|json]"""
_POD = "pod"  # keyword of the second form; write ./pod for a file of this name
_UNCONSULTED = (
    "cluster not consulted: namespace labels, networks, pod-security level and node resources were not checked; "
    "give --snapshot"
)
_PIPED_WIDTH, _PICTURE_WIDTH = 160, 120  # columns without a terminal, and of the SVG


def configure(parser: argparse.ArgumentParser) -> None:
    """Define the options of this command."""
    parser.usage = _USAGE
    _intermix(parser)
    parser.add_argument("file", metavar="FILE", help="pods and workloads, YAML or JSON; - for standard input; or: pod")
    parser.add_argument("pod", metavar="NAMESPACE/NAME", nargs="?", help="with `pod`: the pod to explain")
    parser.add_argument("-n", "--namespace", default="", help="namespace of objects without one (default: default)")
    manifest = parser.add_argument_group("options for a manifest")
    manifest.add_argument("--policy", metavar="FILE", help="policy, or the ConfigMap that contains it (required)")
    manifest.add_argument(
        "--snapshot", metavar="FILE", help="file with Namespaces, networks and Nodes, as for the servers"
    )
    manifest.add_argument("--full", action="store_true", help="show the whole pod, not only the changes")
    manifest.add_argument("--svg", metavar="FILE", type=pathlib.Path, help="also write the output as SVG")
    pod = parser.add_argument_group("options for a pod")
    pod.add_argument(
        "--extender", metavar="URL", default="", help="URL of the extender (default: through the API server)"
    )
    pod.add_argument("--token", default="", help="bearer token of an account that may get pods in the namespace")
    pod.add_argument(
        "--token-file", metavar="FILE", default="", help="file with the bearer token; - for standard input"
    )
    pod.add_argument("--ca", metavar="FILE", default="", help="CA file for the extender")
    pod.add_argument(
        "--kubeconfig", metavar="FILE", default="", help="kubeconfig of the cluster (default: as for kubectl)"
    )


def _intermix(parser: argparse.ArgumentParser) -> None:
    """Allow options between positional arguments: `pod --extender URL NAME`. Subparsers of argparse do not."""
    plain = parser.parse_known_args

    def parse(args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        parser.parse_known_args = plain  # type: ignore[method-assign]  # parse_known_intermixed_args calls it
        try:
            return parser.parse_known_intermixed_args(args, namespace)
        finally:
            parser.parse_known_args = parse  # type: ignore[method-assign]

    parser.parse_known_args = parse  # type: ignore[method-assign]


def run(arguments: argparse.Namespace) -> int:
    """Return the exit code.

    Manifest: 0 if all pods would be admitted, 1 if one would be rejected, 2 for an unreadable file or one without pods.
    Pod: 0 if it is or can be placed optimally, 1 if not, 2 if no extender can be reached.
    """
    if arguments.file == _POD:
        return _explain_pod(arguments)
    if arguments.pod is not None:
        raise output.UnreadableError(f"{arguments.file} {arguments.pod}: give one FILE, or: pod NAMESPACE/NAME")
    _refuse(arguments, ("extender", "token", "token_file", "ca", "kubeconfig"), "explain pod NAMESPACE/NAME")
    if arguments.policy is None:
        raise output.UnreadableError(f"explain {arguments.file}: --policy FILE is missing")
    return _explain_file(arguments)


def _explain_pod(arguments: argparse.Namespace) -> int:
    import msgspec  # noqa: PLC0415 - slow to import, as in all commands
    from rich.console import Console  # noqa: PLC0415 - the same

    from railwright.cli.explanation import asking, decision  # noqa: PLC0415 - the same

    _refuse(arguments, ("policy", "snapshot", "full", "svg"), "explain FILE")
    namespace, name = _parse_pod(arguments.pod or "", arguments.namespace)
    way = asking.Way(arguments.extender, arguments.token, arguments.token_file, arguments.ca, arguments.kubeconfig)
    body = asking.explanation(namespace, name, way)
    answer = decision.read(body)
    if arguments.output == "json":
        output.print_json(msgspec.Raw(body))
    else:
        console = Console(highlight=False)
        if not console.is_terminal:
            console.width = _PIPED_WIDTH
        console.print(decision.render(answer))
    return output.FINDINGS if decision.is_finding(answer) else output.OK


def _parse_pod(pod: str, namespace: str) -> tuple[str, str]:
    """Return (namespace, name). Raise UnreadableError."""
    first, slash, rest = pod.partition("/")
    if not pod or (slash and (not first or not rest or "/" in rest)):
        raise output.UnreadableError(
            f"explain pod {pod or '(no pod)'}: give NAMESPACE/NAME, or NAME -n NAMESPACE (for a file: ./pod)"
        )
    if slash and namespace not in ("", first):
        raise output.UnreadableError(f"explain pod {pod}: -n {namespace} is another namespace; give one of them")
    return (first, rest) if slash else (namespace or "default", pod)


def _refuse(arguments: argparse.Namespace, options: Sequence[str], form: str) -> None:
    """Raise UnreadableError for options of the other form."""
    present = [f"--{option.replace('_', '-')}" for option in options if getattr(arguments, option)]
    if present:
        raise output.UnreadableError(f"{', '.join(present)}: only for `{form}`")


def _explain_file(arguments: argparse.Namespace) -> int:
    from railwright.cli.explanation import account, manifests, templates  # noqa: PLC0415 - slow to import, as in all commands

    policy = _policy(arguments.policy)
    caches = account.known(arguments.snapshot)
    pod_templates: list[templates.Template] = []
    for tree in manifests.read(output.read_text(arguments.file), arguments.file):
        tree_templates = templates.of(tree, arguments.namespace or templates.DEFAULT_NAMESPACE)
        if tree_templates is None:
            print(f"railwright: {output.visible(manifests.title(tree))} creates no pods, skipped", file=sys.stderr)
        pod_templates += tree_templates or ()
    if not pod_templates:
        kinds = ", ".join(templates.known())
        raise output.UnreadableError(f"{arguments.file}: contains no pod and no pod template (supported: {kinds})")
    accounts = [account.give(template, policy, caches) for template in pod_templates]
    _answer(arguments, accounts)
    if arguments.snapshot is None:
        print(f"railwright: {_UNCONSULTED}", file=sys.stderr)
    return output.FINDINGS if any(map(account.refused, accounts)) else output.OK


def _policy(path: str) -> "policies.Policy":
    """Return the policy in a file. Raise UnreadableError with all its errors."""
    from railwright.cluster import manifests, policies  # noqa: PLC0415 - as above

    result = manifests.read(output.read_text(path))
    if not isinstance(result, policies.Rejected):
        return result
    places = [path if error.line is None else f"{path}:{error.line}" for error in result.errors]
    lines = [
        ": ".join(filter(None, (place, error.path, error.message)))
        for place, error in zip(places, result.errors, strict=True)
    ]
    raise output.UnreadableError("\n  ".join(["the policy is invalid:", *map(output.visible, lines)]))


def _answer(arguments: argparse.Namespace, accounts: "Sequence[account.Account]") -> None:
    from rich.console import Console  # noqa: PLC0415 - as above

    from railwright.cli.explanation import picture  # noqa: PLC0415

    if arguments.output == "json":
        output.print_json([_plain(item) for item in accounts])
    console = Console(record=True, highlight=False, file=io.StringIO() if arguments.output == "json" else None)
    if arguments.svg or not console.is_terminal:
        console.width = _PICTURE_WIDTH if arguments.svg else _PIPED_WIDTH
    for item in accounts:
        console.print(picture.render(item, full=arguments.full))
    console.print(picture.summary(accounts))
    if arguments.svg:
        svg = console.export_svg(title=f"railwright explain {arguments.file}")
        arguments.svg.write_text(output.offline(svg), encoding="utf-8")


def _plain(item: "account.Account") -> dict[str, object]:
    """Return the account without the pods: the file has the original, and the operations produce the result."""
    import msgspec  # noqa: PLC0415 - as above

    tree: dict[str, object] = msgspec.to_builtins(item)
    return {key: value for key, value in tree.items() if key not in {"before", "after"}}
