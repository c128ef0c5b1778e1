"""A change log of node names, so that caches recompute only the nodes that changed.

Each reader stores its own position. A reader that is too far behind has to recompute all nodes.
"""

from collections.abc import Collection

_MAX_CHANGES = 65536  # changes; for a reader further behind, recomputing all nodes is not slower


class ChangeLog:
    """The names of changed nodes, in order of change."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._start = 0

    @property
    def position(self) -> int:
        """Return the position of a reader that is up to date."""
        return self._start + len(self._names)

    def record(self, node: str) -> None:
        """Record a change of a node."""
        self._names.append(node)
        if len(self._names) > _MAX_CHANGES:
            half = len(self._names) // 2
            del self._names[:half]
            self._start += half

    def record_all(self) -> None:
        """Record that any node may have changed."""
        self._start = self.position + 1
        self._names.clear()

    def read_since(self, position: int) -> Collection[str] | None:
        """Return the distinct nodes that changed after this position, or None if all nodes must be recomputed."""
        if position < self._start:
            return None
        return dict.fromkeys(self._names[position - self._start :])
