"""Explains a row of `railwright check`: what it looks at, an example and how to fix it.

The text is in railwright/cli/checking/rows.md, which ships with the command. docs/check.md is generated from it.
"""

import difflib
import importlib.resources
import re
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Mapping

from railwright.cli import output

FILE = "rows.md"
_MAX_WIDTH = 100  # columns of a paragraph
_SECTION = re.compile(r"^### (?P<anchor>\S+)\n\n(?P<text>.*?)(?=^### |\Z)", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!-- .*? -->\n*")
_CODE = re.compile(r"^```[^\n]*\n(.*?)\n```$", re.MULTILINE | re.DOTALL)


def strip_comments(markdown: str) -> str:
    """Return Markdown without comments, such as the marks of generated parts."""
    return _COMMENT.sub("", markdown)


def read_sections() -> Mapping[str, str]:
    """Return the Markdown of each row, by its anchor."""
    text = importlib.resources.files("railwright.cli.checking").joinpath(FILE).read_text(encoding="utf-8")
    return {match["anchor"]: match["text"].strip() for match in _SECTION.finditer(strip_comments(text))}


def explain(anchor: str, name: str) -> None:
    """Print the explanation of a row; `name` states its healthy condition. Raise UnreadableError for an unknown row."""
    sections = read_sections()
    if anchor not in sections:
        similar = difflib.get_close_matches(anchor, sections, n=1)
        suggestion = f" did you mean {similar[0]}?" if similar else ""
        raise output.UnreadableError(
            f"--explain: there is no row {anchor};{suggestion or ' to list all: railwright check --explain'}"
        )
    output.print_styled((anchor, "bold"), (f": {name}", ""))
    for line in _format_blocks(sections[anchor]):
        print(line)


def list_names(rows: Iterable[tuple[str, str]]) -> None:
    """Print the anchor and the name of each row."""
    pairs = list(rows)
    width = max(len(anchor) for anchor, _ in pairs)
    for anchor, name in pairs:
        output.print_styled((anchor.ljust(width), "bold"), (f"  {name}", ""))


def _format_blocks(markdown: str) -> Iterator[str]:
    """Yield the lines of a section for a terminal: paragraphs are wrapped, code is indented."""
    width = min(_MAX_WIDTH, shutil.get_terminal_size().columns)
    for block in markdown.split("\n\n"):
        yield ""
        code = _CODE.search(block)
        if code:
            yield from textwrap.indent(code[1], "    ").splitlines()
        elif block.startswith("|"):
            yield from _format_table(block)
        else:
            yield from textwrap.wrap(block.replace("`", ""), width)


def _format_table(block: str) -> Iterator[str]:
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines() if "---" not in line]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "    " + "  ".join(map(str.ljust, row, widths)).rstrip()
