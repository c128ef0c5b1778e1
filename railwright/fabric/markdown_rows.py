"""Reads a table that is a Markdown file: a row is a heading, lines `field: value` if it has any, and a text."""

import importlib.resources
import re
from collections.abc import Mapping

_ROW = re.compile(
    r"^### (?P<heading>\S+)\n\n(?:(?P<fields>(?:\w+: [^\n]+\n)+)\n)?(?P<text>.*?)(?=^### |\Z)",
    re.MULTILINE | re.DOTALL,
)
_COMMENT = re.compile(r"<!-- .*? -->\n*")


def read(package: str, name: str) -> Mapping[str, Mapping[str, str]]:
    """Return the fields of each row of a file in a package, by its heading."""
    return parse(importlib.resources.files(package).joinpath(name).read_text(encoding="utf-8"))


def parse(markdown: str) -> Mapping[str, Mapping[str, str]]:
    """Return the fields of each row, by its heading, `text` among them. Comments are left out."""
    return {
        row["heading"]: {
            **dict(line.split(": ", 1) for line in (row["fields"] or "").splitlines()),
            "text": row["text"].strip(),
        }
        for row in _ROW.finditer(_COMMENT.sub("", markdown))
    }
