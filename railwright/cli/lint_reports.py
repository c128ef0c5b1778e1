"""Findings of `railwright lint` with their file and line."""

from collections.abc import Sequence

import msgspec

from railwright.cluster import type_errors
from railwright.fabric.lint import rule_types


class Located(msgspec.Struct, frozen=True):
    """A finding with its file, line and the object it is about."""

    file: str
    line: int | None
    title: str
    finding: rule_types.Finding


class Report(msgspec.Struct, frozen=True):
    """Findings, the number of containers, claims and files that were checked, and notes for the user.

    `templates`: number of pods, pod templates, claims and nccl.conf files that were read, with or without anything to
    check.
    """

    located: tuple[Located, ...] = ()
    checked: int = 0
    notes: tuple[str, ...] = ()
    templates: int = 0


def join(reports: Sequence[Report]) -> Report:
    """Return several reports as one, without duplicates."""
    located = dict.fromkeys(item for report in reports for item in report.located)
    notes = dict.fromkeys(note for report in reports for note in report.notes)
    return Report(
        tuple(located),
        sum(report.checked for report in reports),
        tuple(notes),
        sum(report.templates for report in reports),
    )


def add(report: Report, other: Report) -> Report:
    """Return `report` with the findings of `other` that it lacks; the wording of a finding may differ."""
    known = {(item.file, item.line, item.finding.code, item.finding.name) for item in report.located}
    located = [
        item for item in other.located if (item.file, item.line, item.finding.code, item.finding.name) not in known
    ]
    return join([report, msgspec.structs.replace(other, located=tuple(located))])


def sort(report: Report) -> Report:
    """Return the report with its findings by file and line, in every output format."""
    located = sorted(report.located, key=lambda item: (item.file, item.line or 0))
    return msgspec.structs.replace(report, located=tuple(located))


def describe_type(error: msgspec.ValidationError) -> str:
    """Return path, expected type and fix of a value of the wrong type."""
    return type_errors.describe(error)
