"""`railwright check`: verifies an installation and prints a fix for each failed check."""

import argparse
import pathlib

from railwright.cli import options, parsers

HELP = "Verify an installation, and show a fix for each failed check."
EXAMPLES = ("railwright check", "railwright check --pre")
FINDING = "a check failed; with --strict, if one warned"
RUN = "railwright.cli.checking.start:run"
_DEFAULT_WAIT = 300.0  # seconds, for --wait without a value
_MAX_WAIT = 86400.0  # seconds: a day


def configure(parser: parsers.Parser) -> None:
    """Define the options of this command."""
    options.add_namespace(parser, "Namespace of the installation (default: found by the labels of its Deployments).")
    parser.add_argument(
        "--namespace-for-probe",
        metavar="NAME",
        default="",
        help="Namespace of the dry-run pod (default: the first namespace that may use the fabric).",
    )
    parser.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="List every check, also those that passed or were skipped.",
    )
    parser.add_argument("--pre", action="store_true", help="Check the prerequisites, before installing.")
    parser.add_argument("--strict", action="store_true", help="Exit with 1 for warnings too.")
    parser.add_argument(
        "--allow-unread",
        action="store_true",
        help="Do not exit with 2 if checks were skipped because you may not read their objects.",
    )
    parser.add_argument(
        "--wait",
        metavar="SECONDS",
        type=_parse_seconds,
        nargs="?",
        const=_DEFAULT_WAIT,
        default=0.0,
        help=f"Repeat until no check fails, for at most this long (default: {_DEFAULT_WAIT:g}).",
    )
    parser.add_argument(
        "--explain",
        metavar="ROW",
        nargs="?",
        const="",
        help="Print what a row looks at, an example and how to fix it, without a cluster; without ROW, list all rows.",
    )
    parser.add_argument("--svg", metavar="FILE", type=pathlib.Path, help="Also write the output as SVG.")
    options.add_output(parser)
    options.add_cluster(parser.add_group("options for the cluster"))


def _parse_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= _MAX_WAIT:
        raise argparse.ArgumentTypeError(f"{text}: give seconds from 0 to {_MAX_WAIT:g}")
    return seconds
