"""Sorts names by the numbers in them: node-2 before node-10."""

import functools
import re

_DIGITS = re.compile(r"(\d+)")
_MAX_DIGITS = 18  # only this many final digits are compared as a number; longer runs are identifiers, not counts

Key = tuple[tuple[int, str], ...]


@functools.lru_cache(maxsize=65536)  # the names of a cluster are sorted at every refresh
def build_natural_key(name: str) -> Key:
    """Return a sort key that compares runs of digits as numbers."""
    return tuple(
        (int(part[-_MAX_DIGITS:]), part) if part.isascii() and part.isdigit() else (-1, part)
        for part in _DIGITS.split(name)
    )
