"""Prints lines of styled parts on a terminal or into a pipe, and draws them as an SVG."""

import os
import sys
from collections.abc import Iterable

from railwright.cli import output

Line = tuple[tuple[str, str], ...]
"""Parts of (text, style); a style is words such as "bold red"."""


def print_lines(lines: Iterable[Line]) -> None:
    """Print lines at once, also into a pipe."""
    for line in lines:
        output.print_styled(*line)
    sys.stdout.flush()


def draw(lines: Iterable[Line], *, title: str, width: int) -> str:
    """Return lines as an SVG of a terminal with `width` columns."""
    from rich import console, text

    with open(os.devnull, "w", encoding="utf-8") as nowhere:  # noqa: PTH123 - a device
        screen = console.Console(record=True, highlight=False, width=width, file=nowhere)
        for line in lines:
            screen.print(text.Text.assemble(*((output.escape_controls(part), style) for part, style in line)))
        return output.remove_web_fonts(screen.export_svg(title=title))
