"""Combines tables of test cases."""

from collections.abc import Sequence
from typing import Any


def pair(*tables: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Return as many combinations as the longest table has rows, with each row of every table in one of them at least.

    For tables whose rows do not interact: their product would show nothing more.
    """
    return [tuple(table[number % len(table)] for table in tables) for number in range(max(map(len, tables)))]
