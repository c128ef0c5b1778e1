"""`railwright completion SHELL`: prints a script that a shell's start-up file sources for TAB completion.

The completions come from the argument parsers at run time: see `railwright.cli.completion`.
"""

import argparse
import sys

from railwright.cli import output

NAME = "completion"
HELP = "print the script for TAB completion in bash, zsh or fish"
_SHELLS = ("bash", "zsh", "fish")


def configure(parser: argparse.ArgumentParser) -> None:
    """Define the options of this command."""
    parser.add_argument("shell", choices=_SHELLS, help="shell to print the script for")


def run(arguments: argparse.Namespace) -> int:
    """Print the script and return 0."""
    from railwright.cli.completion import shells  # noqa: PLC0415 - as in all commands

    script = shells.SCRIPTS[arguments.shell]
    if arguments.output == "json":
        output.print_json({"shell": arguments.shell, "script": script})
    else:
        sys.stdout.write(script)
    return output.OK
