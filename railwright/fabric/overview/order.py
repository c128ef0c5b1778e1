"""The order in which people look for names: node-2 before node-10.

Owns that order and nothing else.
"""

import functools
import re

_DIGITS = re.compile(r"(\d+)")
_LONGEST = 18  # digits read as a number: longer ones are no count of anything

Key = tuple[tuple[int, str], ...]


@functools.lru_cache(maxsize=65536)  # every name of a cluster is sorted again and again
def natural(name: str) -> Key:
    """A sort key: numbers in a name count as numbers."""
    return tuple(
        (int(part[-_LONGEST:]), part) if part.isascii() and part.isdigit() else (-1, part)
        for part in _DIGITS.split(name)
    )
