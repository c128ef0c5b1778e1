"""Reads integers in labels and taints as Kubernetes does."""

import re
from collections.abc import Callable

_PARSE_INT = re.compile(r"[+-]?[0-9]+", re.ASCII)  # Go's strconv.ParseInt in base 10: no underscores, no other digits
_CANONICAL = re.compile(r"0|-?[1-9][0-9]*", re.ASCII)  # apimachinery's IsDecimalInteger: also no sign +, no zeros first
_MAX_DIGITS = 4096  # of zeros before a number; labels have at most 63 characters
_MAX = 2**63


def parse_int64(text: str, *, canonical: bool = False) -> int | None:
    """Return the 64-bit integer in a text, or None. With `canonical`, leading zeros and `+` are not accepted."""
    if len(text) > _MAX_DIGITS or not (_CANONICAL if canonical else _PARSE_INT).fullmatch(text):
        return None
    number = int(text)
    return number if -_MAX <= number < _MAX else None


def build_comparison(compare: Callable[[int, int], bool], *, canonical: bool = False) -> Callable[[str, str], bool]:
    """Return a function that compares the integers in two texts; it returns False if a text has none."""

    def test(text: str, bound: str) -> bool:
        left, right = parse_int64(text, canonical=canonical), parse_int64(bound, canonical=canonical)
        return left is not None and right is not None and compare(left, right)

    return test
