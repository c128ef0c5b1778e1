"""Finds the class of every node for pods with one scheduling signature.

`NodeStates` follows the change logs. It has the leaf and the state of each node, which do not depend on the pod. Nodes
in one state are equal for every pod. A `NodeIndex` evaluates each state once for its signature, and states with equal
facts form one class. So the cost of a decision depends on the number of states, not of nodes. A `RequestView` adds the
overrides of one request: nodes of peers, and the pod's own old node.
"""

import functools
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence

import msgspec

from railwright.fabric import bounded_cache, resources, topology
from railwright.fabric.placement import bandwidth, scheduling_request
from railwright.fabric.placement.nodes import (
    eligibility,
    facts_builder,
    node_evaluation,
    score_terms,
)
from railwright.fabric.placement.state import cluster_state, gang_status, object_info, pod_usage
from railwright.fabric.policy import model

_MAX_STATES = 8192  # that no node is in any more, but of which the classes are known; 0.3 to 0.6 kB each


class NodeState(msgspec.Struct, frozen=True, eq=False):
    """The facts about nodes that are the same for every pod, without their labels."""

    node: object_info.NodeInfo  # one of them
    free: resources.FrozenAmounts | None  # None: the only node, of which pods see more, such as free NUMA nodes


class NodeStates:
    """The leaf and the state of each node, for the pods of one fabric."""

    def __init__(
        self,
        cluster: cluster_state.ClusterState,
        domains: tuple[str, ...],
        rails: tuple[str, ...],
        shapes: Sequence[model.NodeShape],
    ) -> None:
        self._cluster, self._domains, self._rails, self._shapes = cluster, domains, rails, shapes
        self._positions = (-1, -1)  # in the change logs of the cluster state and of the assumed pods
        self._states: bounded_cache.BoundedCache[Hashable, NodeState] = bounded_cache.BoundedCache(_MAX_STATES)
        self._domain_sizes: dict[topology.Domain, int] = {}  # computed on demand
        self.by_node: dict[str, NodeState] = {}
        self.by_leaf: dict[topology.Domain, dict[NodeState, int]] = {}  # leaf -> state -> number of nodes
        self.leaf_by_node: dict[str, topology.Domain] = {}
        self.nodes_by_leaf: dict[topology.Domain, dict[str, None]] = {}  # leaf -> its nodes

    def refresh(self) -> None:
        """Update the nodes that changed since the last call."""
        logs = self._cluster.change_log, self._cluster.assumed.change_log
        changes = [log.read_since(position) for log, position in zip(logs, self._positions, strict=True)]
        if None in changes:
            changes = [dict.fromkeys([*self.by_node, *self._cluster.nodes])]
        self._positions = logs[0].position, logs[1].position
        for names in changes:
            for name in names or ():
                self._update(name)

    def _update(self, name: str) -> None:
        if (old := self.by_node.pop(name, None)) is not None:
            states = self.by_leaf[self.leaf_by_node[name]]
            states[old] -= 1
            if not states[old]:
                del states[old]
        node = self._cluster.nodes.get(name)
        leaf = None if node is None else self._cluster.find_leaf(node, self._domains, self._rails)
        if (before := self.leaf_by_node.get(name)) != leaf:
            self._domain_sizes = {}
            if before is not None:
                del self.leaf_by_node[name], self.nodes_by_leaf[before][name]
                if not self.nodes_by_leaf[before]:
                    del self.nodes_by_leaf[before], self.by_leaf[before]
            if leaf is not None:
                self.leaf_by_node[name] = leaf
                self.nodes_by_leaf.setdefault(leaf, {})[name] = None
        if node is not None:
            state = self.by_node[name] = self._read_state(node)
            states = self.by_leaf.setdefault(self.leaf_by_node[name], {})
            states[state] = states.get(state, 0) + 1

    @property
    def domain_sizes(self) -> Mapping[topology.Domain, int]:
        """Return the number of nodes of each domain at any level, free or not."""
        if not self._domain_sizes:
            sizes: Counter[topology.Domain] = Counter()
            for leaf, names in self.nodes_by_leaf.items():
                sizes.update(dict.fromkeys([leaf[level:] for level in range(len(leaf))], len(names)))
            self._domain_sizes = sizes
        return self._domain_sizes

    def _read_state(self, node: object_info.NodeInfo) -> NodeState:
        cluster, name = self._cluster, node.name
        has_shape = self._shapes and model.find_shape(self._shapes, node.labels) is not None
        if has_shape or name in cluster.topology_reports:
            return NodeState(node, None)
        free = resources.freeze(facts_builder.compute_free(name, cluster))
        product = node.labels.get(facts_builder.GPU_PRODUCT, "")
        taints = tuple([(taint.key, taint.value, taint.effect) for taint in node.taints])
        key = product, free, node.allocatable, node.capacity, node.broken_rails, node.schedulable, taints
        return self._states.find(key, lambda: NodeState(node, free))


class _ClassByState(dict[NodeState | None, node_evaluation.NodeClass | None]):
    """The class of each state, evaluated when it is first asked for; None for a node without a state."""

    def __init__(self, evaluate: Callable[[NodeState], node_evaluation.NodeClass]) -> None:
        super().__init__({None: None})
        self._evaluate = evaluate

    def __missing__(self, state: NodeState) -> node_evaluation.NodeClass:
        node_class = self[state] = self._evaluate(state)
        return node_class


class NodeIndex:
    """The classes of all nodes for one scheduling signature."""

    def __init__(
        self,
        signature: node_evaluation.SchedulingSignature,
        states: NodeStates,
        cluster: cluster_state.ClusterState,
    ) -> None:
        self.signature = signature
        self.facts = facts_builder.FactsBuilder(signature, cluster)
        self._uplinks_per_rail = signature.count_uplinks_per_rail()
        self._states, self._cluster = states, cluster
        self.leaf_by_node: Mapping[str, topology.Domain] = states.leaf_by_node
        self.nodes_by_leaf: Mapping[topology.Domain, Mapping[str, None]] = states.nodes_by_leaf
        self._class_by_facts: dict[node_evaluation.NodeFacts, node_evaluation.NodeClass] = {}
        self._class_by_state = _ClassByState(self._evaluate)
        self._unselected: tuple[int, Collection[str]] = (-1, ())  # at a version of the nodes

    def drop_past_states(self) -> None:
        """Clear the classes if most of them belong to states without nodes."""
        if len(self._class_by_state) > _MAX_STATES + 2 * len(self._states.by_node):
            self._class_by_state, self._class_by_facts = _ClassByState(self._evaluate), {}

    @property
    def uplinks(self) -> bandwidth.Uplinks:
        """Return the uplinks of all domains, as a gang of such pods uses them."""
        ratios = self.signature.fabric.placement.oversubscription
        return bandwidth.Uplinks(self._states.domain_sizes, ratios, self._uplinks_per_rail)

    def find_class(self, name: str) -> node_evaluation.NodeClass | None:
        """Return the class of a node; None if the cache does not contain it."""
        return self._class_by_state[self._states.by_node.get(name)]

    def find_classes(self, names: Iterable[str]) -> list[node_evaluation.NodeClass | None]:
        """Return the class of each of these nodes."""
        return list(map(self._class_by_state.__getitem__, map(self._states.by_node.get, names)))

    @property
    def class_of_node(self) -> Mapping[str, node_evaluation.NodeClass]:
        """Return the class of each node."""
        classes = zip(self._states.by_node, self.find_classes(self._states.by_node), strict=True)
        return {name: node_class for name, node_class in classes if node_class is not None}

    def count_classes(
        self, leaves: Iterable[topology.Domain] | None = None
    ) -> dict[topology.Domain, node_evaluation.Counts]:
        """Return the number of nodes of each class, by leaf; of all leaves unless `leaves` names some."""
        counts: dict[topology.Domain, node_evaluation.Counts] = {}
        for leaf in self._states.by_leaf if leaves is None else leaves:
            of_leaf = counts[leaf] = {}
            for state, nodes in self._states.by_leaf.get(leaf, {}).items():
                if (node_class := self._class_by_state[state]) is not None:
                    of_leaf[node_class] = of_leaf.get(node_class, 0) + nodes
        return counts

    def _evaluate(self, state: NodeState) -> node_evaluation.NodeClass:
        return self.get_class(self.facts.build(state.node, state.free))

    def get_class(self, facts: node_evaluation.NodeFacts) -> node_evaluation.NodeClass:
        """Return the class of nodes with these facts; add it if it is new."""
        known = self._class_by_facts.get(facts)
        if known is None:
            known = node_evaluation.evaluate(self.signature, facts)
            known = self._class_by_facts[facts] = msgspec.structs.replace(
                known,
                score=score_terms.compute_score(known, self.signature),
                fill_order=score_terms.compute_fill_order(known) if self.signature.is_single_pod else (),
            )
        return known

    @property
    def unselected(self) -> Collection[str]:
        """Return the nodes whose labels the pod's node selector or affinity excludes."""
        spec, version = self.signature.spec, self._cluster.nodes_version
        if not eligibility.depends_on_labels(spec):
            return ()
        if self._unselected[0] != version:
            nodes = self._cluster.nodes.items()
            self._unselected = version, {name for name, node in nodes if not eligibility.selects(node, spec)}
        return self._unselected[1]

    def exclude(self, names: Collection[str]) -> "Overrides":
        """Return the classes of these nodes as if they took no pod, without nodes that the cache does not have."""
        classes = self.find_classes(names)
        known = dict.fromkeys(node_class for node_class in classes if node_class)
        excluded = {node_class: self.get_class(node_class.facts._replace(eligible=False)) for node_class in known}
        return {name: excluded[node_class] for name, node_class in zip(names, classes, strict=True) if node_class}


# --- the index as one request sees it -------------------------------------------------------------------------

Overrides = dict[str, node_evaluation.NodeClass]
"""Node -> its class for one request, if that is not the class in the index."""


class RequestView:
    """The node index with the overrides of one request."""

    def __init__(
        self,
        request: scheduling_request.SchedulingRequest,
        index: NodeIndex,
        overrides: Mapping[str, node_evaluation.NodeClass],
    ) -> None:
        self.request = request
        self.index = index
        self.overrides = overrides

    def get_class(self, node: str) -> node_evaluation.NodeClass | None:
        """Return a node's class; None if the cache does not contain it."""
        return self.overrides.get(node) or self.index.find_class(node)

    def find_classes(self, nodes: Sequence[str]) -> list[node_evaluation.NodeClass | None]:
        """Return the class of each of these nodes; None if the cache does not contain it."""
        known = self.index.find_classes(nodes)
        return list(map(self.overrides.get, nodes, known)) if self.overrides else known

    def get_leaf(self, node: str) -> topology.Domain:
        """Return a node's leaf, or NO_DOMAIN if it has none."""
        return self.index.leaf_by_node.get(node, topology.NO_DOMAIN)

    @functools.cached_property
    def offered_leaves(self) -> frozenset[topology.Domain]:
        """Return the leaves that contain at least one candidate node."""
        leaves = frozenset(map(self.index.leaf_by_node.get, self.request.nodes))
        return frozenset([leaf for leaf in leaves if leaf is not None])


def find_overrides(
    request: scheduling_request.SchedulingRequest,
    index: NodeIndex,
    gang: gang_status.GangStatus,
    cluster: cluster_state.ClusterState,
) -> Overrides:
    """Return the nodes whose class for this request differs from the index.

    Peers of the requesting pod share its NICs. The pod's own old allocation never counts against it (docs/interface.md
    7.7).
    """
    unselected = {name for name in index.unselected if not (request.is_filtered and name in request.offered)}
    overrides = index.exclude(unselected)
    changed_nodes = {*pod_usage.list_nodes(cluster, request.uid)}
    if (assumed_pod := cluster.assumed.get(request.uid)) is not None:
        changed_nodes.add(assumed_pod.node)
    peer_requests = _list_peer_requests(index, gang.placed)
    for name in sorted(changed_nodes | peer_requests.keys()):  # between equal plans, the order of classes decides
        if name in cluster.nodes:
            facts = index.facts.build(cluster.nodes[name], None, peer_requests.get(name, ()), absent=[request.uid])
            overrides[name] = index.get_class(facts._replace(eligible=False) if name in unselected else facts)
    if request.is_announced:
        overrides |= _find_emptied(RequestView(request, index, overrides), cluster)
    return overrides


def _find_emptied(view: RequestView, cluster: cluster_state.ClusterState) -> Overrides:
    """Return the classes of candidate nodes with too few free resources, as if their bound pods were gone.

    Volcano scores such nodes to choose pods to preempt, or because pods there terminate. It does not count devices of
    ResourceSlices, so all of these may be in use.
    """
    emptied: Overrides = {}
    index, nodes = view.index, view.request.nodes
    classes = view.find_classes(nodes)
    full = {node_class for node_class in set(classes) if node_class is not None and node_class.is_full}
    for name, node_class in zip(nodes, classes, strict=True) if full else ():
        if node_class is None or node_class not in full:
            continue
        free = Counter(cluster.nodes[name].allocatable)
        for pod in cluster.assumed.list_on_node(name):
            if pod.uid != view.request.uid:
                free.subtract(pod.requests)
        for device in cluster.list_claimable(name):
            free[device] = facts_builder.compute_free(name, cluster).get(device, 0)
        emptied[name] = index.get_class(index.facts.replace_free(node_class.facts, free))
    return emptied


def _list_peer_requests(
    index: NodeIndex, placed: Sequence[gang_status.PlacedPeer]
) -> Mapping[str, list[resources.Amounts]]:
    """Return the requests of the peers on each node that needs an override for them.

    A node without a free slot needs one only if its free devices do not show what the peers use.
    """
    peer_requests: dict[str, list[resources.Amounts]] = {}
    for peer, known in zip(placed, index.find_classes([peer.node for peer in placed]), strict=True):
        if known is not None and (known.capacity.slot_numa_factors or index.facts.needs_peer_usage):
            peer_requests.setdefault(peer.node, []).append(peer.requests)
    return peer_requests
