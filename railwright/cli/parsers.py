"""Builds argument parsers that know their options and subcommands.

argparse has no public way to list them, and completion needs the list.
"""

import argparse
from collections.abc import Sequence
from typing import Any, Protocol


class Options(Protocol):
    """A parser, or a group of its options."""

    def add_argument(self, *names: str, **settings: Any) -> None:
        """Add an argument, as `argparse.ArgumentParser.add_argument` does."""


class Parser:
    """The parser of a command. A command has either subcommands or options of its own.

    `run` names the function that runs the command, as MODULE:FUNCTION; "" for a command with subcommands.
    """

    def __init__(self, parser: argparse.ArgumentParser, run: str = "") -> None:
        """Take an empty `parser` that was created with add_help=False."""
        self.run = run
        self.arguments: list[argparse.Action] = []
        self.children: dict[str, Parser] = {}
        self.summaries: dict[str, str] = {}  # help text of each subcommand
        self._parser = parser
        self._subparsers: Any = None
        self._choice = ""
        self.add_argument("-h", "--help", action="help", help="show this help message and exit")

    def add_argument(self, *names: str, **settings: Any) -> None:
        """Add an argument, as `argparse.ArgumentParser.add_argument` does."""
        self.arguments.append(self._parser.add_argument(*names, **settings))

    def add_group(self, title: str) -> Options:
        """Return a group whose arguments are listed under `title` in the help."""
        return _Group(self, self._parser.add_argument_group(title))

    def set_usage(self, usage: str) -> None:
        """Replace the usage line that argparse would write."""
        self._parser.usage = usage

    def add_choice(self, name: str, metavar: str) -> None:
        """Require a subcommand; its name becomes the attribute `name` of the arguments."""
        self._choice = name
        self._subparsers = self._parser.add_subparsers(dest=name, metavar=metavar, required=True)

    def add_command(
        self, name: str, summary: str, *, run: str = "", description: str | None = None, example: str = ""
    ) -> "Parser":
        """Add a subcommand after `add_choice`."""
        epilog = f"example: {example}" if example else None
        parser = self._subparsers.add_parser(name, help=summary, description=description, epilog=epilog, add_help=False)
        child = Parser(parser, run)
        self.children[name], self.summaries[name] = child, summary
        return child

    def has_option(self, name: str) -> bool:
        """True if the command itself has this option."""
        return any(name in argument.option_strings for argument in self.arguments)

    def get_leaves(self) -> "list[Parser]":
        """Return the parsers that have a `run`: this one, or those of its subcommands."""
        if not self.children:
            return [self]
        return [leaf for child in self.children.values() for leaf in child.get_leaves()]

    def parse(self, words: Sequence[str]) -> "tuple[Parser, argparse.Namespace]":
        """Return the parser of the subcommand that `words` name, and its arguments. Options may stand anywhere.

        Raises SystemExit after --help and for wrong usage, which it prints with the usage of that subcommand.
        """
        if not self.children:
            return self, self._parser.parse_intermixed_args(words)
        if not words or words[0] not in self.children:
            self._parser.parse_args(words)  # prints help, a version or the wrong usage, and exits
            self._parser.error(f"options before the name of a command are not supported: {words[0]}")
        leaf, arguments = self.children[words[0]].parse(words[1:])
        setattr(arguments, self._choice, words[0])
        return leaf, arguments


class _Group:
    def __init__(self, owner: Parser, group: Any) -> None:
        self._owner, self._group = owner, group

    def add_argument(self, *names: str, **settings: Any) -> None:
        self._owner.arguments.append(self._group.add_argument(*names, **settings))


def add_kubeconfig(parser: Options) -> None:
    """Add --kubeconfig."""
    parser.add_argument(
        "--kubeconfig", metavar="FILE", default="", help="kubeconfig of the cluster (default: as for kubectl)"
    )


def add_context(parser: Options) -> None:
    """Add --context."""
    parser.add_argument("--context", metavar="NAME", default=None, help="context of the kubeconfig")


def add_cluster_view(parser: Options) -> None:
    """Add the options of commands that show a cluster, or files instead of it."""
    add_kubeconfig(parser)
    add_context(parser)
    parser.add_argument("--snapshot", metavar="FILE", default="", help="read objects from a file instead of a cluster")
    parser.add_argument(
        "--policy", metavar="FILE", default="", help="read the policy from a file (default: from the cluster)"
    )
    parser.add_argument(
        "-o",
        "--output",
        choices=("text", "wide", "json", "yaml"),
        default="text",
        help="output format; wide shows all columns",
    )
