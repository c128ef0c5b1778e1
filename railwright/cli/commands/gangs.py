"""`railwright gangs`: shows for each gang how many pods are placed, how good the placement is, and why it waits."""

from railwright.cli import parsers

HELP = "show gangs: size, placed pods, leaves, bandwidth compared with the best possible, and why they wait"
EXAMPLE = "kubectl railwright gangs -n prod -o wide"
RUN = "railwright.cli.overview_tables:show_gangs"


def configure(parser: parsers.Parser) -> None:
    """Define the options of this command."""
    parser.add_argument(
        "-n", "--namespace", metavar="NAME", default="", help="show gangs of one namespace (default: all)"
    )
    parser.add_argument(
        "-A", "--all-namespaces", action="store_true", help="show gangs of all namespaces (the default)"
    )
    parser.add_argument("--fabric", metavar="NAME", default="", help="show gangs of one fabric")
    parser.add_argument("--waiting", action="store_true", help="show only gangs that are not fully placed")
    parsers.add_cluster_view(parser)
