"""Finds the command that was named, parses its options, and imports only then the module that runs it.

A command is a module of `railwright.cli.commands` with HELP, EXAMPLE and `configure(parser)`. RUN names its function of
the parsed arguments as MODULE:FUNCTION; a command with subcommands has none, each subcommand names its own.
"""

import argparse
import importlib
import os
import pkgutil
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType

from railwright.cli import commands, output, parsers, programs
from railwright.cluster import errors
from railwright.fabric import version


def run(words: Sequence[str]) -> int:
    """Run the command that `words` name and return its exit code. Prints the errors of access to a cluster."""
    try:
        leaf, arguments = build_parser(find_modules(words[:1])).parse(words)
    except SystemExit as leaving:  # from argparse, after --help or wrong usage
        return leaving.code if isinstance(leaving.code, int) else output.UNUSABLE
    try:
        return int(pkgutil.resolve_name(leaf.run)(arguments))
    except errors.ClusterError as error:
        print(f"railwright: {output.visible(error.sentence)}", file=sys.stderr)
        return output.UNUSABLE


def find_names() -> list[str]:
    """Return the names of all commands, sorted."""
    return sorted([*programs.PROGRAMS, *(module.name for module in pkgutil.iter_modules(commands.__path__))])


def find_modules(words: Sequence[str] = ()) -> Mapping[str, ModuleType | None]:
    """Return the modules of all commands by name, or only of the command that the first word names.

    None for a command that parses its own options.
    """
    names = find_names()
    return {name: _import(name) for name in ([words[0]] if words and words[0] in names else names)}


def _import(name: str) -> ModuleType | None:
    return None if name in programs.PROGRAMS else importlib.import_module(f"{commands.__name__}.{name}")


def build_parser(modules: Mapping[str, ModuleType | None]) -> parsers.Parser:
    """Return the parser of the program with these commands."""
    is_plugin = os.path.basename(sys.argv[0]) == "kubectl-railwright"  # noqa: PTH119 - only its name matters
    program = argparse.ArgumentParser(
        prog="kubectl railwright" if is_plugin else "railwright",
        description="Gives distributed training pods the right RDMA network, and gangs the right nodes.",
        add_help=False,
    )
    root = parsers.Parser(program)
    root.add_argument("--version", action="version", version=f"railwright {version.VERSION}")
    root.add_choice("command", "COMMAND")
    for name, module in modules.items():
        if module is None:
            root.add_command(name, programs.PROGRAMS[name].summary)
            continue
        command = root.add_command(
            name, module.HELP, run=getattr(module, "RUN", ""), description=module.HELP, example=module.EXAMPLE
        )
        module.configure(command)
        _add_output_options(command)
    return root


def _add_output_options(command: parsers.Parser) -> None:
    for leaf in command.get_leaves():
        if not leaf.has_option("-o"):
            leaf.add_argument("-o", "--output", choices=["text", "json"], default="text", help="output format")
