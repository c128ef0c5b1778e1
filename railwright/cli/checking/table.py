"""Builds the rows from their table: what each is about, reads and waits for, its fix and its explanation.

The fields of a row are the lines below its heading: `name`, which states the healthy condition; `reads`, the sources
that must be readable, else the row is skipped; `uses`, further sources, without which the row also works; `after`, rows
and groups whose failure skips it; `phase`; `fatal`; `fix`. `group` begins a group of the output.
"""

import functools
import importlib.resources
import re
from collections.abc import Mapping, Sequence

from railwright.cli.checking import check_rows, snapshots

FILE = "rows.md"
_SECTION = re.compile(
    r"^### (?P<anchor>\S+)\n\n(?P<fields>(?:\w+: [^\n]+\n)+)\n(?P<text>.*?)(?=^### |\Z)", re.MULTILINE | re.DOTALL
)
_COMMENT = re.compile(r"<!-- .*? -->\n*")
_NAMES = {
    "{webhook}": snapshots.WEBHOOK,
    "{extender}": snapshots.EXTENDER,
    "{certs}": snapshots.CERTS,
    "{webhook tls}": snapshots.SECRETS[snapshots.WEBHOOK],
    "{extender tls}": snapshots.SECRETS[snapshots.EXTENDER],
    "{configuration}": snapshots.CONFIGURATION,
    "{policy}": snapshots.POLICY,
}
_SOURCES = {
    "everything": (
        *(source.name for source in snapshots.SOURCES),
        snapshots.NAMESPACED_PODS,
        snapshots.SERVER_PERMISSIONS,
    ),
    "workloads": snapshots.WORKLOADS,
}


@functools.cache
def read_fields() -> Mapping[str, Mapping[str, str]]:
    """Return the fields of each row by its anchor, `text` with the explanation in Markdown among them."""
    return parse(importlib.resources.files("railwright.cli.checking").joinpath(FILE).read_text(encoding="utf-8"))


def parse(markdown: str) -> Mapping[str, Mapping[str, str]]:
    """Return the fields of each row in the text of the table. Comments are left out."""
    sections = _SECTION.finditer(_COMMENT.sub("", markdown))
    return {section["anchor"]: _parse_section(section) for section in sections}


def _parse_section(section: re.Match[str]) -> Mapping[str, str]:
    fields = [line.split(": ", 1) for line in section["fields"].splitlines()]
    return {**{key: _fill(value) for key, value in fields}, "text": section["text"].strip()}


def build_groups(checks: check_rows.Checks) -> tuple[check_rows.Group, ...]:
    """Return all rows in the order of the table, by group. `checks` has the function that assesses each."""
    rows: dict[str, list[check_rows.Row]] = {}
    group = ""
    for anchor, fields in read_fields().items():
        group = fields.get("group", group)
        anchors = {title: [row.anchor for row in listed] for title, listed in rows.items()}
        rows.setdefault(group, []).append(
            check_rows.Row(
                anchor=anchor,
                name=fields["name"],
                assess=checks[anchor],
                hint=fields["fix"],
                reads=_expand(fields.get("reads"), _SOURCES),
                uses=_expand(fields.get("uses"), _SOURCES),
                depends_on=_expand(fields.get("after"), anchors),
                when=check_rows.Phase(fields.get("phase", check_rows.Phase.INSTALLED)),
                fatal="fatal" in fields,
            )
        )
    return tuple(check_rows.Group(title, tuple(listed)) for title, listed in rows.items())


def _expand(items: str | None, aliases: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return the items of a field; an alias stands for several."""
    listed = items.split(", ") if items else ()
    return tuple(name for item in listed for name in aliases.get(item, (item,)))


def _fill(text: str) -> str:
    """Return a text with the names of installed objects. The namespace is filled when it is known."""
    for placeholder, name in _NAMES.items():
        text = text.replace(placeholder, name)
    return text
