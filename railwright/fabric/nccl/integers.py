"""Parses a number as NCCL does (NVIDIA/nccl src/misc/param.cc: strtoll with base 0, observed on four releases).

Up to 2.31 NCCL read text without digits as 0. The catalogue lists the variables that are parsed this way.
"""

import re

_NUMBER = re.compile(r"[ \t\n\v\f\r]*([+-]?)(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)", re.ASCII)  # C's strtoll
_DECIMAL = re.compile(r"-?(0|[1-9][0-9]*)", re.ASCII)
_MAX_DIGITS = 25  # 64 bits have 22 octal digits; longer text always overflows


def parse(text: str) -> int | None:
    """Return the number that NCCL 2.32 and newer read from `text`.

    None: NCCL keeps its default, because it rejects the text, or treats an empty text as unset.
    """
    match = _NUMBER.match(text)
    if match is None:
        return None
    sign, digits = match.groups()
    base = 10 if digits[0] != "0" else 16 if digits[1:2] in ("x", "X") else 8
    significant = digits.lstrip("0xX") or "0"
    if len(significant) > _MAX_DIGITS:
        return None
    number = int(f"{sign}{significant}", base)
    return number if -(1 << 63) <= number < 1 << 63 else None


def is_unambiguous(text: str) -> bool:
    """True for decimal digits without a leading zero, which every release reads as the same number."""
    return _DECIMAL.fullmatch(text) is not None
