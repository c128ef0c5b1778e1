"""`railwright explain`: shows how admission would change a manifest, or why a pod was placed on its node."""

import pathlib

from railwright.cli import options, parsers

HELP = "show the patch for a manifest as a diff, with a reason for each change; or why a pod is on its node"
EXAMPLE = "railwright explain job.yaml --policy policy.yaml"
RUN = "railwright.cli.explanation.command:run"
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
    options.add_kubeconfig(pod)
