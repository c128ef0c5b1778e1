"""Reads the devices of each NUMA node of a node, from its report and its shape (docs/interface.md 7.4)."""

from collections.abc import Iterable, Sequence

from railwright.fabric import resources
from railwright.fabric.placement.nodes import kubelet_admission, numa
from railwright.fabric.placement.state import cluster_state, node_info, pod_info
from railwright.fabric.policy import model

_MAX_SHAPES = 4096  # cached zones by node shape and allocatable


class ZoneReader:
    """Reads the NUMA nodes of all nodes for the rails and accelerators of one fabric."""

    def __init__(
        self, cluster: cluster_state.ClusterState, rails: Sequence[model.Rail], accelerators: Sequence[str]
    ) -> None:
        self._cluster = cluster
        self._rails = rails
        self._accelerators = accelerators
        self.device_names = frozenset({*accelerators, *(rail.resource for rail in rails if rail.resource)})
        self._zones_by_shape: dict[tuple[str, resources.FrozenAmounts], numa.Zones] = {}

    def compute_allocatable(self, node: node_info.NodeInfo, shape: model.NodeShape) -> numa.Zones:
        """Return the allocatable devices of each NUMA node of a node of this shape."""
        key = (shape.name, node.allocatable)
        zones = self._zones_by_shape.get(key)
        if zones is None:
            if len(self._zones_by_shape) >= _MAX_SHAPES:
                self._zones_by_shape.clear()
            zones = numa.build_zones_from_shape(shape, self._rails, node.allocatable, self._accelerators)
            self._zones_by_shape[key] = zones
        return zones

    def compute_free(
        self,
        node: node_info.NodeInfo,
        shape: model.NodeShape | None,
        assumed_requests: Iterable[resources.Amounts] = (),
        *,
        except_uid: str = "",
    ) -> numa.Zones:
        """Return the free devices of each NUMA node; () if the layout is unknown.

        Source: the report, if it is newer than the last binding; otherwise the node shape, or the report's allocatable,
        minus bound pods. `assumed_requests` are always subtracted. Resources missing from the report come from the
        shape. The devices of the pod with UID `except_uid` count as free.
        """
        bound = self._list_device_pods(node.name, except_uid)
        assumed = list(assumed_requests)
        taken = [*(pod.requests for pod in bound), *assumed]
        from_shape = self.compute_allocatable(node, shape) if shape else ()
        report = self._cluster.get_topology_report(node.name)
        if report is None:
            return numa.subtract_usage(from_shape, taken)
        names = self.device_names
        if not kubelet_admission.is_current(report, [(pod.bound_at, pod.requests) for pod in bound], names):
            return numa.subtract_usage(from_shape or numa.read_allocatable_zones(report, names), taken)
        reported = numa.subtract_usage(numa.read_available_zones(report, names), assumed)
        return numa.fill_missing_from(reported, numa.subtract_usage(from_shape, taken)) if from_shape else reported

    def is_reported_exactly(self, node: str) -> bool:
        """True if the used devices in kubelet's report are exactly those of the bound pods."""
        report = self._cluster.get_topology_report(node)
        bound = [(pod.bound_at, pod.requests) for pod in self._list_device_pods(node, "")]
        return report is not None and kubelet_admission.is_exact(report, bound, self.device_names)

    def _list_device_pods(self, node: str, except_uid: str) -> list[pod_info.PodInfo]:
        """Return the pods bound to a node that request any of these devices."""
        return [
            pod
            for pod in self._cluster.list_pods_on(node)
            if pod.uid != except_uid and not self.device_names.isdisjoint(pod.requests)
        ]
