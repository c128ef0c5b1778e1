"""Interns strings such as label names, resource names, node types and namespaces.

Strings take most of a cache's memory, and thousands of nodes and pods share most of them.
"""

from collections.abc import Mapping
from typing import TypeVar

Text = TypeVar("Text", str, str | int | float)
MAX_STRINGS = 1 << 16  # strings; 6 MiB at 100 bytes each. Labels and values that nodes share are a few thousand.


class StringInterner:
    """String interner with a bounded table. On overflow the table is cleared; existing references stay valid."""

    def __init__(self) -> None:
        self._table: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._table)

    def intern(self, text: str) -> str:
        """Return the first string that equals `text`."""
        if len(self._table) >= MAX_STRINGS:
            self._table.clear()
        return self._table.setdefault(text, text)

    def intern_mapping(self, mapping: Mapping[str, Text]) -> dict[str, Text]:
        """Return a copy of the mapping with interned keys and values. Numbers stay as they are."""
        intern = self.intern
        return {intern(key): intern(value) if isinstance(value, str) else value for key, value in mapping.items()}
