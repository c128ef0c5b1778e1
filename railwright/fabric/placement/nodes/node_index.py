"""Finds the state of every node, and its class for pods with equal requests and constraints (one kind of pods).

The state of a node has the facts that are the same for every pod of a fabric. The states follow the change log
of the cluster. The devices of each NUMA node come from the node's report and its shape (docs/interface.md 7.4).

A `NodeIndex` evaluates each state once for one kind of pods, and states with equal facts form one class. So a decision
only counts the nodes, and evaluates few states. A `RequestView` adds the overrides of one request: nodes that
the pod does not select, the pod's own old node, and nodes that Volcano may empty.
"""

import functools
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence

import msgspec

from railwright.fabric import bounded_cache, node_views, resources, topology
from railwright.fabric.placement import bandwidth, scheduling_request
from railwright.fabric.placement.nodes import eligibility, node_evaluation, numa, score_terms
from railwright.fabric.placement.state import cluster_state, object_info, pod_usage
from railwright.fabric.policy import compiled, model

# --- the states of nodes --------------------------------------------------------------------------------------

MAX_STATES = 8192  # cached states, also those that no node has any more; 0.3 to 0.6 kB each
_GPU_PRODUCT = "nvidia.com/gpu.product"  # NVIDIA's GPU feature discovery: tells node types apart where shapes do not


class NodeState(msgspec.Struct, frozen=True, eq=False):
    """The facts about nodes, without labels, that are the same for every pod."""

    node: object_info.NodeInfo  # one of them, which may be gone
    shape: str  # name of the shape or of the GPU product; "" if neither is known
    free: resources.FrozenAmounts
    zones: numa.Zones  # free devices of each NUMA node; () if the layout is unknown
    allocatable_zones: numa.Zones  # the same as if no pod ran on the node


class NodeStates:
    """The leaf and the state of each node, for the pods of one fabric."""

    def __init__(
        self, cluster: cluster_state.ClusterState, fabric: model.Fabric, document: model.PolicyDocument
    ) -> None:
        self._cluster, self.fabric, self._document = cluster, fabric, document
        self._domains = compiled.list_domain_keys(fabric.placement)
        self._rail_names = tuple(rail.name for rail in fabric.rails)
        # devices whose NUMA nodes are known
        self._located = frozenset({*document.accelerators, *(rail.resource for rail in fabric.rails if rail.resource)})
        self._position = -1  # in the change log of the cluster state
        self._states: bounded_cache.BoundedCache[Hashable, NodeState] = bounded_cache.BoundedCache(MAX_STATES)
        self._zones_by_shape: bounded_cache.BoundedCache[Hashable, numa.Zones] = bounded_cache.BoundedCache(MAX_STATES)
        self._domain_sizes: dict[topology.Domain, int] = {}  # computed on demand
        self.by_node: dict[str, NodeState] = {}
        self.leaf_by_node: dict[str, topology.Domain] = {}
        self.nodes_by_leaf: dict[topology.Domain, dict[str, None]] = {}  # leaf -> its nodes
        # number of nodes in each state; to count the nodes for each request cost 1.5 ms with 5,000 nodes
        self.counts_by_leaf: dict[topology.Domain, dict[NodeState, int]] = {}

    def refresh(self) -> None:
        """Update the nodes that changed since the last call."""
        log = self._cluster.change_log
        changed = list(self._cluster.nodes) if self._position < 0 else log.read_since(self._position)
        self._position = log.position
        for name in changed:
            if (old := self.by_node.get(name)) is not None:
                self._count_state(self.leaf_by_node[name], old, -1)
            node, leaf = self._cluster.nodes.get(name), None
            if node is not None:
                leaf = topology.get_domain(self._cluster.locate_node(node, self._domains, self._rail_names))
            if leaf != self.leaf_by_node.get(name):
                self._move_to_leaf(name, leaf)
            if leaf is None:
                self.by_node.pop(name, None)
            else:
                self.by_node[name] = self.read_state(name)
                self._count_state(leaf, self.by_node[name], 1)

    def _count_state(self, leaf: topology.Domain, state: NodeState, change: int) -> None:
        counts = self.counts_by_leaf.setdefault(leaf, {})
        counts[state] = counts.get(state, 0) + change
        if not counts[state]:
            del counts[state]

    def _move_to_leaf(self, name: str, leaf: topology.Domain | None) -> None:
        """Remove a node from its leaf, and add it to another one unless that is None."""
        self._domain_sizes = {}
        before = self.leaf_by_node.pop(name, None)
        if before is not None:
            del self.nodes_by_leaf[before][name]
            if not self.nodes_by_leaf[before]:
                del self.nodes_by_leaf[before], self.counts_by_leaf[before]
        if leaf is not None:
            self.leaf_by_node[name] = leaf
            self.nodes_by_leaf.setdefault(leaf, {})[name] = None

    @property
    def domain_sizes(self) -> Mapping[topology.Domain, int]:
        """Return the number of nodes of each domain at any level, free or not."""
        if not self._domain_sizes:
            sizes: Counter[topology.Domain] = Counter()
            for leaf, names in self.nodes_by_leaf.items():
                sizes.update(dict.fromkeys([leaf[level:] for level in range(len(leaf))], len(names)))
            self._domain_sizes = sizes
        return self._domain_sizes

    # --- the state of a node ----------------------------------------------------------------------------------

    def read_state(self, name: str, absent: Collection[str] = ()) -> NodeState:
        """Return the present state of a node, as if the pods with the UIDs `absent` were not there."""
        node, shapes = self._cluster.nodes[name], self._document.node_shapes
        shape = model.find_shape(shapes, node.labels) if shapes else None
        free = resources.freeze_amounts(pod_usage.compute_free(name, self._cluster, absent))
        has_zones = shape is not None or name in self._cluster.topology_reports
        zones = self._find_zones(node, shape, absent) if has_zones else ((), ())
        facts = shape.name if shape else node.labels.get(_GPU_PRODUCT, ""), free, *zones
        key = *facts, node.allocatable, node.capacity, node.broken_rails, node.schedulable, node.taints
        return self._states.get_or_compute(key, lambda: NodeState(node, *facts))

    def _find_zones(
        self, node: object_info.NodeInfo, shape: model.NodeShape | None, absent: Collection[str]
    ) -> tuple[numa.Zones, numa.Zones]:
        """Return the free and the allocatable devices of each NUMA node; () if the layout is unknown.

        Free devices are those of the node's report minus assumed pods, if the report is newer than the last binding and
        no bound pod counts as absent. Otherwise they are the allocatable devices minus bound and assumed pods. Devices
        that the report does not list come from the shape.
        """
        cluster, names, report = self._cluster, self._located, self._cluster.topology_reports.get(node.name)
        allocatable: numa.Zones = ()
        if shape is not None:
            allocatable = self._zones_by_shape.get_or_compute(
                (shape.name, node.allocatable),
                lambda: numa.build_zones_from_shape(
                    shape, self.fabric.rails, node.allocatable, self._document.accelerators
                ),
            )
        if report is not None:
            reported = numa.read_zones(report, names, only_free=False)
            allocatable = numa.add_missing_resources(reported, allocatable)
        bound = [pod for pod in cluster.list_pods_on(node.name) if not names.isdisjoint(pod.requests)]
        staying = [pod for pod in bound if pod.uid not in absent]
        assumed = pod_usage.list_unobserved_requests(node.name, cluster, absent)
        taken = [*(pod_usage.count_observed_usage(cluster, pod.uid, node.name) for pod in staying), *assumed]
        free = numa.subtract_usage(allocatable, taken)
        if report is not None and staying == bound and _is_report_current(report, bound, names):
            reported = numa.read_zones(report, names, only_free=True)
            free = numa.add_missing_resources(numa.subtract_usage(reported, assumed), free)
        return free, allocatable


def _is_report_current(
    report: node_views.NodeResourceTopology, bound: Collection[object_info.PodInfo], names: Collection[str]
) -> bool:
    """True if the report is newer than the last binding on the node. `bound` are the node's pods that request devices.

    Both times are from the API server, in seconds. The exporter reads the devices after kubelet has admitted the pod,
    so a report of the same second is not newer. A report with fewer used devices than the pods request is not current
    either: it is older, or its exporter does not count them. If a time is missing (a snapshot without managed fields),
    only the used devices count.
    """
    used: Counter[str] = Counter()
    for zone in numa.read_zones(report, names, only_free=False):
        used.update(zone.free)
    for zone in numa.read_zones(report, names, only_free=True):
        used.subtract(zone.free)
    if any(amount < sum(pod.requests.get(name, 0) for pod in bound) for name, amount in used.items()):
        return False
    last, written = max((pod.bound_at for pod in bound), default=""), report.written_at
    return not last or not written or written > last


# --- the index of classes -------------------------------------------------------------------------------------

Overrides = dict[str, node_evaluation.NodeClass]
"""Node -> its class for one request, if that is not the class in the index."""


class NodeIndex:
    """The classes of all nodes for one kind of pods."""

    def __init__(
        self,
        kind: scheduling_request.SchedulingRequest,
        states: NodeStates,
        cluster: cluster_state.ClusterState,
    ) -> None:
        self.kind, self.states, self._cluster = kind, states, cluster
        self.leaf_by_node: Mapping[str, topology.Domain] = states.leaf_by_node
        self.nodes_by_leaf: Mapping[topology.Domain, Mapping[str, None]] = states.nodes_by_leaf
        self._uplinks_per_rail = kind.count_uplinks_per_rail()
        devices, rails = kind.demand.names, kind.rails
        self._other_requests = [row for row in kind.requests.items() if row[1] > 0 and row[0] not in devices]
        self._rails = [rail for rail in kind.fabric.rails if rail.name in rails]
        # caches of this index. With more states than entries, nodes would be evaluated for each request
        self._find_class = functools.lru_cache(2 * MAX_STATES)(self._evaluate_known_node)
        self._find_class_of_facts = functools.lru_cache(2 * MAX_STATES)(self._build_class)
        self._unselected: tuple[int, Collection[str]] = (-1, ())  # at a version of the nodes

    @property
    def uplinks(self) -> bandwidth.Uplinks:
        """Return the uplinks of all domains, with those that are available to each rail of these pods."""
        ratios = self.kind.fabric.placement.oversubscription
        return bandwidth.Uplinks(self.states.domain_sizes, ratios, self._uplinks_per_rail)

    def find_classes(self, names: Iterable[str]) -> list[node_evaluation.NodeClass | None]:
        """Return the class of each of these nodes; None if the node is unknown."""
        return list(map(self._find_class, map(self.states.by_node.get, names)))

    def count_classes(
        self, leaves: Iterable[topology.Domain] | None = None
    ) -> dict[topology.Domain, node_evaluation.Counts]:
        """Return the number of nodes of each class, by leaf; of all leaves unless `leaves` names some."""
        counts: dict[topology.Domain, node_evaluation.Counts] = {}
        for leaf in self.nodes_by_leaf if leaves is None else leaves:
            of_leaf = counts[leaf] = {}
            for state, nodes in self.states.counts_by_leaf.get(leaf, {}).items():
                if (node_class := self._find_class(state)) is not None:
                    of_leaf[node_class] = of_leaf.get(node_class, 0) + nodes
        return counts

    def find_class_without(
        self, name: str, absent: Collection[str], *, eligible: bool | None = None
    ) -> node_evaluation.NodeClass:
        """Return the class that a known node would have without the pods `absent` (UIDs)."""
        return self.evaluate_state(self.states.read_state(name, absent), eligible=eligible)

    def find_classes_of_unselected(self, request: scheduling_request.SchedulingRequest) -> Overrides:
        """Return node -> class without slots, for the nodes that the pod's node selector or affinity excludes.

        Candidates of a scheduler (`is_filtered`) are not in it, because the scheduler has checked them.
        """
        chosen = request.offered if request.is_filtered else ()
        names = [name for name in self.unselected_nodes if name not in chosen]
        classes = [self._find_class(self.states.by_node.get(name), eligible=False) for name in names]
        return {name: node_class for name, node_class in zip(names, classes, strict=True) if node_class}

    @property
    def unselected_nodes(self) -> Collection[str]:
        """Return the nodes whose labels the pod's node selector or affinity excludes."""
        spec, version = self.kind.spec, self._cluster.nodes_version
        if self._unselected[0] != version:
            nodes = self._cluster.nodes.items() if eligibility.depends_on_labels(spec) else ()
            self._unselected = version, [name for name, node in nodes if not eligibility.matches_selectors(node, spec)]
        return self._unselected[1]

    def _evaluate_known_node(
        self, state: NodeState | None, *, eligible: bool | None = None
    ) -> node_evaluation.NodeClass | None:
        return None if state is None else self.evaluate_state(state, eligible=eligible)

    def evaluate_state(self, state: NodeState, *, eligible: bool | None = None) -> node_evaluation.NodeClass:
        """Return the class of nodes in a state. `eligible`, if given, replaces the check of their taints."""
        node, free = state.node, state.free
        fits = [free.get(name, 0) // amount for name, amount in self._other_requests]
        devices = [
            node_evaluation.Devices(
                free.get(name, 0),
                node.allocatable.get(name, 0),
                node.capacity.get(name, 0),
                self.kind.requests.get(name, 0),
            )
            for name in self.kind.demand.names
        ]
        return self._find_class_of_facts(
            node_evaluation.NodeFacts(
                eligible=eligibility.admits_pod(node, self.kind.spec) if eligible is None else eligible,
                shape=state.shape,
                fits_by_other_resources=max(0, min([node_evaluation.MAX_SLOTS_PER_NODE, *fits])),
                devices=tuple(devices),
                broken=object_info.find_broken_rails(node, self._rails),
                zones=state.zones,
                allocatable_zones=state.allocatable_zones,
            )
        )

    def _build_class(self, facts: node_evaluation.NodeFacts) -> node_evaluation.NodeClass:
        node_class = node_evaluation.build_class(self.kind, facts)
        return msgspec.structs.replace(node_class, score=score_terms.compute_score(node_class, self.kind))


# --- the index as one request sees it -------------------------------------------------------------------------


class RequestView(msgspec.Struct, frozen=True, dict=True):
    """The node index with the overrides of one request."""

    request: scheduling_request.SchedulingRequest
    index: NodeIndex
    overrides: Overrides

    def get_class(self, node: str) -> node_evaluation.NodeClass | None:
        """Return a node's class; None if the node is unknown."""
        return self.find_classes([node])[0]

    def find_classes(self, nodes: Sequence[str]) -> list[node_evaluation.NodeClass | None]:
        """Return the class of each of these nodes; None if the node is unknown."""
        classes = self.index.find_classes(nodes)
        return list(map(self.overrides.get, nodes, classes)) if self.overrides else classes

    def get_leaf(self, node: str) -> topology.Domain:
        """Return a node's leaf, or NO_DOMAIN if it has none."""
        return self.index.leaf_by_node.get(node, topology.NO_DOMAIN)

    @functools.cached_property
    def offered_leaves(self) -> frozenset[topology.Domain]:
        """Return the leaves that contain at least one candidate node."""
        leaves = frozenset(map(self.index.leaf_by_node.get, self.request.nodes))
        return frozenset([leaf for leaf in leaves if leaf is not None])


def build_view(
    request: scheduling_request.SchedulingRequest, index: NodeIndex, cluster: cluster_state.ClusterState
) -> RequestView:
    """Return the index as this request sees it: some nodes have another class.

    The pod's own old allocation never counts against it (docs/interface.md 7.7).
    """
    overrides = index.find_classes_of_unselected(request)
    own_nodes = {*pod_usage.find_nodes_of_pod(cluster, request.uid)}
    if (assumed_pod := cluster.assumed.get(request.uid)) is not None:
        own_nodes.add(assumed_pod.node)
    for name in sorted(own_nodes & cluster.nodes.keys()):  # between equal plans, the order of classes decides
        eligible = False if name in overrides else None
        overrides[name] = index.find_class_without(name, [request.uid], eligible=eligible)
    view = RequestView(request, index, overrides)
    if request.is_announced:
        overrides |= _find_emptied_nodes(view, cluster)
    return view


def _find_emptied_nodes(view: RequestView, cluster: cluster_state.ClusterState) -> Overrides:
    """Return the classes of candidate nodes with too few free resources, as if their bound pods were gone.

    Volcano scores such nodes to choose pods to preempt, or because pods there terminate. Volcano does not count devices
    of ResourceSlices, so all of these may be in use.
    """
    index, nodes = view.index, view.request.nodes

    @functools.cache  # many nodes are in one state
    def evaluate(
        state: NodeState, assumed: tuple[resources.FrozenAmounts, ...], claimable: frozenset[str]
    ) -> node_evaluation.NodeClass:
        free = Counter(state.node.allocatable)
        for requests in assumed:
            free.subtract(requests)
        for device in claimable:
            free[device] = state.free.get(device, 0)
        emptied = msgspec.structs.replace(state, free=resources.freeze_amounts(free), zones=state.allocatable_zones)
        return index.evaluate_state(emptied, eligible=True)

    emptied: Overrides = {}
    for name, node_class in zip(nodes, view.find_classes(nodes), strict=True):
        if node_class is not None and node_class.is_full:
            pods = cluster.assumed.list_on_node(name)
            assumed = tuple([pod.requests for pod in pods if pod.uid != view.request.uid])
            emptied[name] = evaluate(index.states.by_node[name], assumed, cluster.list_slice_resources(name))
    return emptied
