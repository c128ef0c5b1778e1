"""`railwright fabric`: shows the spines, leaves and nodes of each fabric with their free, busy and dead rails."""

from railwright.cli import parsers

HELP = "show spines, leaves and nodes of each fabric, with their free, busy and dead rails"
EXAMPLE = "kubectl railwright fabric --dead"
RUN = "railwright.cli.overview_tables:show_fabrics"


def configure(parser: parsers.Parser) -> None:
    """Define the options of this command."""
    parser.add_argument("name", metavar="FABRIC", nargs="?", default="", help="fabric to show (default: all)")
    parser.add_argument(
        "--nodes", action="store_true", help="show a row for each node, even of fabrics with more than 64"
    )
    parser.add_argument("--leaves", action="store_true", help="show no rows for nodes")
    parser.add_argument(
        "--dead", action="store_true", help="show only nodes that are not ready or have a dead or degraded rail"
    )
    parsers.add_cluster_view(parser)
