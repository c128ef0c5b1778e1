"""`railwright fabric`: shows the spines, leaves and nodes of each fabric with their free, busy and dead rails."""

from railwright.cli import options, parsers

HELP = "Show spines, leaves and nodes of each fabric, with their free, busy and dead rails."
EXAMPLES = ("railwright fabric", "railwright fabric --dead -o wide")
FINDING = "a rail is dead or degraded"
RUN = "railwright.cli.fabric_tables:show_fabrics"


def configure(parser: parsers.Parser) -> None:
    """Define the options of this command."""
    parser.add_argument("name", metavar="FABRIC", nargs="?", default="", help="Fabric to show (default: all).")
    parser.add_argument(
        "--nodes", action="store_true", help="Show a row for each node, even of fabrics with more than 64."
    )
    parser.add_argument("--leaves", action="store_true", help="Show no rows for nodes.")
    parser.add_argument(
        "--dead", action="store_true", help="Show only nodes that are not ready or have a dead or degraded rail."
    )
    options.add_selector(parser, "of the nodes")
    options.add_output(parser, options.WIDE, options.NAME)
    options.add_no_headers(parser)
    options.add_watch(parser)
    options.add_snapshot(parser)
    options.add_policy(parser)
    options.add_cluster(parser.add_group("options for the cluster"))
