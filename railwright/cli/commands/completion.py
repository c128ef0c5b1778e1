"""`railwright completion SHELL`: the lines a shell's start-up file sources, so that TAB completes commands and options.

Owns the arguments. What is completed is read off the parsers, each time anew: see `railwright.cli.completion`.
"""

import argparse
import sys

from railwright.cli import output

NAME = "completion"
HELP = "the lines that make TAB complete railwright in bash, zsh or fish"
_SHELLS = ("bash", "zsh", "fish")


def configure(parser: argparse.ArgumentParser) -> None:
    """Which shell."""
    parser.add_argument("shell", choices=_SHELLS, help="whose lines to print")


def run(arguments: argparse.Namespace) -> int:
    """0, always."""
    from railwright.cli.completion import shells  # noqa: PLC0415 - as in all commands

    script = shells.SCRIPTS[arguments.shell]
    if arguments.output == "json":
        output.print_json({"shell": arguments.shell, "script": script})
    else:
        sys.stdout.write(script)
    return output.OK
