"""Shows a first sign of life, then imports and runs `railwright check`: its imports take longer than that may take."""

import argparse
import pkgutil
import sys

from railwright.cli import output


def run(arguments: argparse.Namespace) -> int:
    """Return the exit code of `railwright.cli.checking.command`."""
    if arguments.explain is None and output.is_animated():
        sys.stdout.write("\r⠋ starting\x1b[K")  # the spinner of `printing` takes its place
        sys.stdout.flush()
    return int(pkgutil.resolve_name("railwright.cli.checking.command:run")(arguments))
