"""Finds the command that was named, parses its options, and imports only then the module that runs it.

A command is a module of `railwright.cli.commands` with HELP and `configure(parser)`. RUN names its function of the
parsed arguments as MODULE:FUNCTION, EXAMPLES has command lines, and FINDING says when it exits with 1. Each subcommand
names its own. SLOW is True if the imports of a command take long; those of commands with a cluster always do.
"""

import argparse
import importlib
import os
import pkgutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType

from railwright.cli import commands, output, parsers, programs, status_line
from railwright.cluster import errors
from railwright.fabric import version

GROUPS: Mapping[str, Sequence[str]] = {
    "Before you submit a job": ("explain", "lint", "verify"),
    "Jobs and fabrics of a cluster": ("gangs", "fabric", "dashboard"),
    "Installation": ("check", "version", "policy", "certs", "disable", "enable"),
    "Without a cluster": ("demo", "simulate", "completion"),
    "Programs that run in the cluster": ("webhook", "extender", "preflight"),
}
# Options with a value that may precede the command
_LEADING = frozenset({"-n", "--namespace", "--kubeconfig", "--context", "--as", "--as-group", "--request-timeout"})
_PURPOSE = "Gives distributed training pods the right RDMA network, and gangs the right nodes."
_EPILOG = "`railwright COMMAND --help` has the options of a command and examples."


def run(words: Sequence[str]) -> int:
    """Run the command that `words` name and return its exit code. Prints the errors of access to a cluster."""
    words = _move_leading_options(words)
    try:
        leaf, arguments = build_parser(find_modules(words[:1])).parse(words)
    except SystemExit as leaving:  # from argparse, after --help or wrong usage
        return leaving.code if isinstance(leaving.code, int) else output.UNUSABLE
    try:
        if leaf.is_slow or leaf.has_option("--kubeconfig"):
            status_line.show_status("starting")  # the imports take longer than people like to see nothing
            pkgutil.resolve_name(leaf.run)
            status_line.clear_status()
        return programs.call(leaf.run, arguments)
    except errors.ClusterError as error:
        status_line.clear_status()
        print(f"railwright: {output.escape_controls(error.sentence)}", file=sys.stderr)
        return output.UNUSABLE


def _move_leading_options(words: Sequence[str]) -> Sequence[str]:
    """Return the words with options of a connection after the command; kubectl takes them before it too."""
    at = 0
    while at < len(words) and words[at].partition("=")[0] in _LEADING:
        at += 1 if "=" in words[at] else 2
    return [*words[at:], *words[:at]]


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
        description="\n".join([_PURPOSE, *_list_groups(modules)]),
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
        allow_abbrev=False,
    )
    root = parsers.Parser(program)
    root.set_usage("%(prog)s COMMAND [options]")
    root.add_argument("--version", action="version", version=f"railwright {version.VERSION}", help="Show the version.")
    root.add_choice("command", "COMMAND", argparse.SUPPRESS)
    for name, module in modules.items():
        if module is None:
            root.add_command(name, programs.PROGRAMS[name].summary)
            continue
        command = root.add_command(
            name,
            module.HELP,
            run=getattr(module, "RUN", ""),
            examples=getattr(module, "EXAMPLES", ()),
            finding=getattr(module, "FINDING", ""),
        )
        command.is_slow = getattr(module, "SLOW", False)
        module.configure(command)
    return root


def _list_groups(modules: Mapping[str, ModuleType | None]) -> Iterator[str]:
    """Yield the lines of the help that list the commands by group."""
    width = max(map(len, find_names()))
    for title, names in GROUPS.items():
        known = [name for name in names if name in modules]
        yield from [f"\n{title}:"] if known else []
        for name in known:
            module = modules[name]
            yield f"  {name:<{width}}  {programs.PROGRAMS[name].summary if module is None else module.HELP}"
