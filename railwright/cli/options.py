"""Defines the options that several commands share, with the same names, values and help as kubectl's.

Imports the standard library only, because completion and --help must not wait for libraries.
"""

import argparse
import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from railwright.cli import output
from railwright.cli.parsers import Options, Parser

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d{1,10}(?:\.\d{1,3})?)(ms|[smhd])?", re.ASCII)
_LONGEST = 36500 * 86400.0  # seconds of a hundred years
MANIFESTS = (".yaml", ".yml", ".json")  # as kubectl -f selects files of a folder
_STDIN = "-"


class ClusterOptions(NamedTuple):
    """The cluster and the account of a command; "", None and () for options that were not given."""

    kubeconfig: str = ""
    context: str | None = None
    user: str = ""  # to impersonate
    groups: tuple[str, ...] = ()
    timeout: float | None = None  # seconds for one request; 0 for no limit

    @property
    def is_given(self) -> bool:
        """True if any option selects a cluster or an account."""
        return bool(self.kubeconfig or self.context or self.user or self.groups)


# --- which cluster, which objects -------------------------------------------------------------------------


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


def add_snapshot(parser: Options) -> None:
    """Add --snapshot."""
    parser.add_value("--snapshot FILE", "Read objects from a file instead of a cluster; needs --policy.")


def add_files(parser: Parser, text: str, *, instead: str = "") -> None:
    """Add FILE, -f and -R, at least one file. `find_files` returns the files that they name.

    `instead` is the option with which a command needs no file.
    """
    parser.add_argument("files", metavar="FILE", nargs="*", help=f"{text} A folder, or - for standard input.")
    add_filenames(parser)
    require_file(parser, "files", f", or - for standard input{f', or {instead}' if instead else ''}", instead)


def require_file(parser: Parser, dest: str, others: str = ", or - for standard input", instead: str = "") -> None:
    """Require a word at `dest`, -f, or the option `instead`. `others` names in the message what may be given too."""

    def find_problem(arguments: argparse.Namespace) -> str:
        is_enough = any(getattr(arguments, name, False) for name in (dest, "filename", instead.strip("-")))
        return "" if is_enough else f"the following arguments are required: FILE{others}"

    parser.requirements.append(find_problem)


def add_filename(parser: Options) -> None:
    """Add -f."""
    parser.add_value("-f, --filename FILE", "The same as FILE; repeatable.", action="append", default=[])


def add_filenames(parser: Options) -> None:
    """Add -f and -R."""
    add_filename(parser)
    parser.add_flag("-R, --recursive", "Search the folders in a folder too.")


def find_files(arguments: argparse.Namespace, endings: Sequence[str] = MANIFESTS) -> list[str]:
    """Return the files that FILE and -f name; of a folder those with these endings, sorted. `-` is standard input.

    Raises UnreadableError for a folder without any, and if standard input is named twice.
    """
    names = [*arguments.files, *arguments.filename]
    if names.count(_STDIN) > 1:
        raise output.UnreadableError("- (standard input) can be read only once")
    files = [
        path
        for name in names
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
        deeper = "" if is_recursive else "; -R searches the folders in it too"
        raise output.UnreadableError(f"{folder}: this folder contains no file named {_join(endings)}{deeper}")
    return files


def _join(endings: Sequence[str]) -> str:
    *first, last = [f"*{ending}" for ending in endings]
    return f"{', '.join(first)} or {last}" if first else last


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
