"""Formats Markdown: tables, and the generated parts of a page.

Generated parts begin with `<!-- generated: NAME WORD... -->` and end with `<!-- end of generated -->`.
"""

import pathlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

ROOT = pathlib.Path(__file__).parents[1]

Maker = Callable[..., str]  # the words after the name -> Markdown

_BLOCK = re.compile(r"<!-- generated: (?P<words>[^\n]+?) -->\n.*?<!-- end of generated -->", re.DOTALL)


def fill_generated_parts(text: str, makers: Mapping[str, Maker]) -> str:
    """Return the page with all generated parts updated. Raises LookupError for an unknown part."""

    def make_part(match: re.Match[str]) -> str:
        name, *words = match["words"].split()
        if name not in makers:
            raise LookupError(
                f"`<!-- generated: {name} -->` names no generated part; the parts are {', '.join(makers)}"
            )
        return f"<!-- generated: {match['words']} -->\n\n{makers[name](*words).strip()}\n\n<!-- end of generated -->"

    return _BLOCK.sub(make_part, text)


def format_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table with these titles of columns, and rows."""
    lines = [f"| {' | '.join(row)} |" for row in (columns, *rows)]
    return "\n".join([lines[0], "|---" * len(columns) + "|", *lines[1:]])


def escape_cell(text: str) -> str:
    """Return the text with each `|` escaped, which would end a table cell."""
    return text.replace("|", "\\|")
