"""Formats the codes of placement and of rejections at admission as tables."""

from collections.abc import Iterator

from railwright.fabric.injection import rejection_codes
from railwright.fabric.reasons import codes


def list_codes() -> str:
    """Return the tables of placement's codes, one for each question that they answer, in Markdown."""
    return "\n\n".join(map(_format_group, codes.Group))


def _format_group(group: codes.Group) -> str:
    return "\n".join([f"**{group.value}**", "", "| code | meaning | fix |", "|---|---|---|", *_format_rows(group)])


def _format_rows(group: codes.Group) -> Iterator[str]:
    for code in codes.Code:
        if code.group is group:
            yield f"| `{code.value}` | {code.meaning} | {code.fix} |"


def list_rejections() -> str:
    """Return the table of the codes of rejections, in Markdown."""
    rows = [f"| `{code.value}` | {code.meaning} | {code.fix} |" for code in rejection_codes.RejectionCode]
    return "\n".join(["| code | meaning | fix |", "|---|---|---|", *rows])
