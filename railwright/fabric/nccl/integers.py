"""Parses a number as NCCL does (NVIDIA/nccl src/misc/param.cc: strtoll with base 0, observed on four releases).

Up to 2.31 NCCL read text without digits as 0. The catalogue lists the variables that are parsed this way.
"""

import re

_NUMBER = re.compile(r"[ \t\n\v\f\r]*([+-]?)(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)", re.ASCII)  # C's strtoll
_DECIMAL = re.compile(r"-?(0|[1-9][0-9]*)", re.ASCII)
_MAX_DIGITS = 25  # 64 bits have 22 octal digits; longer text always overflows


def parse(text: str) -> int | None:
    """Return the number that NCCL 2.32 and newer read from `text`.

    None: NCCL keeps its default, because it rejects the text, or because the text is empty as if it were not set.
    """
    match = _NUMBER.match(text)
    if match is None:
        return None
    sign, digits = match.groups()
    number = _convert_digits(digits)
    if number is None:
        return None
    number = -number if sign == "-" else number
    return number if -(1 << 63) <= number < 1 << 63 else None


def is_plain(text: str) -> bool:
    """True for decimal digits without a leading zero, which every release reads as the same number."""
    return _DECIMAL.fullmatch(text) is not None


def _convert_digits(digits: str) -> int | None:
    if digits[:2] in {"0x", "0X"}:
        digits, base = digits[2:].lstrip("0") or "0", 16
    elif digits[0] == "0":
        digits, base = digits.lstrip("0") or "0", 8
    else:
        base = 10
    return int(digits, base) if len(digits) <= _MAX_DIGITS else None
