"""Builds argument parsers, and defines the options that several commands share.

The parsers list their options and subcommands, for completion, generated pages and suggestions, because argparse has no
public function for that. The shared options have the same names, values and help as kubectl's. Imports the standard
library only, because completion and --help must not wait for libraries.
"""

import argparse
import difflib
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from railwright.cli import output

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d{1,10}(?:\.\d{1,3})?)(ms|[smhd])?", re.ASCII)
_LONGEST = 36500 * 86400.0  # seconds of a hundred years
MANIFESTS = (".yaml", ".yml", ".json")  # as kubectl -f selects files of a folder
_STDIN = "-"


# --- parsers -----------------------------------------------------------------------------------------------


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
    """A command: with subcommands, one of which is required, or with its own options, which `configure` adds."""

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
            kinds = [kind for kind, child in self.children.items() if child.command.is_kind]
            if name and kinds and word.isalpha():
                known = f"{', '.join(kinds[:-1])} and {kinds[-1]}"
                self.argparser.error(f"the kinds are {known}, not {word}; give {kinds[0]}/{name} for a job of any kind")
            fix = suggest(words[0], self.children) or f"; {self.name} --help lists all"
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
        return arguments


def suggest(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean X?` with the closest known word, "" if none is close."""
    names = {name.lstrip("-"): name for name in known}  # dashes make any two options alike
    matches = difflib.get_close_matches(word.lstrip("-"), names, n=1)
    return f"; did you mean {names[matches[0]]}?" if matches else ""


# --- which cluster, which objects -------------------------------------------------------------------------


class ClusterOptions(NamedTuple):
    """The cluster and account options of a command; "", None and () for options that were not given."""

    kubeconfig: str = ""
    context: str | None = None
    user: str = ""  # to impersonate
    groups: tuple[str, ...] = ()
    timeout: float | None = None  # seconds for one request; 0 for no limit

    @property
    def is_given(self) -> bool:
        """True if any option selects a cluster or an account."""
        return bool(self.kubeconfig or self.context or self.user or self.groups)


def add_cluster(parser: Parser) -> None:
    """Add the options of a connection to a cluster; `get_cluster` returns their values."""
    group = parser.add_group("options for the cluster")
    group.add_value("--kubeconfig FILE", "Kubeconfig of the cluster (default: as for kubectl).")
    group.add_value("--context NAME", "Context of the kubeconfig.", default=None)
    group.add_value("--as USER", "Act as this user, with the right to impersonate.", dest="as_user")
    group.add_value("--as-group GROUP", "Act as this group too; repeatable.", action="append", default=[])
    group.add_value(
        "--request-timeout TIME",
        "Longest time for one request to the API server, such as 5s, 2m or 0 for no limit (default: 30s).",
        type=parse_seconds,
        default=None,
    )


def get_cluster(arguments: argparse.Namespace) -> ClusterOptions:
    """Return the values of the options of `add_cluster`."""
    return ClusterOptions(
        arguments.kubeconfig,
        arguments.context,
        arguments.as_user,
        tuple(arguments.as_group),
        arguments.request_timeout,
    )


def add_namespace(parser: Options, text: str, default: str = "") -> None:
    """Add -n, with its help text."""
    parser.add_value("-n, --namespace NAME", text, default=default)


def add_policy(parser: Options) -> None:
    """Add --policy."""
    parser.add_value("--policy FILE", "Policy or its ConfigMap, from a file (default: the policy of the cluster).")


class Sources(NamedTuple):
    """The sources of objects and policy, as given by options; "" for options that were not given."""

    cluster: ClusterOptions = ClusterOptions()
    snapshot: str = ""
    policy: str = ""


def add_sources(parser: Parser) -> None:
    """Add --snapshot, --policy and the options for the cluster; `get_sources` returns their values."""
    parser.add_value("--snapshot FILE", "Read objects from a file instead of a cluster; needs --policy.")
    add_policy(parser)
    add_cluster(parser)


def get_sources(arguments: argparse.Namespace) -> Sources:
    """Return the sources that the options of a command name. Raise UnreadableError if they exclude each other."""
    cluster = get_cluster(arguments)
    if arguments.snapshot and not arguments.policy:
        raise output.UnreadableError("--snapshot: the policy must come from a file too; add --policy FILE")
    if arguments.snapshot and cluster.is_given:
        raise output.UnreadableError(
            "--snapshot excludes --kubeconfig, --context, --as and --as-group; remove --snapshot or the others"
        )
    return Sources(cluster, arguments.snapshot, arguments.policy)


def add_files(parser: Parser, text: str) -> None:
    """Add FILE, -f and -R. `find_files` returns the files that they name."""
    parser.add_argument("files", metavar="FILE", nargs="*", help=f"{text} A folder, or - for standard input.")
    add_filenames(parser)


def add_filename(parser: Options) -> None:
    """Add -f."""
    parser.add_value("-f, --filename FILE", "The same as FILE; repeatable.", action="append", default=[])


def add_filenames(parser: Options) -> None:
    """Add -f and -R."""
    add_filename(parser)
    parser.add_flag("-R, --recursive", "Search the folders in a folder too.")


def list_paths(arguments: argparse.Namespace) -> list[str]:
    """Return the paths that FILE and -f name. Raise UnreadableError without any, and if standard input comes twice."""
    paths = [*arguments.files, *arguments.filename]
    if not paths:
        raise output.UnreadableError("give FILE, or - for standard input; --help has all forms of the command")
    if paths.count(_STDIN) > 1:
        raise output.UnreadableError("- (standard input) can be read only once")
    return paths


def find_files(arguments: argparse.Namespace, endings: Sequence[str] = MANIFESTS) -> list[str]:
    """Return the files that FILE and -f name; of a folder those with these endings, sorted. `-` is standard input.

    Raises UnreadableError as `list_paths`, and for a folder without any.
    """
    files = [
        path
        for name in list_paths(arguments)
        for path in (_search(name, endings, is_recursive=arguments.recursive) if os.path.isdir(name) else [name])  # noqa: PTH112 - pathlib would change the path in messages
    ]
    return list(dict.fromkeys(files))


def _search(folder: str, endings: Sequence[str], *, is_recursive: bool) -> list[str]:
    files: list[str] = []
    for place, folders, names in os.walk(folder):
        files += [os.path.join(place, name) for name in sorted(names) if name.endswith(tuple(endings))]  # noqa: PTH118 - see above
        if not is_recursive:
            break
        folders.sort()
    if not files:
        named = ", ".join(f"*{ending}" for ending in endings)
        deeper = "" if is_recursive else "; -R searches the folders in it too"
        raise output.UnreadableError(f"{folder}: this folder contains no file named {named}{deeper}")
    return files


# --- what is printed --------------------------------------------------------------------------------------


def add_output(parser: Options, *more: str) -> None:
    """Add -o with `text`, the formats `more`, and the documents, which `formats` prints."""
    note = ": wide prints all columns" if output.WIDE in more else ""
    forms = (output.TEXT, *more, output.JSON, output.YAML)
    parser.add_argument(
        "-o", "--output", choices=forms, default=output.TEXT, help=f"Output format{note} (default: text)."
    )


def parse_seconds(text: str) -> float:
    """Return the seconds of a time such as 500ms, 10s, 2m, 12h, 30d or 5. Raise ArgumentTypeError."""
    match = _DURATION.fullmatch(text)
    seconds = float(match[1]) * _UNITS[match[2] or "s"] if match else _LONGEST + 1
    if seconds > _LONGEST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time up to a hundred years; write 10s, 2m, 12h or 30d")
    return seconds
