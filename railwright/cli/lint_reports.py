"""Findings of `railwright lint` with their file and line."""

import msgspec

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
