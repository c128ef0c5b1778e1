"""Finds the state of every node, and its class for one kind of pods.

The state of a node is what is known of it that is the same for every pod of a fabric. The states follow the change log
of the cluster. The devices of each NUMA node come from the node's report and its shape (docs/interface.md 7.4).

A `NodeIndex` evaluates each state once for one kind of pods, and states with equal facts form one class. So the cost of
a decision depends on the number of states, not of nodes. A `RequestView` adds the overrides of one request: nodes of
peers, and the pod's own old node.
"""

import functools
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence

import msgspec

from railwright.fabric import bounded_cache, node_views, resources, topology
from railwright.fabric.placement import bandwidth, scheduling_request
from railwright.fabric.placement.nodes import eligibility, node_evaluation, numa, score_terms
from railwright.fabric.placement.state import cluster_state, gang_status, object_info, pod_usage
from railwright.fabric.policy import model, presets

# --- the states of nodes --------------------------------------------------------------------------------------

MAX_STATES = 8192  # cached states, also those that no node has any more; 0.3 to 0.6 kB each
_GPU_PRODUCT = "nvidia.com/gpu.product"  # NVIDIA's GPU feature discovery: tells node types apart where shapes do not


class NodeState(msgspec.Struct, frozen=True, eq=False):
    """The facts about nodes that are the same for every pod, without their labels."""

    node: object_info.NodeInfo  # one of them
    shape: str  # name of the shape or of the GPU product; "" if neither is known
    free: resources.FrozenAmounts
    zones: numa.Zones  # free devices of each NUMA node; () if the layout is unknown
    allocatable_zones: numa.Zones  # the same as if no pod ran on the node


class NodeStates:
    """The leaf and the state of each node, for the pods of one fabric."""

    def __init__(
        self, cluster: cluster_state.ClusterState, fabric: model.Fabric, document: model.PolicyDocument
    ) -> None:
        self._cluster, self.fabric = cluster, fabric
        self._shapes, self._accelerators = document.node_shapes, document.accelerators
        self._domains = presets.list_domain_keys(fabric.placement)
        self._rail_names = tuple(rail.name for rail in fabric.rails)
        resource_names = [rail.resource for rail in fabric.rails if rail.resource]
        self._located = frozenset({*document.accelerators, *resource_names})  # devices whose NUMA nodes are known
        self._position = -1  # in the change log of the cluster state
        self._states: bounded_cache.BoundedCache[Hashable, NodeState] = bounded_cache.BoundedCache(MAX_STATES)
        self._zones_by_shape: bounded_cache.BoundedCache[Hashable, numa.Zones] = bounded_cache.BoundedCache(MAX_STATES)
        self._domain_sizes: dict[topology.Domain, int] = {}  # computed on demand
        self.by_node: dict[str, NodeState] = {}
        self.by_leaf: dict[topology.Domain, dict[NodeState, int]] = {}  # leaf -> state -> number of nodes
        self.leaf_by_node: dict[str, topology.Domain] = {}
        self.nodes_by_leaf: dict[topology.Domain, dict[str, None]] = {}  # leaf -> its nodes

    def refresh(self) -> None:
        """Update the nodes that changed since the last call."""
        log = self._cluster.change_log
        changes = log.read_since(self._position)
        self._position = log.position
        for name in dict.fromkeys([*self.by_node, *self._cluster.nodes]) if changes is None else changes:
            self._update(name)

    def _update(self, name: str) -> None:
        if (old := self.by_node.pop(name, None)) is not None:
            states = self.by_leaf[self.leaf_by_node[name]]
            states[old] -= 1
            if not states[old]:
                del states[old]
        node = self._cluster.nodes.get(name)
        leaf = None if node is None else self._cluster.find_leaf(node, self._domains, self._rail_names)
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
            state = self.by_node[name] = self.read_state(name)
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

    # --- the state of a node ----------------------------------------------------------------------------------

    def read_state(self, name: str, absent: Collection[str] = ()) -> NodeState:
        """Return the present state of a node, as if the pods with the UIDs `absent` were not there."""
        cluster, node = self._cluster, self._cluster.nodes[name]
        shape = model.find_shape(self._shapes, node.labels) if self._shapes else None
        free = resources.freeze(pod_usage.compute_free(name, cluster, absent))
        zones, allocatable_zones = self._find_zones(node, shape, absent)
        shape_name = shape.name if shape else node.labels.get(_GPU_PRODUCT, "")
        facts = shape_name, free, zones, allocatable_zones
        key = *facts, node.allocatable, node.capacity, node.broken_rails, node.schedulable, node.taints
        return self._states.find(key, lambda: NodeState(node, *facts))

    def _find_zones(
        self, node: object_info.NodeInfo, shape: model.NodeShape | None, absent: Collection[str]
    ) -> tuple[numa.Zones, numa.Zones]:
        """Return the free and the allocatable devices of each NUMA node."""
        report = self._cluster.topology_reports.get(node.name)
        if shape is not None:
            allocatable = self._zones_by_shape.find(
                (shape.name, node.allocatable),
                lambda: numa.build_zones_from_shape(shape, self.fabric.rails, node.allocatable, self._accelerators),
            )
            return self.compute_free_zones(node.name, allocatable, absent), allocatable
        if report is None:
            return (), ()
        return self.compute_free_zones(node.name, (), absent), numa.read_allocatable_zones(report, self._located)

    def compute_free_zones(self, name: str, from_shape: numa.Zones, absent: Collection[str] = ()) -> numa.Zones:
        """Return the free devices of each NUMA node of a node; () if the layout is unknown.

        Source: the report, if it is newer than the last binding and no bound pod counts as absent; otherwise the node
        shape (`from_shape`), or the report's allocatable, minus bound pods. Assumed pods are always subtracted.
        Resources missing from the report come from the shape.
        """
        cluster, names, report = self._cluster, self._located, self._cluster.topology_reports.get(name)
        bound = [pod for pod in cluster.list_pods_on(name) if not names.isdisjoint(pod.requests)]
        staying = [pod for pod in bound if pod.uid not in absent]
        unobserved = pod_usage.list_unobserved(name, cluster, absent)
        taken = [*(pod_usage.count_observed(cluster, pod.uid, name) for pod in staying), *unobserved]
        complement = numa.subtract_usage(from_shape, taken)
        if report is None:
            return complement
        if staying == bound and _is_current(report, bound, names):
            reported = numa.subtract_usage(numa.read_available_zones(report, names), unobserved)
        elif from_shape:
            return complement
        else:
            reported = numa.subtract_usage(numa.read_allocatable_zones(report, names), taken)
        return numa.fill_missing_from(reported, complement)


def _is_current(
    report: node_views.NodeResourceTopology, bound: Collection[object_info.PodInfo], names: Collection[str]
) -> bool:
    """True if the report is newer than the last binding on the node. `bound` are its pods that request devices.

    Both times are from the API server, in seconds. The exporter reads the devices after kubelet has admitted the pod,
    so a report of the same second is not newer. A report with fewer used devices than the pods request is not current
    either: it is older, or its exporter does not count them. If a time is missing (a snapshot without managed fields),
    only the used devices count.
    """
    used: Counter[str] = Counter()
    for zone in numa.read_allocatable_zones(report, names):
        used.update(zone.free)
    for zone in numa.read_available_zones(report, names):
        used.subtract(zone.free)
    if any(amount < sum(pod.requests.get(name, 0) for pod in bound) for name, amount in used.items()):
        return False
    last, written = max((pod.bound_at for pod in bound), default=""), report.written_at
    return not last or not written or written > last


# --- the index of classes -------------------------------------------------------------------------------------


class NodeIndex:
    """The classes of all nodes for one kind of pods."""

    def __init__(
        self,
        kind: scheduling_request.SchedulingRequest,
        states: NodeStates,
        cluster: cluster_state.ClusterState,
    ) -> None:
        self.kind, self._devices = kind, kind.demand.names
        self._uplinks_per_rail = kind.count_uplinks_per_rail()
        self._other_requests = [
            (name, amount) for name, amount in kind.requests.items() if amount > 0 and name not in self._devices
        ]
        # True: the free devices of a node do not show how many pods of the gang share its NICs
        self.needs_peer_usage = bool(kind.unrequested) or any(
            need.amount > kind.count_devices_of_nics(need) for need in kind.needs
        )
        needed = kind.rails
        self._rails = [rail for rail in kind.fabric.rails if rail.name in needed]
        self._states, self._cluster = states, cluster
        self.leaf_by_node: Mapping[str, topology.Domain] = states.leaf_by_node
        self.nodes_by_leaf: Mapping[topology.Domain, Mapping[str, None]] = states.nodes_by_leaf
        # caches of this index. With more states than entries, nodes would be evaluated for each request
        self.get_class = functools.lru_cache(2 * MAX_STATES)(self._evaluate)
        self._get_class_of_state = functools.lru_cache(2 * MAX_STATES)(self._evaluate_state)
        self._depends_on_labels = eligibility.depends_on_labels(kind.spec)
        self._unselected: tuple[int, Collection[str]] = (-1, ())  # at a version of the nodes

    @property
    def uplinks(self) -> bandwidth.Uplinks:
        """Return the uplinks of all domains, as a gang of such pods uses them."""
        ratios = self.kind.fabric.placement.oversubscription
        return bandwidth.Uplinks(self._states.domain_sizes, ratios, self._uplinks_per_rail)

    def find_class(self, name: str, *peer_requests: resources.FrozenAmounts) -> node_evaluation.NodeClass | None:
        """Return the class of a node beside gang peers with these requests; None if the cache does not contain it."""
        return self._get_class_of_state(self._states.by_node.get(name), *peer_requests)

    def find_classes(self, names: Iterable[str]) -> list[node_evaluation.NodeClass | None]:
        """Return the class of each of these nodes."""
        return list(map(self._get_class_of_state, map(self._states.by_node.get, names)))

    def count_classes(
        self, leaves: Iterable[topology.Domain] | None = None
    ) -> dict[topology.Domain, node_evaluation.Counts]:
        """Return the number of nodes of each class, by leaf; of all leaves unless `leaves` names some."""
        counts: dict[topology.Domain, node_evaluation.Counts] = {}
        for leaf in self._states.by_leaf if leaves is None else leaves:
            of_leaf = counts[leaf] = {}
            for state, nodes in self._states.by_leaf.get(leaf, {}).items():
                if (node_class := self._get_class_of_state(state)) is not None:
                    of_leaf[node_class] = of_leaf.get(node_class, 0) + nodes
        return counts

    def _evaluate_state(
        self, state: NodeState | None, *peer_requests: resources.FrozenAmounts
    ) -> node_evaluation.NodeClass | None:
        return None if state is None else self.get_class(self._build_facts(state, peer_requests))

    def _evaluate(self, facts: node_evaluation.NodeFacts) -> node_evaluation.NodeClass:
        node_class = node_evaluation.evaluate(self.kind, facts)
        return msgspec.structs.replace(
            node_class,
            score=score_terms.compute_score(node_class, self.kind),
            fill_order=score_terms.compute_fill_order(node_class) if self.kind.is_single_pod else (),
        )

    @property
    def unselected(self) -> Collection[str]:
        """Return the nodes whose labels the pod's node selector or affinity excludes."""
        if not self._depends_on_labels:
            return ()
        spec, version = self.kind.spec, self._cluster.nodes_version
        if self._unselected[0] != version:
            nodes = self._cluster.nodes.items()
            self._unselected = version, {name for name, node in nodes if not eligibility.selects(node, spec)}
        return self._unselected[1]

    def exclude(self, names: Collection[str]) -> "Overrides":
        """Return the classes that these nodes would have if they took no pod. Unknown nodes are left out."""
        classes = self.find_classes(names)
        known = dict.fromkeys(node_class for node_class in classes if node_class)
        excluded = {node_class: self.get_class(node_class.facts._replace(eligible=False)) for node_class in known}
        return {name: excluded[node_class] for name, node_class in zip(names, classes, strict=True) if node_class}

    # --- the facts of a node ----------------------------------------------------------------------------------

    def build_facts(
        self, name: str, peer_requests: Sequence[resources.Amounts] = (), *, absent: Collection[str]
    ) -> node_evaluation.NodeFacts:
        """Return the facts of a node without the pods `absent` (UIDs), beside gang peers with these requests."""
        return self._build_facts(self._states.read_state(name, absent), peer_requests)

    def _build_facts(
        self, state: NodeState, peer_requests: Sequence[resources.Amounts] = ()
    ) -> node_evaluation.NodeFacts:
        node = state.node
        return node_evaluation.NodeFacts(
            eligible=eligibility.admits(node, self.kind.spec),
            shape=state.shape,
            fits_by_other_resources=self._count_fitting_pods(state.free),
            devices=tuple(
                [
                    node_evaluation.Devices(
                        state.free.get(name, 0),
                        node.allocatable.get(name, 0),
                        node.capacity.get(name, 0),
                        self.kind.requests.get(name, 0),
                        self._sum_peer_usage(name, peer_requests) if peer_requests else 0,
                    )
                    for name in self._devices
                ]
            ),
            broken=object_info.find_broken(node, self._rails),
            zones=state.zones,
            allocatable_zones=state.allocatable_zones,
        )

    def replace_free(self, facts: node_evaluation.NodeFacts, free: resources.Amounts) -> node_evaluation.NodeFacts:
        """Return the facts of a node with these free resources and free NUMA nodes, as if its pods were gone."""
        devices = zip(self._devices, facts.devices, strict=True)
        return facts._replace(
            devices=tuple([row._replace(free=free.get(name, 0)) for name, row in devices]),
            fits_by_other_resources=self._count_fitting_pods(free),
            eligible=True,
            zones=facts.allocatable_zones,
        )

    def _sum_peer_usage(self, device: str, peer_requests: Sequence[resources.Amounts]) -> int:
        """Return how much of a device peers use. Peers with accelerators also use rails without requesting them."""
        unrequested, accelerators = self.kind.unrequested.get(device, 0), self.kind.accelerators
        return sum(requests.get(device, 0) for requests in peer_requests) or sum(
            unrequested for requests in peer_requests if any(requests.get(name, 0) > 0 for name in accelerators)
        )

    def _count_fitting_pods(self, amounts: resources.Amounts) -> int:
        """Return how many pods fit by CPU, memory and other resources that are not devices."""
        fits = [amounts.get(name, 0) // amount for name, amount in self._other_requests]
        return max(0, min([node_evaluation.MAX_SLOTS_PER_NODE, *fits]))


# --- the index as one request sees it -------------------------------------------------------------------------

Overrides = dict[str, node_evaluation.NodeClass]
"""Node -> its class for one request, if that is not the class in the index."""


class RequestView(msgspec.Struct, frozen=True, dict=True):
    """The node index with the overrides of one request."""

    request: scheduling_request.SchedulingRequest
    index: NodeIndex
    overrides: Overrides

    def get_class(self, node: str) -> node_evaluation.NodeClass | None:
        """Return a node's class; None if the cache does not contain it."""
        return self.overrides.get(node) or self.index.find_class(node)

    def find_classes(self, nodes: Sequence[str]) -> list[node_evaluation.NodeClass | None]:
        """Return the class of each of these nodes; None if the cache does not contain it."""
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
    request: scheduling_request.SchedulingRequest,
    index: NodeIndex,
    gang: gang_status.GangStatus,
    cluster: cluster_state.ClusterState,
) -> RequestView:
    """Return the index as this request sees it: some nodes have another class.

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
            beside = peer_requests.get(name, ())
            known = index.find_class(name, *beside)
            if name in changed_nodes:
                known = index.get_class(index.build_facts(name, beside, absent=[request.uid]))
            if known is not None:
                is_excluded = name in unselected
                overrides[name] = index.get_class(known.facts._replace(eligible=False)) if is_excluded else known
    view = RequestView(request, index, overrides)
    if request.is_announced:
        overrides |= _find_emptied(view, cluster)
    return view


def _find_emptied(view: RequestView, cluster: cluster_state.ClusterState) -> Overrides:
    """Return the classes of candidate nodes with too few free resources, as if their bound pods were gone.

    Volcano scores such nodes to choose pods to preempt, or because pods there terminate. Volcano does not count devices
    of ResourceSlices, so all of these may be in use.
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
            free[device] = pod_usage.compute_free(name, cluster).get(device, 0)
        emptied[name] = index.get_class(index.replace_free(node_class.facts, free))
    return emptied


def _list_peer_requests(
    index: NodeIndex, placed: Sequence[gang_status.PlacedPeer]
) -> Mapping[str, list[resources.FrozenAmounts]]:
    """Return the requests of the peers on each node that needs an override for them.

    A node without a free slot needs an override only if its free devices do not show what the peers use.
    """
    peer_requests: dict[str, list[resources.FrozenAmounts]] = {}
    for peer, known in zip(placed, index.find_classes([peer.node for peer in placed]), strict=True):
        if known is not None and (known.slot_numa_factors or index.needs_peer_usage):
            peer_requests.setdefault(peer.node, []).append(peer.requests)
    return peer_requests
