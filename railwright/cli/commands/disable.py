"""`railwright disable`: takes railwright out of the admission of objects, in an emergency."""

from railwright.cli import options, parsers

HELP = "Emergency switch: delete railwright's webhooks and policy bindings, so that it rejects no pod; keeps a copy."
EXAMPLES = ("railwright disable --dry-run", "railwright disable")
RUN = "railwright.cli.switching:disable"


def configure(parser: parsers.Parser) -> None:
    """Define the options of this command."""
    parser.add_argument("--dry-run", action="store_true", help="Let the API server try each change, and store nothing.")
    options.add_namespace(parser, "Namespace of the installation (default: found by the labels of its Deployments).")
    options.add_cluster(parser.add_group("options for the cluster"))
