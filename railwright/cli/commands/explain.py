"""`railwright explain`: shows how admission would change a manifest, or why a pod was placed on its node.

Finds out which form was given, and imports only what that form needs.
"""

import argparse
import pathlib
import pkgutil
from collections.abc import Sequence

from railwright.cli import output, parsers

HELP = "show the patch for a manifest as a diff, with a reason for each change; or why a pod is on its node"
EXAMPLE = "railwright explain job.yaml --policy policy.yaml"
RUN = "railwright.cli.commands.explain:run"
_USAGE = """%(prog)s FILE --policy FILE [--snapshot FILE] [-n NAMESPACE] [--full] [--svg FILE] [-o text|json]
       %(prog)s pod NAMESPACE/NAME [--extender URL] [--token TOKEN | --token-file FILE] [--ca FILE]
                [--kubeconfig FILE] [-o text|json]"""


def configure(parser: parsers.Parser) -> None:
    """Define the options of this command."""
    parser.set_usage(_USAGE)
    parser.add_argument("file", metavar="FILE", help="pods and workloads, YAML or JSON; - for standard input; or: pod")
    parser.add_argument("pod", metavar="NAMESPACE/NAME", nargs="?", help="with `pod`: the pod to explain")
    parser.add_argument("-n", "--namespace", default="", help="namespace of objects without one (default: default)")
    manifest = parser.add_group("options for a manifest")
    manifest.add_argument("--policy", metavar="FILE", help="policy, or the ConfigMap that contains it (required)")
    manifest.add_argument(
        "--snapshot", metavar="FILE", help="file with Namespaces, networks and Nodes, as for the servers"
    )
    manifest.add_argument("--full", action="store_true", help="show the whole pod, not only the changes")
    manifest.add_argument("--svg", metavar="FILE", type=pathlib.Path, help="also write the output as SVG")
    pod = parser.add_group("options for a pod")
    pod.add_argument(
        "--extender", metavar="URL", default="", help="URL of the extender (default: through the API server)"
    )
    pod.add_argument("--token", default="", help="bearer token of an account that may get pods in the namespace")
    pod.add_argument(
        "--token-file", metavar="FILE", default="", help="file with the bearer token; - for standard input"
    )
    pod.add_argument("--ca", metavar="FILE", default="", help="CA file for the extender")
    parsers.add_kubeconfig(pod)


_POD = "pod"  # keyword of the second form; write ./pod for a file of this name
_EXPLAIN_FILE = "railwright.cli.explanation.manifest:explain"
_EXPLAIN_POD = "railwright.cli.explanation.pod:explain"


def run(arguments: argparse.Namespace) -> int:
    """Return the exit code.

    Manifest: 0 if all pods would be admitted, 1 if one would be rejected, 2 for an unreadable file or one without pods.
    Pod: 0 if it is or can be placed optimally, 1 if not, 2 if no extender can be reached.
    """
    if arguments.file == _POD:
        _reject(arguments, ("policy", "snapshot", "full", "svg"), "explain FILE")
        return int(pkgutil.resolve_name(_EXPLAIN_POD)(arguments))
    if arguments.pod is not None:
        raise output.UnreadableError(f"{arguments.file} {arguments.pod}: give one FILE, or: pod NAMESPACE/NAME")
    _reject(arguments, ("extender", "token", "token_file", "ca", "kubeconfig"), "explain pod NAMESPACE/NAME")
    if arguments.policy is None:
        raise output.UnreadableError(f"explain {arguments.file}: --policy FILE is missing")
    return int(pkgutil.resolve_name(_EXPLAIN_FILE)(arguments))


def _reject(arguments: argparse.Namespace, options: Sequence[str], form: str) -> None:
    """Raise UnreadableError for options of the other form."""
    present = [f"--{option.replace('_', '-')}" for option in options if getattr(arguments, option)]
    if present:
        raise output.UnreadableError(f"{', '.join(present)}: only for `{form}`")
