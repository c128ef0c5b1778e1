"""Runs `railwright check --explain`: prints what a row looks at, an example and the fix, or the names of all rows."""

import difflib
import re
import shutil
import textwrap
from collections.abc import Iterator

from railwright.cli import output
from railwright.cli.checking import check_rows

_MAX_WIDTH = 100  # columns of a paragraph
_CODE = re.compile(r"^```[^\n]*\n(.*?)\n```$", re.MULTILINE | re.DOTALL)


def explain(anchor: str) -> int:
    """Print the explanation of a row, for "" the names of all. Return 0. Raise UnreadableError for an unknown row."""
    rows = check_rows.read_fields()
    if anchor and anchor not in rows:
        similar = difflib.get_close_matches(anchor, rows, n=1)
        suggestion = f" did you mean {similar[0]}?" if similar else ""
        raise output.UnreadableError(
            f"--explain: there is no row {anchor};{suggestion or ' to list all: railwright check --explain'}"
        )
    if not anchor:
        width = max(map(len, rows))
        for name, fields in rows.items():
            output.print_styled((name.ljust(width), "bold"), (f"  {fields['name']}", ""))
        return output.OK
    output.print_styled((anchor, "bold"), (f": {rows[anchor]['name']}", ""))
    for line in _format_blocks(rows[anchor]["text"]):
        print(line)
    return output.OK


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
