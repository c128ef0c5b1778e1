"""`railwright dashboard`: serves a page on this machine with the fabrics, gangs and recent admissions."""

from railwright.cli import options, parsers

HELP = "Serve a live page with the fabrics, gangs and recent admissions on this machine."
EXAMPLES = ("railwright dashboard --open", "railwright dashboard --snapshot snapshot.yaml --policy policy.yaml")
RUN = "railwright.cli.dashboard:run"


def configure(parser: parsers.Parser) -> None:
    """Define the options of this command."""
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        default="127.0.0.1:0",
        help="Address to listen on, loopback only (default: %(default)s).",
    )
    parser.add_argument("--open", action="store_true", help="Open the page in a browser.")
    options.add_snapshot(parser)
    options.add_policy(parser)
    options.add_cluster(parser.add_group("options for the cluster"))
