"""Formats the codes of placement, of admission, of variables and of rejections as tables."""

from collections.abc import Iterable

from railwright.fabric.reasons import codes, reason, rejections

_PLACEMENT = (
    reason.Group.FILTER,
    reason.Group.NODE,
    reason.Group.GANG,
    reason.Group.SCORE,
)


def list_codes() -> str:
    """Return the tables of placement's codes, one for each question that they answer, in Markdown."""
    return "\n\n".join(f"**{group.value}**\n\n{_format_table(_select(group))}" for group in _PLACEMENT)


def _select(group: reason.Group) -> list[codes.Code]:
    return [code for code in codes.Code if code.group is group]


def list_admission() -> str:
    """Return the table of the codes of warnings and of `skipped`, in Markdown."""
    return _format_table(codes.AdmissionCode)


def list_rejections() -> str:
    """Return the table of the codes of rejections, in Markdown."""
    return _format_table(rejections.RejectionCode)


def list_variables() -> str:
    """Return the table of the reasons for variables, in Markdown."""
    rows = [f"| `{code.value}` | {code.words} | {code.source} |" for code in codes.VariableCode]
    return "\n".join(["| code | reason | source |", "|---|---|---|", *rows])


def _format_table(rows: Iterable[reason.ReasonCode | rejections.RejectionCode]) -> str:
    lines = [f"| `{code.value}` | {code.meaning} | {code.fix} |" for code in rows]
    return "\n".join(["| code | meaning | fix |", "|---|---|---|", *lines])
