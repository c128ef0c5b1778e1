"""The leaf and the state of each node: what is known of it that is the same for every pod of a fabric.

Nodes in one state are equal for every pod. The states follow the change log of the cluster. The devices of each NUMA
node come from the node's report and its shape (docs/interface.md 7.4).
"""

from collections import Counter
from collections.abc import Collection, Hashable, Mapping

import msgspec

from railwright.fabric import bounded_cache, node_views, resources, topology
from railwright.fabric.placement.nodes import numa
from railwright.fabric.placement.state import cluster_state, object_info, pod_usage
from railwright.fabric.policy import model, presets

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
