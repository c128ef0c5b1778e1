"""Formats tables in Markdown."""

import pathlib
from collections.abc import Iterable, Sequence

ROOT = pathlib.Path(__file__).parents[1]


def format_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table with these titles of columns, and rows."""
    lines = [f"| {' | '.join(row)} |" for row in (columns, *rows)]
    return "\n".join([lines[0], "|---" * len(columns) + "|", *lines[1:]])


def escape_cell(text: str) -> str:
    """Return the text with each `|` escaped, which would end a table cell."""
    return text.replace("|", "\\|")
