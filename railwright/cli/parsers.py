"""Builds argument parsers that know their options and subcommands, and that suggest the word that was meant.

argparse has no public way to list options, and completion and the generated pages need the list.
"""

import argparse
import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple


class Options:
    """The options of a parser, or of a group in its help; `arguments` has those of all groups."""

    def __init__(self, arguments: list[argparse.Action], parser: Any) -> None:
        self.arguments = arguments
        self._add_argument: Callable[..., argparse.Action] = parser.add_argument

    def add_argument(self, *names: str, **settings: Any) -> None:
        """Add an argument, as `argparse.ArgumentParser.add_argument` does."""
        self.arguments.append(self._add_argument(*names, **settings))

    def add_value(self, usage: str, text: str, *, default: Any = "", **settings: Any) -> None:
        """Add an option with a value by its usage, such as `-n, --namespace NAME`, and its help text."""
        names, _, metavar = usage.rpartition(" ")
        self.add_argument(*names.split(", "), metavar=metavar, help=text, default=default, **settings)

    def add_flag(self, usage: str, text: str) -> None:
        """Add an option without a value by its usage, such as `-v, --verbose`, and its help text."""
        self.add_argument(*usage.split(", "), action="store_true", help=text)


class Command(NamedTuple):
    """A command: with subcommands, of which one is required, or with options of its own, which `configure` adds."""

    summary: str
    configure: "Callable[[Parser], None] | None" = None
    run: str = ""  # MODULE:FUNCTION below railwright.cli
    examples: Sequence[str] = ()
    finding: str = ""  # when the exit code is 1; "" for a command without findings
    is_slow: bool = False  # its imports take long; those of a command with a cluster always do
    is_kind: bool = False  # its name is a kind, which NAME may follow after a slash
    metavar: str = ""  # of the word that selects a subcommand; in lower case, the attribute of the arguments
    children: "Mapping[str, Command] | None" = None

    def list_exit_codes(self) -> Sequence[tuple[int, str]]:
        """Return the exit codes of a command and their meanings."""
        findings = [(1, self.finding)] if self.finding else []
        return [(0, "success"), *findings, (2, "wrong usage, or input or a cluster that cannot be used")]

    def format_epilog(self) -> str | None:
        """Return the end of the help: examples and exit codes; None for a command with subcommands."""
        if not self.examples:
            return None
        codes = [f"  {code}  {meaning}" for code, meaning in self.list_exit_codes()]
        return "\n".join(["examples:", *(f"  {line}" for line in self.examples), "", "exit codes:", *codes])


class Parser(Options):
    """The parser of a command, and those of its subcommands."""

    def __init__(self, parser: argparse.ArgumentParser, command: Command, path: tuple[str, ...] = ()) -> None:
        """Take an empty `parser` that was created with add_help=False. `path` has the words that name the command."""
        super().__init__([], parser)
        self.command, self.path = command, path
        self.requirements: list[Callable[[argparse.Namespace], str]] = []  # return what is missing, or ""
        self.children: dict[str, Parser] = {}
        self.argparser = parser
        self.add_argument("-h", "--help", action="help", help="Show this help.")
        if command.configure is not None:
            command.configure(self)
        if command.children:
            self._add_children(command.metavar, command.children)

    def _add_children(self, metavar: str, children: Mapping[str, Command]) -> None:
        help_of_choice = None if self.path else argparse.SUPPRESS  # the description of the program lists its commands
        subparsers = self.argparser.add_subparsers(
            prog=self.name, dest=metavar.lower(), metavar=metavar, required=True, help=help_of_choice
        )
        for name, child in children.items():
            parser = subparsers.add_parser(
                name,
                help=child.summary,
                description=child.summary,
                epilog=child.format_epilog(),
                add_help=False,
                allow_abbrev=False,
                formatter_class=argparse.RawDescriptionHelpFormatter if child.examples else argparse.HelpFormatter,
            )
            self.children[name] = Parser(parser, child, (*self.path, name))

    @property
    def name(self) -> str:
        """The words that start this command, such as `railwright verify log`."""
        return self.argparser.prog

    def add_group(self, title: str) -> Options:
        """Return a group whose arguments are listed under `title` in the help."""
        return Options(self.arguments, self.argparser.add_argument_group(title))

    def set_usage(self, usage: str) -> None:
        """Replace the usage line that argparse would write."""
        self.argparser.usage = usage

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
        metavar = self.command.metavar
        word, slash, name = words[0].partition("/") if words else ("", "", "")
        if slash and word in self.children and self.children[word].command.is_kind:
            return self.parse([word, name, *words[1:]])  # as kubectl writes it: job/NAME
        if words and words[0] in self.children:
            leaf, arguments = self.children[words[0]].parse(words[1:])
            setattr(arguments, metavar.lower(), words[0])
            return leaf, arguments
        if words and not words[0].startswith("-"):
            fix = suggest(words[0], self.children) or f"; {self.name} --help lists all"
            forms = [f"{kind}/{name}" for kind, child in self.children.items() if child.command.is_kind]
            if slash and forms:
                fix = f"; give {' or '.join(forms)}: a job of any kind is {forms[0]}"
            self.argparser.error(f"unknown command {words[0]}{fix}")
        if not words:
            self.argparser.error(f"the following arguments are required: {metavar}; {self.name} --help lists all")
        if self.has_option(words[0]):
            self.argparser.parse_args(words[:1])  # prints help or a version, and exits
        if fix := suggest(words[0], self._list_options()):
            self.argparser.error(f"unknown option {words[0]}{fix}")
        return self.argparser.error(f"give options after the command: {self.name} {metavar} {words[0]}")

    def _list_options(self) -> list[str]:
        return [name for argument in self.arguments for name in argument.option_strings]

    def _parse_options(self, words: Sequence[str]) -> argparse.Namespace:
        arguments, unknown = self.argparser.parse_known_intermixed_args(words)
        if unknown:
            word = next((word for word in unknown if word.startswith("-")), unknown[0]).partition("=")[0]
            kind = "unknown option" if word.startswith("-") else "unexpected argument"
            self.argparser.error(f"{kind} {word}{suggest(word, self._list_options()) if word.startswith('--') else ''}")
        for find_problem in self.requirements:
            if problem := find_problem(arguments):
                self.argparser.error(problem)
        return arguments


def suggest(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean X?` with the closest known word, "" if none is close."""
    names = {name.lstrip("-"): name for name in known}  # dashes make any two options alike
    matches = difflib.get_close_matches(word.lstrip("-"), names, n=1)
    return f"; did you mean {names[matches[0]]}?" if matches else ""
