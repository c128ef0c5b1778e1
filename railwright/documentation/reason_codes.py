"""Formats the reason codes of placement as tables, one for each question that they answer."""

from collections.abc import Iterator

from railwright.fabric.reasons import codes


def list_codes() -> str:
    """Return the tables of all codes, in Markdown."""
    return "\n\n".join(map(_format_group, codes.Group))


def _format_group(group: codes.Group) -> str:
    return "\n".join([f"**{group.value}**", "", "| code | meaning | fix |", "|---|---|---|", *_format_rows(group)])


def _format_rows(group: codes.Group) -> Iterator[str]:
    for code in codes.Code:
        if code.group is group:
            yield f"| `{code.value}` | {code.meaning} | {code.fix} |"
