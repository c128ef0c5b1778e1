"""Options that several commands share, with the same names and meanings as in kubectl."""

from railwright.cli import parsers


def add_kubeconfig(parser: parsers.Options) -> None:
    """Add --kubeconfig."""
    parser.add_argument(
        "--kubeconfig", metavar="FILE", default="", help="kubeconfig of the cluster (default: as for kubectl)"
    )


def add_context(parser: parsers.Options) -> None:
    """Add --context."""
    parser.add_argument("--context", metavar="NAME", default=None, help="context of the kubeconfig")


def add_cluster_view(parser: parsers.Options) -> None:
    """Add the options of commands that show a cluster, or files instead of it."""
    add_kubeconfig(parser)
    add_context(parser)
    parser.add_argument("--snapshot", metavar="FILE", default="", help="read objects from a file instead of a cluster")
    parser.add_argument(
        "--policy", metavar="FILE", default="", help="read the policy from a file (default: from the cluster)"
    )
    parser.add_argument(
        "-o",
        "--output",
        choices=("text", "wide", "json", "yaml"),
        default="text",
        help="output format; wide shows all columns",
    )
