"""Parses Kubernetes quantities exactly, as k8s.io/apimachinery/pkg/api/resource does.

A quantity is a signed decimal number with a binary suffix (Ki..Ei), a decimal suffix (n, u, m, k..E) or an exponent
(e3, E-2).
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
# Thousandths in one of a suffix: whole numbers with these are parsed without fractions. A pod may have 20,000 of them.
_MILLI = {suffix: int(factor * 1000) for suffix, factor in _SUFFIXES.items() if factor >= _SUFFIXES["m"]}
_WHOLE = re.compile(r"(\d{1,18})([eE]\d{1,2}|[mkMGTPE]|[KMGTPE]i|)", re.ASCII)
_MAX_TEXT = 64  # characters; canonical quantities have fewer than 30, and much longer ones would be slow to parse
_MAX_DIGITS = 18  # of a whole number that cannot exceed _MAX_VALUE
_MAX_EXPONENT = 200  # with at most 64 digits, larger exponents give the same capped or rounded value
_MAX_VALUE = Fraction(2**63 - 1)  # larger values are capped (resource/quantity.go, ParseQuantity: maxAllowed)
_MAX_MILLI = int(_MAX_VALUE) * 1000
_MIN_VALUE = Fraction(1, 10**9)  # smaller values are rounded up to it (minAllowed)


class InvalidQuantityError(ValueError):
    """Raised if the text is not a Kubernetes quantity. The message contains the text, truncated."""

    def __init__(self, text: str) -> None:
        super().__init__(f"{text[:_MAX_TEXT]!r} is not a Kubernetes quantity such as 1, 500m or 64Gi")


@functools.lru_cache(maxsize=4096, typed=True)  # typed: `True` must not hit the cache entry of 1
def parse(text: str | float) -> Fraction:
    """Return the exact value of a quantity, within Kubernetes' bounds. Raises InvalidQuantityError.

    Numbers from YAML (1, 0.5) are valid quantities.
    """
    number_text = str(text) if not isinstance(text, bool) else "bool"
    match = _NUMBER.fullmatch(number_text) if len(number_text) <= _MAX_TEXT else None
    if match is None:
        raise InvalidQuantityError(number_text)
    sign, digits, suffix = match.groups()
    factor = _SUFFIXES.get(suffix)
    if factor is None:
        exponent = max(-_MAX_EXPONENT, min(int(suffix[1:]), _MAX_EXPONENT))
        factor = Fraction(10) ** exponent
    value = min(Fraction(digits) * factor, _MAX_VALUE)
    if 0 < value < _MIN_VALUE:
        value = _MIN_VALUE
    return -value if sign == "-" else value


def parse_units(text: str | float) -> int:
    """Return the value in units, rounded up as Kubernetes' Value() does."""
    if isinstance(text, str) and len(text) <= _MAX_DIGITS and text.isascii() and text.isdigit():
        return int(text)  # a number of devices
    return _round_up(parse(text))


def read_units(text: str | float) -> int:
    """Return the value in units as `parse_units` does, 0 for a text that is not a quantity."""
    try:
        return parse_units(text)
    except InvalidQuantityError:
        return 0


@functools.lru_cache(maxsize=4096, typed=True)  # nodes and pods of a cluster share most quantities
def parse_milli(text: str | float) -> int:
    """Return the value in thousandths, rounded up as Kubernetes' MilliValue() does."""
    whole = _WHOLE.fullmatch(text) if isinstance(text, str) else None
    if whole is None:
        return _round_up(parse(text) * 1000)
    digits, suffix = whole.groups()
    factor = _MILLI.get(suffix) or 1000 * 10 ** int(suffix[1:])
    return min(int(digits) * factor, _MAX_MILLI)


def _round_up(value: Fraction) -> int:
    return -(-value.numerator // value.denominator)
