"""Kubernetes quantities as exact integers.

Owns the grammar of k8s.io/apimachinery/pkg/api/resource: a signed decimal number with a binary suffix
(Ki..Ei), a decimal one (n, u, m, k..E) or an exponent (e3, E-2). Knows nothing of what is measured.
"""

import functools
import re
from fractions import Fraction

_NUMBER = re.compile(r"([+-]?)(\d+\.?\d*|\.\d+)([eE][+-]?\d+|[numkMGTPE]|[KMGTPE]i|)", re.ASCII)
_SUFFIXES = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    **{letter: Fraction(10) ** (3 * power) for power, letter in enumerate("kMGTPE", start=1)},
    **{f"{letter}i": Fraction(2) ** (10 * power) for power, letter in enumerate("KMGTPE", start=1)},
}
_MAX_TEXT = 64  # the longest canonical quantity is under 30 characters; a longer one is an attack on the parser
_MAX_EXPONENT = 200  # with at most 64 digits nothing changes beyond: the value is capped, or rounded up, either way
_MOST = Fraction(2**63 - 1)  # larger values are capped (resource/quantity.go, ParseQuantity: maxAllowed)
_LEAST = Fraction(1, 10**9)  # smaller ones are rounded up to it (minAllowed)


class InvalidQuantityError(ValueError):
    """The text is not a Kubernetes quantity; the message holds the text, shortened."""

    def __init__(self, text: str) -> None:
        super().__init__(f"{text[:_MAX_TEXT]!r} is not a Kubernetes quantity such as 1, 500m or 64Gi")


@functools.lru_cache(maxsize=4096, typed=True)  # True is no 1
def parse(text: str | float) -> Fraction:
    """The value of a quantity, exact within Kubernetes' bounds; numbers from YAML (1, 0.5) are quantities too.

    Raises InvalidQuantityError.
    """
    written = str(text) if not isinstance(text, bool) else "bool"
    match = _NUMBER.fullmatch(written) if len(written) <= _MAX_TEXT else None
    if match is None:
        raise InvalidQuantityError(written)
    sign, digits, suffix = match.groups()
    factor = _SUFFIXES.get(suffix)
    if factor is None:
        exponent = max(-_MAX_EXPONENT, min(int(suffix[1:]), _MAX_EXPONENT))
        factor = Fraction(10) ** exponent
    value = min(Fraction(digits) * factor, _MOST)
    if 0 < value < _LEAST:
        value = _LEAST
    return -value if sign == "-" else value


def whole(text: str | float) -> int:
    """The value in units, rounded up as Kubernetes' Value() does."""
    return _ceil(parse(text))


@functools.lru_cache(maxsize=4096, typed=True)  # of 5,000 nodes and their pods most quantities are the same few
def milli(text: str | float) -> int:
    """The value in thousandths, rounded up as Kubernetes' MilliValue() does."""
    return _ceil(parse(text) * 1000)


def _ceil(value: Fraction) -> int:
    return -(-value.numerator // value.denominator)
