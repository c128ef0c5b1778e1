"""Formats the codes of placement, of admission, of variables and of rejections as tables."""

from collections.abc import Iterable

from railwright.fabric.reasons import codes, reason


def list_codes() -> str:
    """Return the tables of placement's codes, one for each question that they answer, in Markdown."""
    groups: dict[str, list[codes.Code]] = {}
    for code in codes.Code:
        question = reason.ROWS[code.value].get("group") or [*groups][-1]  # the first row of a group states it
        groups.setdefault(question, []).append(code)
    return "\n\n".join(f"**{question}**\n\n{_format_table(group)}" for question, group in groups.items())


def list_admission() -> str:
    """Return the table of the codes of warnings and of `skipped`, in Markdown."""
    return _format_table(codes.AdmissionCode)


def list_rejections() -> str:
    """Return the table of the codes of rejections, in Markdown."""
    return _format_table(codes.RejectionCode)


def list_variables() -> str:
    """Return the table of the reasons for variables, in Markdown."""
    rows = [f"| `{code.value}` | {code.words} | {code.source} |" for code in codes.VariableCode]
    return "\n".join(["| code | reason | source |", "|---|---|---|", *rows])


def _format_table(rows: Iterable[reason.ReasonCode]) -> str:
    lines = [f"| `{code.value}` | {code.meaning} | {code.fix} |" for code in rows]
    return "\n".join(["| code | meaning | fix |", "|---|---|---|", *lines])
