"""`railwright version`: shows the version of this command, and the images and the policy in a cluster."""

from railwright.cli import parsers

HELP = "show the version of this command, the images of the servers in the cluster, and the digest of its policy"
EXAMPLE = "railwright version -o json"
RUN = "railwright.cli.versions:run"


def configure(parser: parsers.Parser) -> None:
    """Define the options of this command."""
    parser.add_argument("--client", action="store_true", help="show only the version of this command; read no cluster")
    parsers.add_kubeconfig(parser)
    parsers.add_context(parser)
