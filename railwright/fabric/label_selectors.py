"""Matches labels as Kubernetes' LabelSelector does (apimachinery pkg/labels), and reads the selectors of kubectl -l."""

import re
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
    """A Requirement that was read from text."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


_KEY = r"[A-Za-z0-9](?:[A-Za-z0-9._/-]*[A-Za-z0-9])?"
_VALUE = r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)?"
_EXPRESSION = re.compile(
    rf"""\s* (?: !\s*(?P<absent>{_KEY})
        | (?P<key>{_KEY}) (?: \s*(?P<sign>==|=|!=)\s*(?P<value>{_VALUE}) )?
        | (?P<member>{_KEY})\s+(?P<word>in|notin)\s*\((?P<values>\s*{_VALUE}\s*(?:,\s*{_VALUE}\s*)*)\)
    ) \s* (?P<end>,|$)""",
    re.VERBOSE,
)


def parse(text: str) -> Sequence[Expression]:
    """Return the expressions of a selector such as `app=x,tier in (a,b),!canary`. Raise ValueError."""
    expressions, at, end = [], 0, ","
    while at < len(text) or (end and text):
        if (match := _EXPRESSION.match(text, at)) is None:
            raise ValueError(f"label selector {text!r} cannot be read at {text[at:]!r}")
        expressions.append(_read(match))
        at, end = match.end(), match["end"]
    return expressions


def _read(match: re.Match[str]) -> Expression:
    if match["absent"]:
        return Expression(match["absent"], "DoesNotExist")
    if match["member"]:
        values = tuple(value.strip() for value in match["values"].split(","))
        return Expression(match["member"], "In" if match["word"] == "in" else "NotIn", values)
    if match["sign"]:
        return Expression(match["key"], "NotIn" if match["sign"] == "!=" else "In", (match["value"],))
    return Expression(match["key"], "Exists")


def has_all(required: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """True if all required labels are there with these values."""
    return all(labels.get(key) == value for key, value in required.items())
