"""Builds argument parsers, and defines the options that several commands share.

The shared options have the same names, values and help as kubectl's. Imports the standard library only, because
completion and --help must not wait for libraries.
"""

import argparse
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from railwright.cli import output

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d{1,10}(?:\.\d{1,3})?)(ms|[smhd])?", re.ASCII)
_LONGEST = 36500 * 86400.0  # seconds of a hundred years
_MANIFESTS = (".yaml", ".yml", ".json")  # as kubectl -f selects files of a folder
_STDIN = "-"
_INFORMING = ("-h", "--help", "--version")  # options that may stand before the command


# --- parsers -----------------------------------------------------------------------------------------------


class Option(NamedTuple):
    """An option or argument of a command: names and settings of `argparse`, and its group in the help."""

    names: Sequence[str]
    settings: Mapping[str, Any]
    group: str = ""


class Command(NamedTuple):
    """A command. It has options, or subcommands, one of which is required."""

    summary: str
    options: "Sequence[Option]" = ()
    usage: str | None = None  # None: as argparse writes it
    run: str = ""  # MODULE:FUNCTION below railwright.cli
    examples: Sequence[str] = ()
    finding: str = ""  # when the exit code is 1; "" for a command without findings
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


class Parser(argparse.ArgumentParser):
    """The parser of a command, and those of its subcommands."""

    def __init__(self, *, command: Command, **settings: Any) -> None:
        """`settings` are those of `argparse.ArgumentParser`; a description replaces the list of subcommands."""
        formatter = argparse.RawDescriptionHelpFormatter if command.examples else argparse.HelpFormatter
        own = {
            "usage": command.usage,
            "description": command.summary,
            "epilog": command.format_epilog(),
            "formatter_class": formatter,
        }
        super().__init__(add_help=False, allow_abbrev=False, **(own | settings))
        self.command = command
        self.children: dict[str, Parser] = {}
        self.add_argument("-h", "--help", action="help", help="Show this help.")
        adders: dict[str, Callable[..., argparse.Action]] = {"": self.add_argument}  # by the group in the help
        for option in command.options:
            if option.group not in adders:
                adders[option.group] = self.add_argument_group(option.group).add_argument
            adders[option.group](*option.names, **option.settings)
        if command.children:
            metavar, text = command.metavar, argparse.SUPPRESS if "description" in settings else None
            subparsers = self.add_subparsers(
                prog=self.prog, dest=metavar.lower(), metavar=metavar, required=True, help=text
            )
            for name, child in command.children.items():
                self.children[name] = subparsers.add_parser(name, command=child, help=child.summary)

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
            return self, self.parse_intermixed_args(words)
        if words and words[0] in self.children:
            leaf, arguments = self.children[words[0]].parse(words[1:])
            setattr(arguments, self.command.metavar.lower(), words[0])
            return leaf, arguments
        if words and (not words[0].startswith("-") or words[0] in _INFORMING):
            self.parse_args(words)  # prints help, the version, or which words are known
        return self.error(f"{self.command.metavar} must come first: one of {', '.join(self.children)}")


def build_option(usage: str, text: str, *, default: Any = "", group: str = "", **settings: Any) -> Option:
    """Return an option with a value by its usage, such as `-n, --namespace NAME`, and its help text."""
    names, _, metavar = usage.rpartition(" ")
    return Option(names.split(", "), {"metavar": metavar, "help": text, "default": default, **settings}, group)


def build_flag(usage: str, text: str) -> Option:
    """Return an option without a value by its usage, such as `-v, --verbose`, and its help text."""
    return Option(usage.split(", "), {"action": "store_true", "help": text})


# --- times ------------------------------------------------------------------------------------------------


def parse_seconds(text: str) -> float:
    """Return the seconds of a time such as 500ms, 10s, 2m, 12h, 30d or 5. Raise ArgumentTypeError."""
    match = _DURATION.fullmatch(text)
    seconds = float(match[1]) * _UNITS[match[2] or "s"] if match else _LONGEST + 1
    if seconds > _LONGEST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time up to a hundred years; write 10s, 2m, 12h or 30d")
    return seconds


# --- which cluster, which objects -------------------------------------------------------------------------


_CLUSTER = "options for the cluster"
CLUSTER = (  # `cluster_access` connects to the cluster that they select
    build_option("--kubeconfig FILE", "Kubeconfig of the cluster (default: as for kubectl).", group=_CLUSTER),
    build_option("--context NAME", "Context of the kubeconfig.", default=None, group=_CLUSTER),
    build_option(
        "--as USER",
        "Act as this user, as kubectl does; needs the right to impersonate.",
        dest="as_user",
        group=_CLUSTER,
    ),
    build_option("--as-group GROUP", "Act as this group too; repeatable.", action="append", default=[], group=_CLUSTER),
    build_option(
        "--request-timeout TIME",
        "Longest time for one request to the API server, such as 5s, 2m or 0 for no limit (default: 30s).",
        type=parse_seconds,
        default=None,
        group=_CLUSTER,
    ),
)
POLICY = build_option("--policy FILE", "Policy or its ConfigMap, from a file (default: the policy of the cluster).")
SOURCES = (  # `check_sources` checks their values
    build_option("--snapshot FILE", "Read objects from a file instead of a cluster; needs --policy."),
    POLICY,
    *CLUSTER,
)
FILENAMES = (
    build_option("-f, --filename FILE", "The same as FILE; repeatable.", action="append", default=[]),
    build_flag("-R, --recursive", "Search the folders in a folder too."),
)


def build_namespace_option(text: str) -> Option:
    """Return -n, with its help text."""
    return build_option("-n, --namespace NAME", text)


def build_file_argument(text: str) -> Option:
    """Return the argument FILE, which may be repeated, with its help text."""
    return Option(["files"], {"metavar": "FILE", "nargs": "*", "help": text})


def build_output_option(*more: str) -> Option:
    """Return -o with the formats text, `more`, json and yaml."""
    note = ": wide prints all columns and rows" if output.WIDE in more else ""
    forms = (output.TEXT, *more, output.JSON, output.YAML)
    settings = {"choices": forms, "default": output.TEXT, "help": f"Output format{note} (default: text)."}
    return Option(["-o", "--output"], settings)


# --- what the options name --------------------------------------------------------------------------------


def selects_cluster(arguments: argparse.Namespace) -> bool:
    """Return True if an option of `CLUSTER` selects a cluster or an account."""
    return bool(arguments.kubeconfig or arguments.context or arguments.as_user or arguments.as_group)


def check_sources(arguments: argparse.Namespace) -> None:
    """Raise UnreadableError if the options of `SOURCES` exclude each other."""
    if arguments.snapshot and not arguments.policy:
        raise output.UnreadableError("--snapshot: the policy must come from a file too; add --policy FILE")
    if arguments.snapshot and selects_cluster(arguments):
        raise output.UnreadableError(
            "--snapshot excludes --kubeconfig, --context, --as and --as-group; remove --snapshot or the others"
        )


def check_paths(paths: Sequence[str]) -> None:
    """Raise UnreadableError if there is no path, or if standard input comes twice."""
    if not paths:
        raise output.UnreadableError(
            "FILE is missing; give one, or - for standard input; --help has all forms of the command"
        )
    if paths.count(_STDIN) > 1:
        raise output.UnreadableError("- (standard input) can be read only once")


def find_files(arguments: argparse.Namespace) -> list[str]:
    """Return the files that FILE and -f name; of a folder its manifests, sorted. `-` is standard input.

    Raises UnreadableError as `check_paths` does, and for a folder without manifests.
    """
    paths = [*arguments.files, *arguments.filename]
    check_paths(paths)
    files = [
        path
        for name in paths
        for path in (_search_folder(name, is_recursive=arguments.recursive) if os.path.isdir(name) else [name])  # noqa: PTH112 - pathlib would change the path in messages
    ]
    return list(dict.fromkeys(files))


def _search_folder(folder: str, *, is_recursive: bool) -> list[str]:
    files: list[str] = []
    for place, folders, names in os.walk(folder):
        files += [os.path.join(place, name) for name in sorted(names) if name.endswith(_MANIFESTS)]  # noqa: PTH118 - see above
        if not is_recursive:
            break
        folders.sort()
    if not files:
        named = ", ".join(f"*{ending}" for ending in _MANIFESTS)
        deeper = "" if is_recursive else "; -R searches the folders in it too"
        raise output.UnreadableError(f"{folder}: this folder contains no file named {named}{deeper}")
    return files
