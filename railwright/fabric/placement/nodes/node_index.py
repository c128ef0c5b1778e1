"""Caches the classes of all nodes for one scheduling signature, updated from the change logs.

Nodes with equal facts form one class, which is evaluated and scored once, and only changed nodes are looked at again. A
decision over 5,000 nodes therefore costs as much as one over a few nodes. The cache can be dropped at any time.
"""

import itertools
from collections import Counter, OrderedDict
from collections.abc import Collection, Generator, Hashable, Iterator, Mapping, Sequence

from railwright.fabric import topology
from railwright.fabric.placement import bandwidth
from railwright.fabric.placement.nodes import (
    eligibility,
    facts_builder,
    node_evaluation,
    scheduling_signature,
    score_terms,
)
from railwright.fabric.placement.state import assumed_pods, cluster_state

MAX_INDEXES = 64  # cached signatures, 0.3 MB each at 5,000 nodes; 1.3 MB if no two nodes have the same amounts free
_MAX_CLASSES = 20_000  # node classes; the index is rebuilt above that
_MAX_INPUTS = 4096  # inputs of facts that are remembered; many are of states that no node has any more
_NODES_PER_STEP = 100  # evaluated between two turns of an event loop: 1 to 5 ms for nodes of a new kind of pod
_NODES_AT_ONCE = 2500  # added to the index between two turns if they are of few types: a millisecond


class NodeIndex:
    """The classes of all nodes for one scheduling signature. With `below`, pods of lower priority count as removed."""

    def __init__(  # noqa: PLR0913 - one argument for each input
        self,
        signature: scheduling_signature.SchedulingSignature,
        cluster: cluster_state.ClusterState,
        assumed: assumed_pods.AssumedPods,
        domains: cluster_state.DomainIndex,
        kinds: facts_builder.NodeKinds,
        *,
        below: int | None = None,
    ) -> None:
        self.signature = signature
        self._below = below
        self.facts = facts_builder.FactsBuilder(signature, cluster, assumed, kinds)
        self.weights = score_terms.Weights(signature)
        self._domain_index, self._kinds = domains, kinds
        self._cluster = cluster
        self._change_logs = (cluster.change_log, assumed.change_log)
        self._clear()

    def _clear(self) -> None:
        self._positions: tuple[int, int] = (-1, -1)  # in the change logs
        self._changed: dict[str, None] = {}  # nodes that the change logs named and that are not evaluated yet
        self._class_by_facts: dict[node_evaluation.NodeFacts, node_evaluation.NodeClass] = {}
        self._class_by_inputs: dict[Hashable, node_evaluation.NodeClass] = {}  # of the facts
        self.class_of_node: dict[str, node_evaluation.NodeClass] = {}
        self.leaf_by_node: dict[str, topology.Domain] = {}
        # leaf -> class -> number of nodes; a changed leaf gets a new dictionary, so that decisions can keep the old one
        self.nodes_by_class: dict[topology.Domain, node_evaluation.Counts] = {}

    @property
    def classes(self) -> Collection[node_evaluation.NodeClass]:
        """Return all classes, also those that no node has now."""
        return self._class_by_facts.values()

    @property
    def nodes_by_leaf(self) -> Mapping[topology.Domain, Mapping[str, None]]:
        """Return the nodes of each leaf."""
        return self._domain_index.nodes_by_leaf

    @property
    def uplinks(self) -> bandwidth.Uplinks:
        """Return the uplinks of all domains, as a gang of such pods uses them."""
        ratios = self.signature.fabric.placement.oversubscription
        return bandwidth.Uplinks(self._domain_index.domain_sizes, ratios, self.signature.links)

    def get_class(self, facts: node_evaluation.NodeFacts) -> node_evaluation.NodeClass:
        """Return the class of nodes with these facts; add it if it is new."""
        known = self._class_by_facts.get(facts)
        if known is None:
            evaluation = node_evaluation.evaluate(self.signature, facts)
            known = self._class_by_facts[facts] = node_evaluation.NodeClass(
                evaluation=evaluation,
                capacity=evaluation.capacity,
                score=self.weights.score(evaluation),
                fill_order=self.weights.compute_fill_order(evaluation),
                has_room=node_evaluation.has_room(self.signature, facts),
            )
        return known

    def refresh(self) -> None:
        """Evaluate the nodes that changed since the last call."""
        for _ in self.refresh_in_steps():
            pass

    def refresh_in_steps(self) -> Iterator[None]:
        """Evaluate the changed nodes, and yield after some: 5,000 take 50 ms for a new kind of pod.

        The index is usable once this, or a `refresh` that comes in between, has ended.
        """
        if len(self._class_by_facts) > _MAX_CLASSES:
            self._clear()
        if len(self._class_by_inputs) > _MAX_INPUTS:
            self._class_by_inputs = {}  # nodes keep their classes
        has_types = self._below is None and not eligibility.depends_on_labels(self.signature.spec)
        most = _NODES_AT_ONCE if has_types else _NODES_PER_STEP
        while self._read_changes():
            names = list(itertools.islice(self._changed, most))
            is_new = self.class_of_node.keys().isdisjoint(names) and self._cluster.nodes.keys() >= set(names)
            if most > _NODES_PER_STEP and not (is_new and self._count_evaluations(names) <= _NODES_PER_STEP):
                most = _NODES_PER_STEP
                names = names[:most]
            if len(names) == len(self._changed):
                self._changed = {}  # an emptied dictionary would keep its memory
            else:
                for name in names:
                    del self._changed[name]
            (self._add_nodes if is_new else self._update_nodes)(names)
            if self._changed:
                yield

    def _count_evaluations(self, names: Sequence[str]) -> int:
        """Return how many evaluations the classes of these nodes take at most: nodes of one type share one."""
        inputs = self.facts.read_inputs(names)
        return inputs.count(None) + len(set(inputs))

    def _read_changes(self) -> bool:
        """Note the nodes that changed since the last call. True if any node is to be evaluated."""
        self._domain_index.refresh()
        self._kinds.refresh()
        changes = [log.read_since(position) for log, position in zip(self._change_logs, self._positions, strict=True)]
        if None in changes:
            self._clear()
            changes = [self._cluster.list_names()]
        self._positions = (self._change_logs[0].position, self._change_logs[1].position)
        for names in changes:
            self._changed |= dict.fromkeys(names or ())
        return bool(self._changed)

    def _add_nodes(self, names: Sequence[str]) -> None:
        """Evaluate and count nodes that the index does not have: all of them for a new kind of pod."""
        classes, leaves = self._find_classes(names), list(map(self._domain_index.leaf_by_node.__getitem__, names))
        self.class_of_node.update(zip(names, classes, strict=True))
        self.leaf_by_node.update(zip(names, leaves, strict=True))
        copied: dict[topology.Domain, node_evaluation.Counts] = {}
        for (leaf, node_class), nodes in Counter(zip(leaves, classes, strict=True)).items():
            counts = self._copy_counts(leaf, copied)
            counts[node_class] = counts.get(node_class, 0) + nodes

    def _update_nodes(self, names: Sequence[str]) -> None:
        """Evaluate nodes, and count them by leaf and class. The counts of a leaf are copied once."""
        nodes, leaf_by_node, class_of_node = self._cluster.nodes, self.leaf_by_node, self.class_of_node
        copied: dict[topology.Domain, node_evaluation.Counts] = {}
        for name in names:
            node, old = nodes.get(name), class_of_node.get(name)
            leaf = self._domain_index.leaf_by_node[name] if node is not None else None
            if old is not None and leaf != (counted := leaf_by_node[name]):
                del class_of_node[name], leaf_by_node[name]
                node_evaluation.move_node(self._copy_counts(counted, copied), old, None)
                old = None
            if node is None or leaf is None:
                continue
            (new,) = self._find_classes([name])
            if old is not new:
                counts = copied.get(leaf)
                if counts is None:
                    counts = self._copy_counts(leaf, copied)
                node_evaluation.move_node(counts, old, new)
                leaf_by_node[name] = leaf
                class_of_node[name] = new
        for leaf, counts in copied.items():
            if not counts:
                del self.nodes_by_class[leaf]

    def _copy_counts(
        self, leaf: topology.Domain, copied: dict[topology.Domain, node_evaluation.Counts]
    ) -> node_evaluation.Counts:
        """Return the counts of a leaf to change, which no decision keeps."""
        if leaf not in copied:
            copied[leaf] = self.nodes_by_class[leaf] = dict(self.nodes_by_class.get(leaf, ()))
        return copied[leaf]

    def _find_classes(self, names: Sequence[str]) -> Sequence[node_evaluation.NodeClass]:
        """Return the class of each node. Thousands of nodes are of a few types, each of which is evaluated once."""
        known, inputs, removed = self._class_by_inputs, self.facts.read_inputs(names), {}
        if self._below is not None:
            removed = {name: uids for name in names if (uids := self._cluster.list_below(name, self._below))}
            inputs = [None if name in removed else value for name, value in zip(names, inputs, strict=True)]
        return [
            known.get(value) or self._evaluate(name, value, removed.get(name, frozenset()))
            for name, value in zip(names, inputs, strict=True)
        ]

    def _evaluate(self, name: str, inputs: Hashable, removed: frozenset[str]) -> node_evaluation.NodeClass:
        """Return the class of a node without some of its pods, and remember it for these inputs."""
        absent = facts_builder.Absent(removed_uids=removed)
        node_class = self.get_class(self.facts.build(self._cluster.nodes[name], absent=absent))
        if inputs is not None:
            self._class_by_inputs[inputs] = node_class
        return node_class


class NodeIndexes:
    """The node indexes of the most recently used signatures."""

    def __init__(self, cluster: cluster_state.ClusterState, assumed: assumed_pods.AssumedPods) -> None:
        self._cluster = cluster
        self._assumed = assumed
        self._indexes: OrderedDict[Hashable, NodeIndex] = OrderedDict()
        self._domain_indexes: OrderedDict[Hashable, cluster_state.DomainIndex] = OrderedDict()
        self._kinds = facts_builder.NodeKinds(cluster)

    def get(self, signature: scheduling_signature.SchedulingSignature, below: int | None = None) -> NodeIndex:
        """Return the node index of a signature, updated. With `below`, pods of lower priority count as removed."""
        index = self._get(signature, below)
        index.refresh()
        return index

    def prepare(
        self, signature: scheduling_signature.SchedulingSignature, below: int | None = None
    ) -> Generator[None, None, NodeIndex]:
        """Update the node index that `get` returns, and yield after some nodes. Return the index."""
        index = self._get(signature, below)
        yield from index.refresh_in_steps()
        return index

    def _get(self, signature: scheduling_signature.SchedulingSignature, below: int | None) -> NodeIndex:
        key = (signature.key, below)
        index = self._indexes.get(key)
        if index is None:
            domains = self._get_domain_index(signature.domains, tuple(rail.name for rail in signature.fabric.rails))
            index = self._indexes[key] = NodeIndex(
                signature, self._cluster, self._assumed, domains, self._kinds, below=below
            )
            if len(self._indexes) > MAX_INDEXES:
                self._indexes.popitem(last=False)
        self._indexes.move_to_end(key)
        return index

    def prewarm(self, domains: tuple[str, ...], rails: tuple[str, ...]) -> None:
        """Compute in advance what all signatures of a fabric share: the leaf and the kind of each node."""
        self._get_domain_index(domains, rails).refresh()
        self._kinds.refresh()
        self._kinds.find(list(self._cluster.nodes))

    def _get_domain_index(self, domains: tuple[str, ...], rails: tuple[str, ...]) -> cluster_state.DomainIndex:
        key = (domains, rails)
        index = self._domain_indexes.get(key)
        if index is None:
            index = self._domain_indexes[key] = cluster_state.DomainIndex(self._cluster, domains, rails)
            if len(self._domain_indexes) > MAX_INDEXES:
                self._domain_indexes.popitem(last=False)
        return index
