"""`railwright demo`: injects and places a gang on this machine, without a cluster."""

import pathlib

from railwright.cli import options, parsers

HELP = "Admit and place a gang with the real servers on this machine, without a cluster."
EXAMPLES = ("railwright demo", "railwright demo --serve")
FINDING = "the gang was not placed as well as was possible"
RUN = "railwright.cli.demo.command:run"
SLOW = True


def configure(parser: parsers.Parser) -> None:
    """Define the options of this command."""
    parser.add_argument("--full", action="store_true", help="Also print the changes of a pod and each rank's node.")
    parser.add_argument(
        "--serve",
        action="store_true",
        help="Serve the dashboard on the demo's cluster with a stream of jobs, with and without railwright.",
    )
    parser.add_argument("--svg", metavar="FILE", type=pathlib.Path, help="Also write the summary as SVG.")
    options.add_output(parser)
