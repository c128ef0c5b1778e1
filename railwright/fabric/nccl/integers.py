"""Parses a number as NCCL does (NVIDIA/nccl src/misc/param.cc: strtoll with base 0, observed on four releases).

NCCL 2.32 changed how text without digits is read. The catalogue lists the variables that are parsed this way.
"""

import re

_NUMBER = re.compile(r"[ \t\n\v\f\r]*([+-]?)(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)", re.ASCII)  # C's strtoll
_DECIMAL = re.compile(r"-?(0|[1-9][0-9]*)", re.ASCII)
_LEADING_ZERO = re.compile(r"-?0[0-9]+", re.ASCII)
_MAX_DIGITS = 25  # 64 bits have 22 octal digits; longer text always overflows
_WORDS_REJECTED = (2, 32)  # first release that keeps the default for text without digits


def parse(text: str, version: tuple[int, ...] | None = None) -> int | None:
    """Return the number that an NCCL release reads from `text`; the newest release if `version` is None.

    None: NCCL keeps its default, because it rejects the text, or because the text is empty as if it were not set.
    """
    if not text:
        return None
    match = _NUMBER.match(text)
    if match is None:
        return 0 if version is not None and version < _WORDS_REJECTED else None
    sign, digits = match.groups()
    number = _convert_digits(digits)
    if number is None:
        return None
    number = -number if sign == "-" else number
    return number if -(1 << 63) <= number < 1 << 63 else None


def is_plain(text: str) -> bool:
    """True for decimal digits without a leading zero, which every release reads as the same number."""
    return _DECIMAL.fullmatch(text) is not None


def is_octal(text: str) -> bool:
    """True for decimal digits after a leading zero, which NCCL reads in base 8."""
    return _LEADING_ZERO.fullmatch(text) is not None


def _convert_digits(digits: str) -> int | None:
    if digits[:2] in {"0x", "0X"}:
        digits, base = digits[2:].lstrip("0") or "0", 16
    elif digits[0] == "0":
        digits, base = digits.lstrip("0") or "0", 8
    else:
        base = 10
    return int(digits, base) if len(digits) <= _MAX_DIGITS else None
