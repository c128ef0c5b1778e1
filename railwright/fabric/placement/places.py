"""Indexes the leaf of each node and the size of each domain, for one set of domain keys; updated from the change log.

All signatures of a fabric share it, so a new kind of job does not read all node labels again.
"""

from collections.abc import Mapping

from railwright.fabric import topology
from railwright.fabric.placement import fleet


class Places:
    """The leaves of all nodes."""

    def __init__(self, state: fleet.Fleet, domains: tuple[str, ...], rails: tuple[str, ...]) -> None:
        self._state = state
        self._domains = domains
        self._rails = rails
        self._seen = -1
        self._sizes: dict[topology.Domain, int] | None = None
        self.leaves: dict[str, topology.Domain] = {}
        self.nodes: dict[topology.Domain, dict[str, None]] = {}  # leaf -> its nodes

    def refresh(self) -> None:
        """Update the nodes that changed since the last call."""
        touched = self._state.journal.since(self._seen)
        self._seen = self._state.journal.position
        if touched is None:
            self.leaves.clear()
            self.nodes.clear()
            self._sizes = None
            touched = self._state.nodes
        for name in touched:
            self._place(name)

    def _place(self, name: str) -> None:
        node = self._state.nodes.get(name)
        leaf = None if node is None else topology.domain(self._state.place(node, self._domains, self._rails))
        old = self.leaves.get(name)
        if old == leaf:
            return
        self._sizes = None
        if old is not None:
            del self.leaves[name], self.nodes[old][name]
            if not self.nodes[old]:
                del self.nodes[old]
        if leaf is not None:
            self.leaves[name] = leaf
            self.nodes.setdefault(leaf, {})[name] = None

    @property
    def sizes(self) -> Mapping[topology.Domain, int]:
        """Return the number of nodes of each domain at any level, free or not."""
        if self._sizes is None:
            self._sizes = {}
            for leaf, names in self.nodes.items():
                for level in range(len(leaf)):
                    self._sizes[leaf[level:]] = self._sizes.get(leaf[level:], 0) + len(names)
        return self._sizes
