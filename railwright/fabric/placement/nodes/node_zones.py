"""Reads the devices of each NUMA node of a node, from its report, its shape and its slices (docs/interface.md 7.4).

Slices count where the node shape has no NUMA layout. Claims then show exactly which devices are in use.
"""

from collections.abc import Callable, Collection, Iterable, Sequence

from railwright.fabric import bounded_cache, resources
from railwright.fabric.claims import node_devices
from railwright.fabric.placement.nodes import kubelet_admission, numa
from railwright.fabric.placement.state import cluster_state, node_info, pod_info
from railwright.fabric.policy import model

_MAX_SHAPES = 4096  # cached zones by node shape and allocatable, and by the amounts of slices


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
        self._zones_by_amounts: bounded_cache.BoundedCache[
            tuple[node_devices.NumaAmounts, frozenset[str]], numa.Zones
        ] = bounded_cache.BoundedCache(_MAX_SHAPES)

    def compute_allocatable(
        self, node: node_info.NodeInfo, shape: model.NodeShape | None, reported: numa.Zones
    ) -> numa.Zones:
        """Return the allocatable devices of each NUMA node. `reported` has those of the node's report."""
        if from_shape := self._read_shape(node, shape):
            return from_shape
        from_slices = self._read_slices(node.name, lambda devices: devices.allocatable)
        if not from_slices:
            return () if shape is not None else reported
        return numa.fill_missing_from(reported, from_slices) if reported else from_slices

    def _read_shape(self, node: node_info.NodeInfo, shape: model.NodeShape | None) -> numa.Zones:
        """Return the allocatable devices of each NUMA node of a node of this shape; () if it has no NUMA layout."""
        if shape is None:
            return ()
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
        removed_uids: Collection[str] = (),
    ) -> numa.Zones:
        """Return the free devices of each NUMA node; () if the layout is unknown.

        Source: the report, if it is newer than the last binding; otherwise the node shape, or the report's allocatable,
        minus bound pods. `assumed_requests` are always subtracted. Resources missing from the report come from the
        shape or from slices. The devices of the pod with UID `except_uid` count as free, as do those of the pods
        `removed_uids` except what their claims hold.
        """
        assumed = list(assumed_requests)
        from_shape = self._read_shape(node, shape)
        complement = () if from_shape else self._compute_free_of_slices(node.name, assumed, except_uid)
        report = self._cluster.get_topology_report(node.name)
        if report is None and not from_shape:
            return complement
        device_pods = self._list_device_pods(node.name, except_uid)
        bound = [pod for pod in device_pods if pod.uid not in removed_uids] if removed_uids else device_pods
        taken = [*(pod.requests for pod in bound), *assumed]
        if from_shape:
            complement = numa.subtract_usage(from_shape, taken)
        if report is None:
            return complement
        names = self.device_names
        if len(bound) == len(device_pods) and kubelet_admission.is_current(
            report, [(pod.bound_at, pod.requests) for pod in bound], names
        ):
            reported = numa.subtract_usage(numa.read_available_zones(report, names), assumed)
        elif from_shape:
            return complement
        else:
            reported = numa.subtract_usage(numa.read_allocatable_zones(report, names), taken)
        return numa.fill_missing_from(reported, complement) if complement else reported

    def _compute_free_of_slices(self, node: str, assumed: Iterable[resources.Amounts], except_uid: str) -> numa.Zones:
        """Return the free devices that slices locate: those that no claim holds, without those announced to pods."""
        zones = self._read_slices(node, lambda devices: devices.free, except_uid)
        if not zones:
            return ()
        unallocated = self._cluster.list_unallocated(node)
        announced = [*(amounts for uid, amounts in unallocated.items() if uid != except_uid), *assumed]
        return numa.subtract_usage(zones, announced) if announced else zones

    def _read_slices(
        self, node: str, select: Callable[[node_devices.NumaDevices], node_devices.NumaAmounts], except_uid: str = ""
    ) -> numa.Zones:
        claimable = self._cluster.list_claimable(node)
        if not claimable:
            return ()
        devices = self._cluster.claimed.inventory
        own = self._cluster.pods.get(except_uid) if except_uid else None
        released = devices.list_held_devices(own.claims) if own is not None else frozenset()
        key = (select(devices.count_by_numa_node(node, released)), claimable)
        zones = self._zones_by_amounts.get(key)
        if zones is None:
            zones = self._build_zones(*key)
            self._zones_by_amounts.add(key, zones)
        return zones

    def _build_zones(self, amounts_by_number: node_devices.NumaAmounts, claimable: frozenset[str]) -> numa.Zones:
        names = self.device_names & claimable
        return numa.build_zones(
            (number, {name: amount for name, amount in amounts.items() if name in names})
            for number, amounts in amounts_by_number.items()
        )

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
