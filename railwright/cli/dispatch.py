"""Lists the commands, finds the one that was named, parses its options, and imports only then what runs it."""

import argparse
import contextlib
import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence

from railwright.cli import output, parsers, programs
from railwright.cli.commands import certs, clusters, installation, jobs, offline
from railwright.cluster import errors
from railwright.fabric import version

GROUPS: Mapping[str, Mapping[str, parsers.Command | programs.Program]] = {
    "Before you submit a job": {"explain": jobs.EXPLAIN, "lint": jobs.LINT, "verify": jobs.VERIFY},
    "Jobs and fabrics of a cluster": {
        "gangs": clusters.GANGS,
        "fabric": clusters.FABRIC,
        "dashboard": clusters.DASHBOARD,
    },
    "Installation": {
        "check": installation.CHECK,
        "version": installation.VERSION,
        "policy": installation.POLICY,
        "certs": certs.CERTS,
        "disable": installation.DISABLE,
        "enable": installation.ENABLE,
    },
    "Without a cluster": {"demo": offline.DEMO, "simulate": offline.SIMULATE, "completion": offline.COMPLETION},
    "Programs that run in the cluster": {
        name: programs.PROGRAMS[name] for name in ("webhook", "extender", "preflight")
    },
}
COMMANDS = dict(sorted((name, command) for group in GROUPS.values() for name, command in group.items()))
# Options with a value that may precede the command
_LEADING = frozenset({"-n", "--namespace", "--kubeconfig", "--context", "--as", "--as-group", "--request-timeout"})
_PURPOSE = "Gives distributed training pods the right RDMA network, and gangs the right nodes."
_EPILOG = "`railwright COMMAND --help` has the options of a command and examples."


def run(words: Sequence[str]) -> int:
    """Run the command that `words` name and return its exit code. Prints the errors of access to a cluster."""
    words = _move_leading_options(words)
    try:
        leaf, arguments = build_parser(words[:1]).parse(words)
    except SystemExit as leaving:  # from argparse, after --help or wrong usage
        return leaving.code if isinstance(leaving.code, int) else output.UNUSABLE
    try:
        is_slow = leaf.is_slow or leaf.has_option("--kubeconfig")  # the imports take longer than people like to wait
        with output.show_progress("starting") if is_slow else contextlib.nullcontext():
            function = leaf.load(arguments)
        return programs.call(function, arguments)
    except errors.ClusterError as error:
        output.clear_status()
        print(f"railwright: {output.escape_controls(error.sentence)}", file=sys.stderr)
        return output.UNUSABLE


def _move_leading_options(words: Sequence[str]) -> Sequence[str]:
    """Return the words with options of a connection after the command; kubectl takes them before it too."""
    at = 0
    while at < len(words) and words[at].partition("=")[0] in _LEADING:
        at += 1 if "=" in words[at] else 2
    return [*words[at:], *words[:at]]


def build_parser(words: Collection[str] = ()) -> parsers.Parser:
    """Return the parser of the program with the commands that `words` name; with all commands if they name none."""
    commands = {name: command for name, command in COMMANDS.items() if name in words} or COMMANDS
    is_plugin = os.path.basename(sys.argv[0]) == "kubectl-railwright"  # noqa: PTH119 - only its name matters
    program = argparse.ArgumentParser(
        prog="kubectl railwright" if is_plugin else "railwright",
        description="\n".join([_PURPOSE, *_list_groups(commands)]),
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
        allow_abbrev=False,
    )
    root = parsers.Parser(program)
    root.set_usage("%(prog)s COMMAND [options]")
    root.add_argument("--version", action="version", version=f"railwright {version.VERSION}", help="Show the version.")
    root.add_choice("command", "COMMAND", argparse.SUPPRESS)
    for name, command in commands.items():
        if isinstance(command, programs.Program):
            root.add_command(name, command.summary)
            continue
        parser = root.add_command(
            name, command.summary, load=command.load, examples=command.examples, finding=command.finding
        )
        parser.is_slow = command.is_slow
        command.configure(parser)
    return root


def _list_groups(names: Collection[str]) -> Iterator[str]:
    """Yield the lines of the help that list the commands by group."""
    width = max(map(len, COMMANDS))
    for title, commands in GROUPS.items():
        lines = [f"  {name:<{width}}  {command.summary}" for name, command in commands.items() if name in names]
        yield from [f"\n{title}:", *lines] if lines else []
