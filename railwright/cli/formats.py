"""Prints documents as JSON and YAML, and tables that fit the terminal.

A table ends at the width of the terminal where its last column may be cut or wrapped, and never truncates names. If
stdout is not a terminal, cells are printed in full, each row in one line.
"""

import datetime as dt
import os
import sys
import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import yaml

from railwright.cli import output

_UNFOLDED_WIDTH = 10**6  # columns; no line is folded


def is_document(form: str) -> bool:
    """Return True for json and yaml, the output formats that `print_document` prints."""
    return form in (output.JSON, output.YAML)


def print_document(value: Any, form: str) -> None:
    """Print a value on stdout as JSON or YAML."""
    if form == output.JSON:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")
    else:
        sys.stdout.write(format_yaml(msgspec.json.decode(msgspec.json.encode(value))))


def format_yaml(tree: Any, *, width: int = 110) -> str:
    """Return a tree as a YAML document without anchors; text of several lines is a block, not a quoted line."""
    text: str = yaml.dump(tree, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=width)
    return text


def format_yaml_lines(tree: Any) -> list[str]:
    """Return the YAML lines of a tree: text of several lines as a block, no line folded.

    PyYAML ends a document whose last text has empty last lines with a line of dots, which is left out.
    """
    return format_yaml(tree, width=_UNFOLDED_WIDTH).removesuffix("...\n").removesuffix("\n").split("\n")


# libyaml is a hundred times faster
class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    def ignore_aliases(self, _data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    """Write text of several printable lines as a block, and other text as PyYAML does, which escapes controls."""
    is_block = "\n" in value and all(line.isprintable() for line in value.splitlines())
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if is_block else None)


_Dumper.add_representer(str, _represent_text)


_GAP = 2  # spaces between two columns
_MIN_TEXT = 12  # smallest useful width of a truncated text


class Column(NamedTuple):
    """A column of a table. Only the last column of a table may be cut or wrapped at the width of the terminal."""

    title: str
    wide: bool = False  # shown with -o wide only
    cut: bool = False
    wrap: bool = False  # continued in lines below
    right: bool = False


def print_table(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    *,
    styles: Sequence[str] = (),
    wide: bool = False,
) -> None:
    """Print a table on stdout. `styles` has the style of each row, as for `output.print_styled`.

    `wide` prints all columns in full.
    """
    shown = [at for at, column in enumerate(columns) if wide or not column.wide]
    plain = [[output.escape_controls(row[at]) for at in shown] for row in rows]
    header, *lines = format_table([columns[at] for at in shown], plain, None if wide else get_terminal_width())
    output.print_styled((header, "bold"))
    for row, style in zip(lines, styles or [""] * len(lines), strict=True):
        for line in row.split("\n"):
            output.print_styled((line, style))


def format_age(at: str, now: dt.datetime | None = None) -> str:
    """Return the time since `at` (RFC 3339), such as 45s, 5m, 3h or 90d, in the largest unit with a count of 2 or more.

    "-" if the time is unknown.
    """
    try:
        seconds = int(((now or dt.datetime.now(dt.UTC)) - dt.datetime.fromisoformat(at)).total_seconds())
    except (ValueError, TypeError):  # empty, no time, or without a zone
        return "-"
    units = (("d", 86400), ("h", 3600), ("m", 60))
    return next((f"{seconds // size}{unit}" for unit, size in units if seconds >= 2 * size), f"{max(0, seconds)}s")


def get_terminal_width() -> int | None:
    """Return the terminal's width, None if stdout is not a terminal. COLUMNS takes precedence, as for kubectl."""
    if not sys.stdout.isatty():
        return None
    override = os.environ.get("COLUMNS", "")
    return int(override) if override.isdigit() and int(override) else os.get_terminal_size(sys.stdout.fileno()).columns


def format_table(columns: Sequence[Column], rows: Sequence[Sequence[str]], limit: int | None) -> list[str]:
    """Return the header and rows of a table that is at most `limit` columns wide; None: as wide as its cells.

    A row may have several lines. Each column before a wrapped one takes at most two thirds of the limit: in a row with
    a longer cell, the wrapped text begins on a line of its own.
    """
    widths = [max([len(column.title), *(len(row[at]) for row in rows)]) for at, column in enumerate(columns)]
    if limit is not None and columns[-1].wrap:
        widths = [min(width, limit * 2 // 3) for width in widths]
    if limit is not None:
        widths[-1] = max(limit - sum(width + _GAP for width in widths[:-1]), _MIN_TEXT)
    return [_format_row(columns, widths, line) for line in ([column.title for column in columns], *rows)]


def _format_row(columns: Sequence[Column], widths: Sequence[int], cells: Sequence[str]) -> str:
    """Return a row, with its last cell cut or wrapped if the column allows it."""
    *first, last = cells
    padded = [
        text.rjust(width) if column.right else text.ljust(width)
        for column, width, text in zip(columns, widths, first, strict=False)
    ]
    if columns[-1].wrap and last:
        below = f"\n{' ' * sum(width + _GAP for width in widths[:-1])}"
        last = below.join(textwrap.wrap(last, widths[-1]))
        if any(len(text) > width for text, width in zip(first, widths, strict=False)):
            return (" " * _GAP).join(padded) + f"{below}{last}"
    elif columns[-1].cut and len(last) > widths[-1]:
        last = f"{last[: widths[-1] - 1]}…"
    return (" " * _GAP).join([*padded, last]).rstrip()
