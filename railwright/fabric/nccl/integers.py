"""How NCCL reads a number (NVIDIA/nccl src/misc/param.cc: strtoll with base 0, observed on four releases).

Owns that one parser, with what changed in 2.32. Which variables go through it, the catalogue says.
"""

import enum
import re

_NUMBER = re.compile(r"[ \t\n\v\f\r]*([+-]?)(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)", re.ASCII)  # C's strtoll
_DECIMAL = re.compile(r"-?(0|[1-9][0-9]*)", re.ASCII)
_LEADING_ZERO = re.compile(r"-?0[0-9]+", re.ASCII)
_TOO_LONG = 25  # digits: 64 bits have 22 in octal; a longer text overflows and is not worth converting
_WORDS_REFUSED = (2, 32)  # from here on a text without digits keeps the default


class Kept(enum.StrEnum):
    """Nothing was taken."""

    UNSET = "unset"  # as if the variable were not there
    DEFAULT = "default"  # refused: the default stays


def read(text: str, version: tuple[int, ...] | None = None) -> int | Kept:
    """What NCCL of a release takes for a text; the newest where none is named."""
    if not text:
        return Kept.UNSET
    found = _NUMBER.match(text)
    if found is None:
        return 0 if version is not None and version < _WORDS_REFUSED else Kept.DEFAULT
    sign, digits = found.groups()
    number = _value(digits)
    if number is None:
        return Kept.DEFAULT
    number = -number if sign == "-" else number
    return number if -(1 << 63) <= number < 1 << 63 else Kept.DEFAULT


def plain(text: str) -> bool:
    """True for decimal digits as a person writes them: what every release reads alike."""
    return _DECIMAL.fullmatch(text) is not None


def octal(text: str) -> bool:
    """True for decimal digits behind a zero, which are read with base 8."""
    return _LEADING_ZERO.fullmatch(text) is not None


def _value(digits: str) -> int | None:
    if digits[:2] in {"0x", "0X"}:
        digits, base = digits[2:].lstrip("0") or "0", 16
    elif digits[0] == "0":
        digits, base = digits.lstrip("0") or "0", 8
    else:
        base = 10
    return int(digits, base) if len(digits) <= _TOO_LONG else None
