"""`railwright explain`: shows how admission would change a manifest, or why a pod was placed on its node.

Finds out which form was given, and imports only what that form needs.
"""

import argparse
import pathlib
import pkgutil
from collections.abc import Sequence

from railwright.cli import options, output, parsers

HELP = "Show how admission would change a manifest, with a reason for each change, or why a pod is on its node."
EXAMPLES = ("railwright explain job.yaml -n prod", "railwright explain pod/llama-0 -n prod")
FINDING = "a pod would be rejected, cannot be placed, or was placed worse than was possible"
RUN = "railwright.cli.commands.explain:run"
_USAGE = """%(prog)s FILE... [options]
       %(prog)s pod/NAME [-n NAMESPACE] [options]"""


def configure(parser: parsers.Parser) -> None:
    """Define the options of this command."""
    parser.set_usage(_USAGE)
    parser.add_argument(
        "words",
        metavar="FILE",
        nargs="*",
        help="Pods and workloads, YAML or JSON. A folder, or - for standard input. Or pod/NAME, or pod NAME.",
    )
    options.add_filenames(parser)
    parser.requirements.append(_find_problem)
    options.add_namespace(parser, "Namespace of the pod, and of objects without one (default: that of the context).")
    options.add_output(parser)
    manifest = parser.add_group("options for a manifest")
    manifest.add_argument(
        "--policy",
        metavar="FILE",
        help="Policy, or the ConfigMap or FabricPolicy that contains it (default: ask the cluster by a dry run, which"
        " stores nothing).",
    )
    manifest.add_argument(
        "--snapshot", metavar="FILE", help="File with Namespaces, networks and Nodes, as for the servers."
    )
    manifest.add_argument("--full", action="store_true", help="Show the whole pod, not only the changes.")
    manifest.add_argument("--svg", metavar="FILE", type=pathlib.Path, help="Also write the output as SVG.")
    pod = parser.add_group("options for a pod")
    pod.add_argument(
        "--extender", metavar="URL", default="", help="URL of the extender (default: through the API server)."
    )
    pod.add_argument("--token", default="", help="Bearer token of an account that may get pods in the namespace.")
    pod.add_argument(
        "--token-file", metavar="FILE", default="", help="File with the bearer token, or - for standard input."
    )
    pod.add_argument("--ca", metavar="FILE", default="", help="CA file for the extender.")
    options.add_cluster(parser.add_group("options for the cluster"))


def _find_problem(arguments: argparse.Namespace) -> str:
    is_enough = arguments.words or arguments.filename
    return "" if is_enough else "the following arguments are required: FILE, - for standard input, or pod/NAME"


_POD = ("pod", "pods", "po")  # as for kubectl; write ./pod for a file of this name
_EXPLAIN_FILES = "railwright.cli.explanation.manifest:explain"
_EXPLAIN_POD = "railwright.cli.explanation.pod:explain"


def run(arguments: argparse.Namespace) -> int:
    """Return the exit code.

    Manifest: 0 if all pods would be admitted, 1 if one would be rejected, 2 for an unreadable file or one without pods.
    Pod: 0 if it is or can be placed optimally, 1 if not, 2 if no extender can be reached.
    """
    kind, slash, name = arguments.words[0].partition("/") if arguments.words else ("", "", "")
    if kind not in _POD:
        arguments.files = arguments.words
        _reject(arguments, ("extender", "token", "token_file", "ca"), "explain pod/NAME")
        return int(pkgutil.resolve_name(_EXPLAIN_FILES)(arguments))
    names = [name, *arguments.words[1:]] if slash else arguments.words[1:]
    if len(names) > 1:
        raise output.UnreadableError(f"explain {' '.join(arguments.words)}: give one pod, as pod/NAME -n NAMESPACE")
    _reject(arguments, ("policy", "snapshot", "full", "svg", "filename", "recursive"), "explain FILE")
    arguments.pod = names[0] if names else ""
    return int(pkgutil.resolve_name(_EXPLAIN_POD)(arguments))


def _reject(arguments: argparse.Namespace, given: Sequence[str], form: str) -> None:
    """Raise UnreadableError for options of the other form."""
    present = [f"--{option.replace('_', '-')}" for option in given if getattr(arguments, option)]
    if present:
        raise output.UnreadableError(f"{', '.join(present)}: only for `{form}`")
