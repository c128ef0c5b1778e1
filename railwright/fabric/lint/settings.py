"""Reads the effective settings of ranks with their catalogue rows, and formats settings for messages."""

from collections.abc import Iterator

from railwright.fabric import text as texts
from railwright.fabric.lint import rule_types
from railwright.fabric.nccl import catalogue

BLANKS = " \t\r\n"
QUOTES = "\"'"
_MAX_QUOTED = 60  # characters of a user's text in a message


def build_env(**values: str | None) -> tuple[rule_types.Setting, ...]:
    """Return settings of a container's environment. None stands for a value from another source."""
    return tuple(rule_types.Setting(name, value, f"env[{index}]") for index, (name, value) in enumerate(values.items()))


def list_effective(ctx: rule_types.RankContext) -> Iterator[rule_types.Setting]:
    """Yield the effective setting of each name, which is the first one, in order."""
    earlier_names = set()
    for setting in ctx.settings:
        if setting.name not in earlier_names:
            earlier_names.add(setting.name)
            yield setting


def list_values(ctx: rule_types.RankContext) -> Iterator[tuple[rule_types.Setting, str]]:
    """Yield the effective settings that have a known value, with the value."""
    for setting in list_effective(ctx):
        if setting.value is not None:
            yield setting, setting.value


def list_rows(ctx: rule_types.RankContext) -> Iterator[tuple[rule_types.Setting, catalogue.Variable]]:
    """Yield the effective settings that are in the catalogue, with their rows."""
    for setting in list_effective(ctx):
        row = catalogue.find(setting.name)
        if row is not None:
            yield setting, row


def list_rows_with_values(ctx: rule_types.RankContext) -> Iterator[tuple[rule_types.Setting, str, catalogue.Variable]]:
    """Yield the effective settings that NCCL reads and that have a known value, with value and row."""
    for setting, row in list_rows(ctx):
        if setting.value is not None and row.status in _READ:
            yield setting, setting.value, row


_READ = frozenset({"active", "deprecated", "newer", "unused"})


def strip_quotes(text: str) -> str:
    """Remove surrounding quotes and blanks, which rule N11 reports."""
    return text.strip(BLANKS + QUOTES)


def quote(text: str) -> str:
    """Return a user's text for a message, escaped and truncated."""
    short = texts.abbreviate(text, _MAX_QUOTED)
    return (
        short if short.isprintable() else "".join(char if char.isprintable() else ascii(char)[1:-1] for char in short)
    )


def format_setting(setting: rule_types.Setting) -> str:
    """Return NAME=VALUE for a message. The value is quoted if it is empty or contains blanks or quotes."""
    if setting.value is None:
        return quote(setting.name)
    value = quote(setting.value)
    ends = not value or value != strip_quotes(value) or " " in value
    return f"{quote(setting.name)}={value!r}" if ends else f"{quote(setting.name)}={value}"


def build_violation(setting: rule_types.Setting, message: str) -> rule_types.Violation:
    """Return a complaint about a setting. Its message begins with NAME=VALUE."""
    return rule_types.Violation(f"{format_setting(setting)}: {message}", setting.name, setting.where)
