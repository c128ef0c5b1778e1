"""Finds the named command, parses its options, and only then imports its function."""

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

from railwright.cli import commands, options, output, programs
from railwright.cluster import errors
from railwright.fabric import version

GROUPS: Mapping[str, Mapping[str, options.Command]] = {
    **commands.GROUPS,
    "Programs that run in the cluster": {
        name: options.Command(summary) for name, (_, summary) in programs.PROGRAMS.items()
    },
}
COMMANDS = dict(sorted((name, command) for group in GROUPS.values() for name, command in group.items()))
_PURPOSE = "Gives distributed training pods the right RDMA network, and gangs the right nodes."
_EPILOG = "`railwright COMMAND --help` has the options of a command and examples."


def run_command(words: Sequence[str]) -> int:
    """Run the command that `words` name and return its exit code. Print a ClusterError as one sentence."""
    try:
        leaf, arguments = build_parser().parse(words)
    except SystemExit as leaving:  # from argparse, after --help or wrong usage
        return leaving.code if isinstance(leaving.code, int) else output.UNUSABLE
    try:
        with output.show_progress("starting"):  # imports take up to half a second
            function = import_function(leaf.command.run)
        return programs.call_command(function, arguments)
    except errors.ClusterError as error:
        output.clear_status()
        output.print_note(error.sentence)
        return output.UNUSABLE


def import_function(run: str) -> Callable[[argparse.Namespace], int]:
    """Import the function that runs a command. `run` names it as MODULE:FUNCTION below `railwright.cli`."""
    module, _, name = run.partition(":")
    function: Callable[[argparse.Namespace], int] = getattr(importlib.import_module(f"railwright.cli.{module}"), name)
    return function


def build_parser() -> options.Parser:
    """Return the parser of `railwright` with all commands."""
    is_plugin = os.path.basename(sys.argv[0]) == "kubectl-railwright"  # noqa: PTH119 - only its name matters
    root = options.Parser(
        command=options.Command(_PURPOSE, metavar="COMMAND", children=COMMANDS),
        prog="kubectl railwright" if is_plugin else "railwright",
        usage="%(prog)s COMMAND [options]",
        description="\n".join([_PURPOSE, *_list_groups()]),
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    root.add_argument("--version", action="version", version=f"railwright {version.VERSION}", help="Show the version.")
    return root


def _list_groups() -> Iterator[str]:
    """Yield the lines of `railwright --help` that list the commands by group."""
    width = max(map(len, COMMANDS))
    for title, members in GROUPS.items():
        yield f"\n{title}:"
        yield from (f"  {name:<{width}}  {command.summary}" for name, command in members.items())
