"""Tables that fit the terminal: columns are dropped by priority, names are never cut, nothing is wrapped.

Owns widths and what is left out. Knows no content. Where stdout is no terminal, all columns are printed in full.
"""

import os
import sys
from collections.abc import Sequence
from typing import NamedTuple

from railwright.cli import output

_GAP = 2  # blanks between two columns
_LEAST = 12  # columns that a sentence needs to be worth showing cut


class Column(NamedTuple):
    """One column. `drop`: 0 stays, of the others the highest goes first. `cut`: a sentence, cut where it is last."""

    title: str
    drop: int = 0
    cut: bool = False
    right: bool = False


def show(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], *, styles: Sequence[str] = (), wide: bool = False
) -> None:
    """Print a table on stdout; `styles`: rich's, one for each row. `wide`: all of it, whatever the terminal."""
    plain = [[output.visible(cell) for cell in row] for row in rows]
    for at, line in enumerate(lay(columns, plain, None if wide else width())):
        style = "bold" if at == 0 else styles[at - 1] if styles else ""
        output.print_styled((line, style))


def width() -> int | None:
    """The terminal's columns; None where stdout is none. COLUMNS wins, as for kubectl and ls."""
    if not sys.stdout.isatty():
        return None
    given = os.environ.get("COLUMNS", "")
    return int(given) if given.isdigit() and int(given) else os.get_terminal_size(sys.stdout.fileno()).columns


def lay(columns: Sequence[Column], rows: Sequence[Sequence[str]], limit: int | None) -> list[str]:
    """The lines of a table in so many columns; None: any."""
    kept = list(range(len(columns)))
    widths = [max([len(column.title), *(len(row[at]) for row in rows)]) for at, column in enumerate(columns)]
    while limit is not None and _needed(kept, widths, columns) > limit:
        candidates = [at for at in kept if columns[at].drop]
        if not candidates:
            break
        kept.remove(max(candidates, key=lambda at: columns[at].drop))
    room = _last_room(kept, widths, limit)
    lines = [[column.title for column in columns], *rows]
    return [_line(kept, columns, widths, each, room) for each in lines]


def _needed(kept: Sequence[int], widths: Sequence[int], columns: Sequence[Column]) -> int:
    """What the columns need at least: a sentence at the end may be cut."""
    last = kept[-1]
    least = min(widths[last], _LEAST) if columns[last].cut else widths[last]
    return sum(widths[at] for at in kept[:-1]) + _GAP * (len(kept) - 1) + least


def _last_room(kept: Sequence[int], widths: Sequence[int], limit: int | None) -> int:
    before = sum(widths[at] for at in kept[:-1]) + _GAP * (len(kept) - 1)
    return widths[kept[-1]] if limit is None else max(0, limit - before)


def _line(
    kept: Sequence[int], columns: Sequence[Column], widths: Sequence[int], cells: Sequence[str], room: int
) -> str:
    parts = [cells[at].rjust(widths[at]) if columns[at].right else cells[at].ljust(widths[at]) for at in kept[:-1]]
    last = cells[kept[-1]]
    if len(last) > room and columns[kept[-1]].cut:
        last = f"{last[: max(0, room - 1)]}…"
    return (" " * _GAP).join([*parts, last]).rstrip()
