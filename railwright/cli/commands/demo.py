"""`railwright demo`: injects and places a gang on this machine, without a cluster."""

import pathlib

from railwright.cli import options, parsers

HELP = "Admit and place a gang with the real servers on this machine, without a cluster."
EXAMPLES = ("railwright demo", "railwright demo --serve")
RUN = "railwright.cli.demo.command:run"


def configure(parser: parsers.Parser) -> None:
    """Define the options of this command."""
    parser.add_argument(
        "--serve", action="store_true", help="Keep the servers running, and serve the result as a web page."
    )
    parser.add_argument("--svg", metavar="FILE", type=pathlib.Path, help="Also write the output as SVG.")
    options.add_output(parser)
