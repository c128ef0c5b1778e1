"""Matches labels as Kubernetes' LabelSelector does (apimachinery pkg/labels)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol


class Requirement(Protocol):
    """An expression of a selector."""

    @property
    def key(self) -> str:
        """Key of the label."""

    @property
    def operator(self) -> str:
        """A key of OPERATORS."""

    @property
    def values(self) -> Sequence[str] | None:
        """Values that the operator compares with."""


Compare = Callable[[str | None, Sequence[str]], bool]
"""Compares a label's value, None if it is absent, with the values of an expression."""

# NotIn and DoesNotExist match if the key is absent, as in apimachinery's Requirement.Matches
OPERATORS: Mapping[str, Compare] = {
    "In": lambda value, values: value is not None and value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
}


def matches(required: Mapping[str, str], expressions: Iterable[Requirement], labels: Mapping[str, str]) -> bool:
    """True if all required labels and all expressions match. Without any, everything matches."""
    return has_all(required, labels) and all(
        OPERATORS[expression.operator](labels.get(expression.key), expression.values or ())
        for expression in expressions
    )


class Expression(NamedTuple):
    """An expression of a selector, as plain values."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


def has_all(required: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """True if all required labels are there with these values."""
    return all(labels.get(key) == value for key, value in required.items())
