"""Defines a reason as a value: a code and its parameters, without text.

Reasons are hashable and comparable, so they can be part of facts and results. `rendering` turns them into text.
"""

import enum
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import msgspec

MAX_NAMED = 3  # items of a list that a reason keeps

Value: TypeAlias = "bool | int | float | str | Reason | Some | tuple[Value, ...]"
"""A parameter. A tuple holds related values, such as a name and its count."""


class Group(enum.StrEnum):
    """The question that a code answers, and so where it occurs."""

    FILTER = "Why a node is filtered"
    NODE = "Other disadvantages of a node"
    GANG = "Why a gang does not fit, or its placement is not better"
    SCORE = "Why a node has its score"
    ADMISSION = "What a warning of admission reports, or why the record has an entry in `skipped`"
    VARIABLE = "Why a pod has a variable"


class ReasonCode(enum.StrEnum):
    """Base of the tables of codes. The value of a code is its public name."""

    group: Group
    template: str | Callable[..., str]  # of the text; see `texts`
    meaning: str
    fix: str  # "" if there is nothing to fix


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
