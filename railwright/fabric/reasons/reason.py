"""Defines a reason as a value: a code and its parameters, without text.

Reasons are hashable and comparable, so they can be part of facts and results. `rendering` turns them into text.
"""

import enum
from collections.abc import Iterable, Mapping
from typing import Any, Self, TypeAlias

import msgspec

from railwright.fabric import text

ROWS = text.read_rows("railwright.fabric.reasons", "reasons.md")
MAX_NAMED = 3  # items of a list that a reason keeps

Value: TypeAlias = "bool | int | float | str | Reason | Some | tuple[Value, ...]"
"""A parameter. A tuple holds related values, such as a name and its count."""


class ReasonCode(enum.StrEnum):
    """Base of the lists of codes. The value of a code is its public name, under which the table has its row."""

    template: str  # of its message; "" if a function in `rendering` formats it
    meaning: str
    fix: str  # "" if there is nothing to fix

    def __new__(cls, name: str) -> Self:
        """Create the member whose row is `name`."""
        code = str.__new__(cls, name)
        code._value_ = name
        row = ROWS[name]
        code.template, code.meaning, code.fix = row.get("message", ""), row["text"], row.get("fix", "")
        return code


class Reason(msgspec.Struct, frozen=True, cache_hash=True):
    """A code and its parameters, in the order in which they were given."""

    code: ReasonCode
    parameters: tuple[tuple[str, Value], ...] = ()

    def get(self, name: str) -> Value:
        """Return one parameter. Raises KeyError."""
        return dict(self.parameters)[name]


class RecordedReason(msgspec.Struct, frozen=True, omit_defaults=True):
    """A reason in an annotation. Its code and parameters may be any, because users can write annotations."""

    code: str
    parameters: Mapping[str, Any] = {}


class Some(msgspec.Struct, frozen=True):
    """The first items of a list, and how many more there are. It bounds the size of a reason."""

    items: tuple[Value, ...]
    more: int = 0


def make(code: ReasonCode, **parameters: Value) -> Reason:
    """Build a reason."""
    return Reason(code, tuple(parameters.items()))


def take_first(items: Iterable[Value], limit: int = MAX_NAMED) -> Some:
    """Keep the first distinct items, and count the others."""
    distinct = tuple(dict.fromkeys(items))
    return Some(distinct[:limit], max(0, len(distinct) - limit))


class ReasonError(Exception):
    """Raised with the reason why there is no result."""

    def __init__(self, code: ReasonCode, **parameters: Value) -> None:
        super().__init__(code)
        self.reason = make(code, **parameters)


class RefusedError(Exception):
    """Raised to end the plan of an injection with a Refusal. `reason` is a `RejectionCode`, `message` says the fix."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
