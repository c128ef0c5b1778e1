"""One object for each text, however many objects say it: names of labels and resources, node types, namespaces.

Owns how many are remembered. Texts are what most of a cache is made of, and in a cluster most of them are said by
thousands of nodes and pods.
"""

from collections.abc import Mapping
from typing import TypeVar

Text = TypeVar("Text", str, str | int | float)
KEPT = 1 << 16  # texts of 100 bytes: 6 MiB at the most; labels and values that all nodes share are a few thousand


class Words:
    """The texts said lately. Where there are too many it begins anew: what was shared before stays so."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._known)

    def one(self, text: str) -> str:
        """The text, as it was said first."""
        if len(self._known) >= KEPT:
            self._known.clear()
        return self._known.setdefault(text, text)

    def all_of(self, said: Mapping[str, Text]) -> dict[str, Text]:
        """The same mapping in shared texts; numbers stay."""
        one = self.one
        return {one(key): one(value) if isinstance(value, str) else value for key, value in said.items()}
