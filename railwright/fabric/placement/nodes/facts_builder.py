"""Builds the facts of nodes for one scheduling signature, from the cluster state and the assumed pods.

The devices of each NUMA node come from the node's report and its shape (docs/interface.md 7.4).
"""

from collections import Counter
from collections.abc import Collection, Sequence

from railwright.fabric import bounded_cache, node_views, resources
from railwright.fabric.placement.nodes import eligibility, node_evaluation, numa
from railwright.fabric.placement.state import cluster_state, object_info, pod_usage
from railwright.fabric.policy import model

_MAX_SHAPES = 4096  # cached zones by node shape and allocatable
GPU_PRODUCT = "nvidia.com/gpu.product"  # NVIDIA's GPU feature discovery: tells node types apart where shapes do not


def compute_free(name: str, cluster: cluster_state.ClusterState, absent: Collection[str] = ()) -> resources.Amounts:
    """Return allocatable minus bound minus assumed, without what the pods with the UIDs `absent` use.

    The claims of an assumed pod may be allocated already. Its devices are then not subtracted twice.
    """
    free = cluster.get_free(name)
    unobserved = list_unobserved(name, cluster, absent)
    returned = [pod_usage.count_observed(cluster, uid, name) for uid in absent]
    if not unobserved and not any(returned):
        return free
    result = Counter(free)
    for requests in unobserved:
        result.subtract(requests)
    for requests in returned:
        result.update(requests)
    return result


def list_unobserved(
    name: str, cluster: cluster_state.ClusterState, absent: Collection[str] = ()
) -> Sequence[resources.Amounts]:
    """Return the requests of pods assumed on a node, without the part that the observed state already counts."""
    pods = cluster.pods
    on_node = [
        pod
        for pod in cluster.assumed.list_on_node(name)
        if pod.uid not in absent and not ((known := pods.get(pod.uid)) and known.node)
    ]
    return [pod_usage.count_unobserved(cluster, pod.uid, name, pod.requests) for pod in on_node]


class FactsBuilder:
    """Builds facts for pods with one scheduling signature."""

    def __init__(self, signature: node_evaluation.SchedulingSignature, cluster: cluster_state.ClusterState) -> None:
        self._signature = signature
        self._cluster = cluster
        resource_names = [rail.resource for rail in signature.fabric.rails if rail.resource]
        self._located = frozenset({*signature.accelerators, *resource_names})  # devices that NUMA nodes are known of
        self._zones_by_shape: bounded_cache.BoundedCache[tuple[str, resources.FrozenAmounts], numa.Zones]
        self._zones_by_shape = bounded_cache.BoundedCache(_MAX_SHAPES)
        self._other_requests = [
            (name, amount)
            for name, amount in signature.requests.items()
            if amount > 0 and name not in signature.devices
        ]
        # True: the free devices of a node do not show how many pods of the gang share its NICs
        self.needs_peer_usage = bool(signature.unrequested) or any(
            need.amount > signature.count_devices_of_nics(need) for need in signature.needs
        )
        needed = frozenset(signature.uncounted_rails).union(*[need.rails for need in signature.needs])
        self._rails = [rail for rail in signature.fabric.rails if rail.name in needed]

    def build(
        self,
        node: object_info.NodeInfo,
        free: resources.Amounts | None = None,
        peer_requests: Sequence[resources.Amounts] = (),
        *,
        absent: Collection[str] = (),
    ) -> node_evaluation.NodeFacts:
        """Build the facts of `node`. `peer_requests` are the requests of gang peers on it.

        If `free` is None, it is computed from the cluster state and the assumed pods. Otherwise NUMA nodes are left
        out, because the facts also stand for other nodes without a report.
        """
        shapes = self._signature.shapes
        shape = model.find_shape(shapes, node.labels) if shapes else None
        amounts = compute_free(node.name, self._cluster, absent) if free is None else free
        facts = node_evaluation.NodeFacts(
            eligible=eligibility.admits(node, self._signature.spec),
            shape=shape.name if shape else node.labels.get(GPU_PRODUCT, ""),
            fits_by_other_resources=self._count_fitting_pods(amounts),
            free=self._list_devices(amounts),
            allocatable=self._list_devices(node.allocatable),
            capacity=self._list_devices(node.capacity),
            peer_usage=self._sum_peer_usage(peer_requests),
            broken=object_info.find_broken(node, self._rails),
        )
        return self._add_numa_nodes(facts, node, shape, absent) if free is None else facts

    def replace_free(self, facts: node_evaluation.NodeFacts, free: resources.Amounts) -> node_evaluation.NodeFacts:
        """Return the facts of a node with these free resources and free NUMA nodes, as if its pods were gone."""
        return facts._replace(
            free=self._list_devices(free),
            fits_by_other_resources=self._count_fitting_pods(free),
            eligible=True,
            zones=facts.allocatable_zones,
        )

    def _sum_peer_usage(self, peer_requests: Sequence[resources.Amounts]) -> tuple[int, ...]:
        """Return the devices that peers use, including rails that they use without requesting them."""
        unrequested = self._signature.unrequested
        accelerated_pods = sum(
            1 for requests in peer_requests if any(requests.get(name, 0) > 0 for name in self._signature.accelerators)
        )
        return tuple(
            [
                sum(requests.get(name, 0) for requests in peer_requests) or accelerated_pods * unrequested.get(name, 0)
                for name in self._signature.devices
            ]
        )

    def _list_devices(self, amounts: resources.Amounts) -> tuple[int, ...]:
        """Return the amounts of the signature's devices, in its order."""
        return tuple([amounts.get(name, 0) for name in self._signature.devices])

    def _count_fitting_pods(self, amounts: resources.Amounts) -> int:
        """Return how many pods fit by CPU, memory and other resources that are not devices."""
        fits = [amounts.get(name, 0) // amount for name, amount in self._other_requests]
        return max(0, min([node_evaluation.MAX_SLOTS_PER_NODE, *fits]))

    def _add_numa_nodes(
        self,
        facts: node_evaluation.NodeFacts,
        node: object_info.NodeInfo,
        shape: model.NodeShape | None,
        absent: Collection[str],
    ) -> node_evaluation.NodeFacts:
        """Add the free and allocatable devices of each NUMA node."""
        signature, report = self._signature, self._cluster.topology_reports.get(node.name)
        if shape is None and report is None:
            return facts
        allocatable: numa.Zones = ()
        if shape is not None:
            allocatable = self._zones_by_shape.find(
                (shape.name, node.allocatable),
                lambda: numa.build_zones_from_shape(
                    shape, signature.fabric.rails, node.allocatable, signature.accelerators
                ),
            )
        zones = self.compute_free_zones(node.name, allocatable, absent)
        if shape is None and report is not None:
            allocatable = numa.read_allocatable_zones(report, self._located)
        return facts._replace(zones=zones, allocatable_zones=allocatable)

    def compute_free_zones(self, name: str, from_shape: numa.Zones, absent: Collection[str] = ()) -> numa.Zones:
        """Return the free devices of each NUMA node of a node; () if the layout is unknown.

        Source: the report, if it is newer than the last binding and no bound pod counts as absent; otherwise the node
        shape (`from_shape`), or the report's allocatable, minus bound pods. Assumed pods are always subtracted.
        Resources missing from the report come from the shape.
        """
        cluster, names, report = self._cluster, self._located, self._cluster.topology_reports.get(name)
        bound = [pod for pod in cluster.list_pods_on(name) if not names.isdisjoint(pod.requests)]
        staying = [pod for pod in bound if pod.uid not in absent]
        unobserved = list_unobserved(name, cluster, absent)
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
        used.update(dict(zone.free))
    for zone in numa.read_available_zones(report, names):
        used.subtract(dict(zone.free))
    if any(amount < sum(pod.requests.get(name, 0) for pod in bound) for name, amount in used.items()):
        return False
    last, written = max((pod.bound_at for pod in bound), default=""), report.written_at
    return not last or not written or written > last
