"""Indexes the leaf of each node and the size of each domain, for one set of domain keys; updated from the change log.

All signatures of a fabric share it, so a new kind of job does not read all node labels again.
"""

from collections.abc import Mapping

from railwright.fabric import topology
from railwright.fabric.placement.state import cluster_state


class DomainIndex:
    """The leaves of all nodes."""

    def __init__(self, cluster: cluster_state.ClusterState, domains: tuple[str, ...], rails: tuple[str, ...]) -> None:
        self._cluster = cluster
        self._domains = domains
        self._rails = rails
        self._position = -1
        self._domain_sizes: dict[topology.Domain, int] | None = None
        self.leaf_by_node: dict[str, topology.Domain] = {}
        self.nodes_by_leaf: dict[topology.Domain, dict[str, None]] = {}  # leaf -> its nodes

    def refresh(self) -> None:
        """Update the nodes that changed since the last call."""
        changed = self._cluster.change_log.read_since(self._position)
        self._position = self._cluster.change_log.position
        if changed is None:
            self.leaf_by_node.clear()
            self.nodes_by_leaf.clear()
            self._domain_sizes = None
            changed = self._cluster.nodes
        for name in changed:
            self._update_node(name)

    def _update_node(self, name: str) -> None:
        node = self._cluster.nodes.get(name)
        leaf = None if node is None else topology.get_domain(self._cluster.locate(node, self._domains, self._rails))
        old = self.leaf_by_node.get(name)
        if old == leaf:
            return
        self._domain_sizes = None
        if old is not None:
            del self.leaf_by_node[name], self.nodes_by_leaf[old][name]
            if not self.nodes_by_leaf[old]:
                del self.nodes_by_leaf[old]
        if leaf is not None:
            self.leaf_by_node[name] = leaf
            self.nodes_by_leaf.setdefault(leaf, {})[name] = None

    @property
    def domain_sizes(self) -> Mapping[topology.Domain, int]:
        """Return the number of nodes of each domain at any level, free or not."""
        if self._domain_sizes is None:
            self._domain_sizes = {}
            for leaf, names in self.nodes_by_leaf.items():
                for level in range(len(leaf)):
                    self._domain_sizes[leaf[level:]] = self._domain_sizes.get(leaf[level:], 0) + len(names)
        return self._domain_sizes
