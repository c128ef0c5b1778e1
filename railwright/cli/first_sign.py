"""Shows a first sign of life of slow commands, then imports and runs them, because the imports take long."""

import argparse
import pkgutil
import sys

from railwright.cli import output


def run_check(arguments: argparse.Namespace) -> int:
    """Run `railwright check` and return its exit code."""
    if arguments.explain is None:
        _show("starting")
    return int(pkgutil.resolve_name("railwright.cli.checking.command:run")(arguments))


def run_demo(arguments: argparse.Namespace) -> int:
    """Run `railwright demo` and return its exit code."""
    if not _show("starting"):
        print("railwright demo: starting", file=sys.stderr, flush=True)
    return int(pkgutil.resolve_name("railwright.cli.demo.command:run")(arguments))


def _show(text: str) -> bool:
    """Show the first frame of the spinner that `waiting` continues; False without a terminal."""
    if output.is_animated():
        sys.stdout.write(f"\r⠋ {text}\x1b[K")
        sys.stdout.flush()
    return output.is_animated()
