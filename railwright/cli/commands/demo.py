"""`railwright demo`: injects and places a gang on this machine, without a cluster."""

import pathlib

from railwright.cli import parsers

HELP = "end-to-end demo, no cluster needed: admits and places a gang with the real servers, and shows the result"
EXAMPLE = "railwright demo --serve"
RUN = "railwright.cli.demo.command:run"


def configure(parser: parsers.Parser) -> None:
    """Define the options of this command."""
    parser.add_argument(
        "--serve", action="store_true", help="keep the servers running, and serve the result as a web page"
    )
    parser.add_argument("--svg", metavar="FILE", type=pathlib.Path, help="also write the output as SVG")
