"""Which nodes changed since a reader last looked, so that what was worked out for the others still holds.

Owns an order of touches and nothing of what they were. Readers keep a position of their own; one that comes after too
many touches is told to look at everything again.
"""

from collections.abc import Collection

_KEPT = 65536  # touches; a reader further behind would gain nothing over looking at every node


class Journal:
    """Names of touched nodes, in order of touch."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._start = 0

    @property
    def position(self) -> int:
        """Where a reader that has seen everything stands."""
        return self._start + len(self._names)

    def touch(self, node: str) -> None:
        """Something about this node changed."""
        self._names.append(node)
        if len(self._names) > _KEPT:
            half = len(self._names) // 2
            del self._names[:half]
            self._start += half

    def touch_all(self) -> None:
        """Every node may have changed."""
        self._start = self.position + 1
        self._names.clear()

    def since(self, position: int) -> Collection[str] | None:
        """The nodes touched after that position, each once; None where everything has to be looked at."""
        if position < self._start:
            return None
        return dict.fromkeys(self._names[position - self._start :])
