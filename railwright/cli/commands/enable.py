"""`railwright enable`: undoes `railwright disable`."""

from railwright.cli import options, parsers

HELP = "Restore the webhooks and policy bindings that `railwright disable` deleted."
EXAMPLES = ("railwright enable --dry-run", "railwright enable")
RUN = "railwright.cli.switching:enable"


def configure(parser: parsers.Parser) -> None:
    """Define the options of this command."""
    parser.add_argument("--dry-run", action="store_true", help="Let the API server try each change, and store nothing.")
    options.add_namespace(parser, "Namespace of the installation (default: found by the labels of its Deployments).")
    options.add_cluster(parser.add_group("options for the cluster"))
