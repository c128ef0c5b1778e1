"""Combines tables of independent test cases into as few cases as possible."""

from collections.abc import Sequence
from typing import Any


def pair(*tables: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Return combinations with each row of every table at least once, as many as the longest table has rows.

    Use it for tables whose rows are independent of each other.
    """
    return [tuple(table[number % len(table)] for table in tables) for number in range(max(map(len, tables)))]
