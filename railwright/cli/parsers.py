"""Builds argument parsers that know their options and subcommands, and that suggest the word that was meant.

argparse has no public way to list options, and completion and the generated pages need the list.
"""

import argparse
import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

Run = Callable[[argparse.Namespace], int]  # runs a command and returns its exit code
Load = Callable[[argparse.Namespace], Run]  # imports what runs a command with these arguments


class Options(Protocol):
    """A parser, or a group of its options."""

    def add_argument(self, *names: str, **settings: Any) -> None:
        """Add an argument, as `argparse.ArgumentParser.add_argument` does."""


def _load_nothing(_arguments: argparse.Namespace) -> Run:
    raise LookupError("a command that has subcommands, or that parses its own options, is not run by its parser")


class Command(NamedTuple):
    """A command of the program, before its options are defined. One with subcommands has no `load`."""

    summary: str
    configure: "Callable[[Parser], None]"
    load: Load | None = None
    examples: Sequence[str] = ()
    finding: str = ""  # when the exit code is 1; "" for a command without findings
    is_slow: bool = False  # its imports take long; those of a command with a cluster always do


class Parser:
    """The parser of a command. A command has either subcommands or options of its own, and then a `load`."""

    def __init__(
        self, parser: argparse.ArgumentParser, load: Load | None = None, examples: Sequence[str] = (), finding: str = ""
    ) -> None:
        """Take an empty `parser` that was created with add_help=False."""
        self.load: Load = load or _load_nothing
        self.examples = examples
        self.finding = finding  # when the exit code is 1; "" for a command without findings
        self.is_slow = False  # its imports take long
        self.is_named = False  # the word of a subcommand is a kind, which NAME may follow after a slash
        self.arguments: list[argparse.Action] = []
        self.groups: dict[str, list[argparse.Action]] = {}  # the arguments by title; "" for those without a group
        self.requirements: list[Callable[[argparse.Namespace], str]] = []  # return what is missing, or ""
        self.children: dict[str, Parser] = {}
        self.summaries: dict[str, str] = {}  # help text of each subcommand
        self._parser = parser
        self._subparsers: Any = None
        self._choice = self._metavar = ""
        self.add_argument("-h", "--help", action="help", help="Show this help.")

    @property
    def name(self) -> str:
        """The words that start this command, such as `railwright verify log`."""
        return self._parser.prog

    def add_argument(self, *names: str, **settings: Any) -> None:
        """Add an argument, as `argparse.ArgumentParser.add_argument` does."""
        self._add("", self._parser, names, settings)

    def add_group(self, title: str) -> Options:
        """Return a group whose arguments are listed under `title` in the help."""
        return _Group(self, title, self._parser.add_argument_group(title))

    def _add(self, title: str, parser: Any, names: Sequence[str], settings: Mapping[str, Any]) -> None:
        argument = parser.add_argument(*names, **settings)
        self.arguments.append(argument)
        self.groups.setdefault(title, []).append(argument)

    def set_usage(self, usage: str) -> None:
        """Replace the usage line that argparse would write."""
        self._parser.usage = usage

    def get_usage(self) -> str:
        """Return the usage, without the word `usage:`."""
        return self._parser.format_usage().removeprefix("usage: ").rstrip()

    def add_choice(self, name: str, metavar: str, text: str | None = None) -> None:
        """Require a subcommand; its name becomes the attribute `name` of the arguments."""
        self._choice, self._metavar = name, metavar
        self._subparsers = self._parser.add_subparsers(
            prog=self._parser.prog, dest=name, metavar=metavar, required=True, help=text
        )

    @property
    def description(self) -> str:
        """The command's effect in a sentence."""
        return self._parser.description or ""

    def list_exit_codes(self) -> Sequence[tuple[int, str]]:
        """Return the exit codes of a command and their meanings."""
        findings = [(1, self.finding)] if self.finding else []
        return [(0, "success"), *findings, (2, "wrong usage, or input or a cluster that cannot be used")]

    def add_command(
        self, name: str, summary: str, *, load: Load | None = None, examples: Sequence[str] = (), finding: str = ""
    ) -> "Parser":
        """Add a subcommand after `add_choice`."""
        parser = self._subparsers.add_parser(
            name,
            help=summary,
            description=summary,
            add_help=False,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter if examples else argparse.HelpFormatter,
        )
        child = Parser(parser, load, examples, finding)
        parser.epilog = child.format_epilog()
        self.children[name], self.summaries[name] = child, summary
        return child

    def format_epilog(self) -> str | None:
        """Return the end of the help: examples and exit codes; None for a command with subcommands."""
        if not self.examples:
            return None
        codes = [f"  {code}  {meaning}" for code, meaning in self.list_exit_codes()]
        return "\n".join(["examples:", *(f"  {line}" for line in self.examples), "", "exit codes:", *codes])

    def has_option(self, name: str) -> bool:
        """True if the command itself has this option."""
        return any(name in argument.option_strings for argument in self.arguments)

    def get_leaves(self) -> "list[Parser]":
        """Return the parsers without subcommands: this one, or those below it."""
        if not self.children:
            return [self]
        return [leaf for child in self.children.values() for leaf in child.get_leaves()]

    def parse(self, words: Sequence[str]) -> "tuple[Parser, argparse.Namespace]":
        """Return the parser of the subcommand that `words` name, and its arguments. Options may stand anywhere.

        Raises SystemExit after --help and for wrong usage, which it prints with the usage of that subcommand.
        """
        if not self.children:
            return self, self._parse_options(words)
        word, slash, name = words[0].partition("/") if words else ("", "", "")
        if slash and word in self.children and self.children[word].is_named:
            return self.parse([word, name, *words[1:]])  # as kubectl writes it: job/NAME
        if words and words[0] in self.children:
            leaf, arguments = self.children[words[0]].parse(words[1:])
            setattr(arguments, self._choice, words[0])
            return leaf, arguments
        if words and not words[0].startswith("-"):
            fix = suggest(words[0], self.children) or f"; {self.name} --help lists all"
            self._parser.error(f"unknown command {words[0]}{fix}")
        if not words:
            self._parser.error(f"the following arguments are required: {self._metavar}; {self.name} --help lists all")
        if self.has_option(words[0]):
            self._parser.parse_args(words[:1])  # prints help or a version, and exits
        if fix := suggest(words[0], self._list_options()):
            self._parser.error(f"unknown option {words[0]}{fix}")
        return self._parser.error(f"give options after the command: {self.name} {self._metavar} {words[0]}")

    def _list_options(self) -> list[str]:
        return [name for argument in self.arguments for name in argument.option_strings]

    def _parse_options(self, words: Sequence[str]) -> argparse.Namespace:
        arguments, unknown = self._parser.parse_known_intermixed_args(words)
        if unknown:
            word = next((word for word in unknown if word.startswith("-")), unknown[0]).partition("=")[0]
            kind = "unknown option" if word.startswith("-") else "unexpected argument"
            self._parser.error(f"{kind} {word}{suggest(word, self._list_options()) if word.startswith('--') else ''}")
        for find_problem in self.requirements:
            if problem := find_problem(arguments):
                self._parser.error(problem)
        return arguments


def suggest(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean X?` with the closest known word, "" if none is close."""
    matches = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {matches[0]}?" if matches else ""


class _Group:
    def __init__(self, owner: Parser, title: str, group: Any) -> None:
        self._owner, self._title, self._group = owner, title, group

    def add_argument(self, *names: str, **settings: Any) -> None:
        self._owner._add(self._title, self._group, names, settings)  # noqa: SLF001 - a part of the parser
