"""Reading the settings of ranks: those that take effect, their values, their rows, and how messages show them.

Owns "the first of a name wins" and the bound and escaping of what a user wrote. Refuses to know any rule.
"""

from collections.abc import Iterator

from railwright.fabric.lint import model
from railwright.fabric.nccl import catalogue

BLANKS = " \t\r\n"
QUOTES = "\"'"
_SHOWN = 60  # characters of a user's text that a message repeats


def env(**values: str | None) -> tuple[model.Setting, ...]:
    """Settings of a container's environment; None for a value that comes from elsewhere."""
    return tuple(model.Setting(name, value, f"env[{at}]") for at, (name, value) in enumerate(values.items()))


def effective(ranks: model.Ranks) -> Iterator[model.Setting]:
    """The setting that wins for each name, in order."""
    seen = set()
    for setting in ranks.settings:
        if setting.name not in seen:
            seen.add(setting.name)
            yield setting


def valued(ranks: model.Ranks) -> Iterator[tuple[model.Setting, str]]:
    """Effective settings whose value is known, with it."""
    for setting in effective(ranks):
        if setting.value is not None:
            yield setting, setting.value


def rows(ranks: model.Ranks) -> Iterator[tuple[model.Setting, catalogue.Variable]]:
    """Effective settings the catalogue has, with their rows."""
    for setting in effective(ranks):
        row = catalogue.find(setting.name)
        if row is not None:
            yield setting, row


def values(ranks: model.Ranks) -> Iterator[tuple[model.Setting, str, catalogue.Variable]]:
    """Settings with a known value that something of NCCL reads, with value and row; for checks of the value."""
    for setting, row in rows(ranks):
        if setting.value is not None and row.status in _READ:
            yield setting, setting.value, row


_READ = frozenset({"active", "deprecated", "newer", "unused"})


def bare(text: str) -> str:
    """A value without the quotes and blanks around it, which are a fault of their own."""
    return text.strip(BLANKS + QUOTES)


def shown(text: str) -> str:
    """A user's text as messages show it: escaped and bounded."""
    short = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    return (
        short if short.isprintable() else "".join(each if each.isprintable() else ascii(each)[1:-1] for each in short)
    )


def written(setting: model.Setting) -> str:
    """NAME=VALUE as messages show it; the value in quotes where its ends would not be seen."""
    if setting.value is None:
        return shown(setting.name)
    value = shown(setting.value)
    ends = not value or value != bare(value) or " " in value
    return f"{shown(setting.name)}={value!r}" if ends else f"{shown(setting.name)}={value}"


def complaint(setting: model.Setting, message: str) -> model.Complaint:
    """A complaint about one setting; its message begins with NAME=VALUE."""
    return model.Complaint(f"{written(setting)}: {message}", setting.name, setting.where)
