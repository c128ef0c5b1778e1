"""`railwright dashboard`: serves a page on this machine with the fabrics, gangs and recent admissions."""

import pathlib

from railwright.cli import parsers

HELP = "serve a live page with the fabrics, gangs and recent admissions on this machine"
EXAMPLE = "railwright dashboard --open"
RUN = "railwright.cli.dashboard:run"


def configure(parser: parsers.Parser) -> None:
    """Define the options of this command."""
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        default="127.0.0.1:0",
        help="address to listen on, loopback only (default: %(default)s)",
    )
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    parsers.add_kubeconfig(parser)
    parser.add_argument(
        "--snapshot", metavar="FILE", type=pathlib.Path, help="read objects from a file; reload it when it changes"
    )
    parser.add_argument(
        "--policy", metavar="FILE", type=pathlib.Path, help="read the policy from a file; reload it when it changes"
    )
