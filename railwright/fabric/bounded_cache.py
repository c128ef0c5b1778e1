"""A cache of limited size, and a function that interns the strings of mappings.

Keys are values or versions, never identities of objects, so that equal inputs find equal results. Strings, such as
names of labels, resources and namespaces, take most of a cache's memory, and thousands of nodes and pods share them.
"""

import sys
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """Stores at most `capacity` values, and is cleared when full. Not thread-safe: used by one event loop."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._values: dict[K, V] = {}

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: K) -> V | None:
        """Return the value of a key, or None."""
        return self._values.get(key)

    def add(self, key: K, value: V) -> None:
        """Store the value of a key. A full cache is cleared first."""
        if len(self._values) >= self._capacity:
            self._values.clear()
        self._values[key] = value

    def get_or_compute(self, key: K, compute: Callable[[], V]) -> V:
        """Return the value of a key. If the cache lacks it, compute and store it."""
        value = self._values.get(key)
        if value is None:
            value = compute()
            self.add(key, value)
        return value

    def clear(self) -> None:
        """Remove all values."""
        self._values.clear()


Text = TypeVar("Text", str, str | int | float)


def intern_strings(mapping: Mapping[str, Text]) -> dict[str, Text]:
    """Return a copy of the mapping with interned keys and values. Numbers stay as they are."""
    intern = sys.intern
    return {intern(key): intern(value) if isinstance(value, str) else value for key, value in mapping.items()}
