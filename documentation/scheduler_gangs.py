"""Formats what `make bench BENCH=placement BENCH_ARGS=--schedulers` has measured: gangs placed by real schedulers.

`tests/bench/scheduler_gangs.py` measures, and writes the data file.
"""

import pathlib
from collections.abc import Sequence

import msgspec

from documentation import markdown

DATA = pathlib.Path(__file__).with_suffix(".json")
COLUMNS = ("alone", "fields", "extender", "both")
_TITLES = ("scheduler alone", "railwright's fields only", "extender only", "both")
_HEADER = ("scheduler", "constraint", *_TITLES)


class Cell(msgspec.Struct, frozen=True, omit_defaults=True):
    """Gangs that one scheduler has placed in one way."""

    scheduler: str
    row: str
    by: str  # one of COLUMNS
    gangs: int = 0
    waiting: int = 0  # gangs without nodes after the time limit
    share: float | None = None  # modelled bandwidth of the placed gangs, of the exact optimum's, by pods
    calls: int = 0  # of the extender, a gang
    seconds: float | None = None  # from creation to the last binding, median


def read() -> dict[tuple[str, str, str], Cell]:
    """Return the cells of the data file."""
    cells = msgspec.json.decode(DATA.read_bytes(), type=list[Cell]) if DATA.exists() else []
    return {(cell.scheduler, cell.row, cell.by): cell for cell in cells}


def format_table() -> str:
    """Return the table, in Markdown."""
    cells = read()
    rows = dict.fromkeys((scheduler, row) for scheduler, row, _ in cells)
    return markdown.format_table(
        _HEADER,
        [[*key, *(_format_cell(cells.get((*key, by))) for by in COLUMNS)] for key in rows],
    )


def _format_cell(cell: Cell | None) -> str:
    if cell is None:
        return "-"
    parts: Sequence[str] = [
        "none placed" if cell.share is None else f"{cell.share:.2f}",
        *([f"{cell.waiting} of {cell.gangs} wait"] if cell.waiting else []),
        *([f"{cell.calls} calls"] if cell.calls else []),
        *([] if cell.seconds is None else [f"{cell.seconds:g} s"]),
    ]
    return ", ".join(parts)
