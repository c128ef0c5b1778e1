"""`railwright version`: shows the version of this command, and the images and the policy in a cluster."""

from railwright.cli import options, parsers

HELP = "Show the version of this command, the servers' images in the cluster, and the digest of its policy."
EXAMPLES = ("railwright version", "railwright version --client -o json")
RUN = "railwright.cli.versions:run"


def configure(parser: parsers.Parser) -> None:
    """Define the options of this command."""
    parser.add_argument("--client", action="store_true", help="Show only the version of this command; read no cluster.")
    options.add_output(parser)
    options.add_cluster(parser.add_group("options for the cluster"))
