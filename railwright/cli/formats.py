"""Prints documents as JSON and YAML, and tables that fit the terminal.

A table drops columns by priority, and never truncates names. If stdout is not a terminal, all columns are printed in
full, each row in one line.
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


def print_json(value: Any) -> None:
    """Print a JSON value on stdout, indented."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")


def is_document(form: str) -> bool:
    """True for the output formats of `print_document`; the others are for people."""
    return form in (output.JSON, output.YAML)


def print_document(value: Any, form: str) -> None:
    """Print a value on stdout in a format for programs."""
    if form == output.JSON:
        print_json(value)
    else:
        sys.stdout.write(format_yaml(msgspec.json.decode(msgspec.json.encode(value))))


def format_yaml(tree: Any, *, width: int = 110) -> str:
    """Return a tree as a YAML document without anchors; text of several lines is a block, not a quoted line."""
    text: str = yaml.dump(tree, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=width)
    return text


def format_yaml_lines(tree: Any) -> list[str]:
    """Return the lines of a tree: text of several lines as a block, nothing folded.

    PyYAML ends a document whose last text has empty last lines with a line of dots, which is left out.
    """
    return format_yaml(tree, width=_UNFOLDED_WIDTH).removesuffix("...\n").removesuffix("\n").split("\n")


# libyaml is a hundred times faster
class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    def ignore_aliases(self, _data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    """Write printable lines as a block. Anything else is quoted, with control characters escaped."""
    is_block = "\n" in value and all(line.isprintable() for line in value.splitlines())
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if is_block else None)


_Dumper.add_representer(str, _represent_text)


_GAP = 2  # spaces between two columns
_MIN_TEXT = 12  # smallest useful width of a truncated text


class Column(NamedTuple):
    """One column. `drop` 0 is never dropped, otherwise the highest goes first. The last one may be cut or wrapped."""

    title: str
    drop: int = 0
    cut: bool = False  # truncated where it is too wide
    wrap: bool = False  # continued in lines below instead
    right: bool = False


def print_table(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    *,
    styles: Sequence[str] = (),
    wide: bool = False,
) -> None:
    """Print a table on stdout. `styles` holds styles of `output.print_styled`, one per row.

    `wide` prints all columns in full.
    """
    plain = [[output.escape_controls(cell) for cell in row] for row in rows]
    header, *lines = format_table(columns, plain, None if wide else get_terminal_width())
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
    """Return the rows of a table at most `limit` columns wide, None for any width. A wrapped row has several lines.

    Columns before a wrapped one take at most two thirds of the limit: a row with a longer cell has a line break after
    it.
    """
    columns_left = list(range(len(columns)))
    widths = [max([len(column.title), *(len(row[at]) for row in rows)]) for at, column in enumerate(columns)]
    if limit is not None and columns[-1].wrap:
        widths = [min(width, limit * 2 // 3) for width in widths]

    def measure_before_last() -> int:
        return sum(widths[at] + _GAP for at in columns_left[:-1])

    while limit is not None and (candidates := [at for at in columns_left if columns[at].drop]):
        last = columns_left[-1]
        min_width = min(widths[last], _MIN_TEXT) if columns[last].cut or columns[last].wrap else widths[last]
        if measure_before_last() + min_width <= limit:
            break
        columns_left.remove(max(candidates, key=lambda at: columns[at].drop))
    last_width = widths[columns_left[-1]] if limit is None else max(0, limit - measure_before_last())
    lines = [[column.title for column in columns], *rows]
    return [_format_row([(columns[at], widths[at], line[at]) for at in columns_left], last_width) for line in lines]


def _format_row(cells: Sequence[tuple[Column, int, str]], last_width: int) -> str:
    """Return a row of cells, each with its column and width; the last one is truncated or wrapped if it may be."""
    *first, (last_column, _, last) = cells
    parts = [text.rjust(width) if column.right else text.ljust(width) for column, width, text in first]
    if last_column.wrap and last:
        below = f"\n{' ' * sum(width + _GAP for _, width, _ in first)}"
        last = below.join(textwrap.wrap(last, max(last_width, _MIN_TEXT)))
        if any(len(text) > width for _, width, text in first):
            return (" " * _GAP).join(parts) + f"{below}{last}"
    elif len(last) > last_width and last_column.cut:
        last = f"{last[: max(0, last_width - 1)]}…"
    return (" " * _GAP).join([*parts, last]).rstrip()
