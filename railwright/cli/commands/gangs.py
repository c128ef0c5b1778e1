"""`railwright gangs`: shows for each gang how many pods are placed, how good the placement is, and why it waits."""

from railwright.cli import options, parsers

HELP = "List gangs or describe one: placed pods, leaves, bandwidth compared with the best possible, and why it waits."
EXAMPLES = ("railwright gangs -n prod -o wide", "railwright gangs llama -n prod")
FINDING = "a gang cannot be placed"
RUN = "railwright.cli.gang_tables:show"


def configure(parser: parsers.Parser) -> None:
    """Define the options of this command."""
    parser.add_argument("gang", metavar="GANG", nargs="?", default="", help="Describe this gang with all its pods.")
    options.add_namespace(parser, "Show gangs of one namespace (default: all namespaces).")
    parser.add_argument(
        "-A", "--all-namespaces", action="store_true", help="Show gangs of all namespaces (the default)."
    )
    parser.add_argument("--fabric", metavar="NAME", default="", help="Show gangs of one fabric.")
    parser.add_argument("--waiting", action="store_true", help="Show only gangs that are not fully placed.")
    options.add_selector(parser, "of a pod of the gang")
    options.add_output(parser, options.WIDE, options.NAME)
    options.add_no_headers(parser)
    options.add_watch(parser)
    options.add_snapshot(parser)
    options.add_policy(parser)
    options.add_cluster(parser.add_group("options for the cluster"))
