"""Builds the facts of nodes for one scheduling signature, from the cluster state and the assumed pods.

The devices of each NUMA node come from the node's report and its shape (docs/interface.md 7.4).
"""

import operator
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from railwright.fabric import bounded_cache, resources
from railwright.fabric.placement.nodes import (
    eligibility,
    kubelet_admission,
    node_evaluation,
    numa,
    scheduling_signature,
)
from railwright.fabric.placement.state import broken_rails, cluster_state, object_info, pod_usage
from railwright.fabric.policy import model
from railwright.fabric.reasons import reason

# --- devices by NUMA node -------------------------------------------------------------------------------------

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
        self._zones_by_shape: bounded_cache.BoundedCache[tuple[str, resources.FrozenAmounts], numa.Zones]
        self._zones_by_shape = bounded_cache.BoundedCache(_MAX_SHAPES)

    def compute_allocatable(
        self, node: object_info.NodeInfo, shape: model.NodeShape | None, reported: numa.Zones
    ) -> numa.Zones:
        """Return the allocatable devices of each NUMA node. `reported` has those of the node's report."""
        if from_shape := self._read_shape(node, shape):
            return from_shape
        return () if shape is not None else reported

    def _read_shape(self, node: object_info.NodeInfo, shape: model.NodeShape | None) -> numa.Zones:
        """Return the allocatable devices of each NUMA node of a node of this shape; () if it has no NUMA layout."""
        if shape is None:
            return ()
        return self._zones_by_shape.find(
            (shape.name, node.allocatable),
            lambda: numa.build_zones_from_shape(shape, self._rails, node.allocatable, self._accelerators),
        )

    def compute_free(
        self,
        node: object_info.NodeInfo,
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
        assumed = list(assumed_requests)
        from_shape = self._read_shape(node, shape)
        report = self._cluster.get_topology_report(node.name)
        if report is None and not from_shape:
            return ()
        bound = self._list_device_pods(node.name, except_uid)
        taken = [*(pod_usage.count_observed(self._cluster, pod.uid, node.name) for pod in bound), *assumed]
        complement = numa.subtract_usage(from_shape, taken) if from_shape else ()
        if report is None:
            return complement
        names = self.device_names
        if kubelet_admission.is_current(report, [(pod.bound_at, pod.requests) for pod in bound], names):
            reported = numa.subtract_usage(numa.read_available_zones(report, names), assumed)
        elif from_shape:
            return complement
        else:
            reported = numa.subtract_usage(numa.read_allocatable_zones(report, names), taken)
        return numa.fill_missing_from(reported, complement) if complement else reported

    def _list_device_pods(self, node: str, except_uid: str) -> list[object_info.PodInfo]:
        """Return the pods bound to a node that request any of these devices."""
        return [
            pod
            for pod in self._cluster.list_pods_on(node)
            if pod.uid != except_uid and not self.device_names.isdisjoint(pod.requests)
        ]


# --- facts ----------------------------------------------------------------------------------------------------

GPU_PRODUCT = "nvidia.com/gpu.product"  # NVIDIA's GPU feature discovery: tells node types apart where shapes do not


class _CountedAmounts(NamedTuple):
    """Amounts as a signature counts them."""

    devices: tuple[int, ...]  # in the order of the signature's devices
    fits: int  # pods that fit by CPU, memory and other resources that are not devices


class _NumaFacts(NamedTuple):
    """The part of a node's facts that depends on its NUMA nodes."""

    zones: numa.Zones = ()
    allocatable_zones: numa.Zones = ()
    admission_error: reason.Reason | None = None


_NO_NUMA_FACTS = _NumaFacts()


class Absent(NamedTuple):
    """Pods that count as absent for one request."""

    self_uid: str = ""  # the requesting pod, whose own old allocation never counts against it (docs/interface.md 7.7)
    ignored_uids: Collection[str] = ()  # assumptions to ignore


NONE_ABSENT = Absent()


def compute_free(name: str, cluster: cluster_state.ClusterState, absent: Absent = NONE_ABSENT) -> resources.Amounts:
    """Return allocatable minus bound minus assumed.

    The claims of an assumed pod may be allocated already. Its devices are then not subtracted twice.
    """
    free = cluster.get_free(name)
    unobserved = list_unobserved(name, cluster, absent)
    returned = pod_usage.count_observed(cluster, absent.self_uid, name) if absent.self_uid else {}
    if not unobserved and not returned:
        return free
    result = dict(free)
    for requests in unobserved:
        for resource, amount in requests.items():
            result[resource] = result.get(resource, 0) - amount
    for resource, amount in returned.items():
        result[resource] = result.get(resource, 0) + amount
    return result


def list_unobserved(
    name: str, cluster: cluster_state.ClusterState, absent: Absent = NONE_ABSENT
) -> Sequence[resources.Amounts]:
    """Return what the pods assumed on a node use that the observed state does not count."""
    pods = cluster.pods
    on_node = [
        pod
        for pod in cluster.assumed.list_on_node(name)
        if pod.uid not in absent.ignored_uids and not ((known := pods.get(pod.uid)) and known.node)
    ]
    return [pod_usage.count_unobserved(cluster, pod.uid, name, pod.requests) for pod in on_node]


class FactsBuilder:
    """Builds facts for pods with one scheduling signature."""

    def __init__(
        self,
        signature: scheduling_signature.SchedulingSignature,
        cluster: cluster_state.ClusterState,
    ) -> None:
        self._signature = signature
        self._cluster = cluster
        self._zones = ZoneReader(cluster, signature.fabric.rails, signature.accelerators)
        self._other_requests = [
            (name, amount)
            for name, amount in signature.requests.items()
            if amount > 0 and name not in signature.devices
        ]
        self._no_usage = (0,) * len(signature.devices)
        self._unrequested_rails = {
            need.resource: need.amount for need in signature.needs if not signature.requests.get(need.resource)
        }
        # True: the free devices of a node do not show how many pods of the gang share its NICs
        self.needs_peer_usage = bool(self._unrequested_rails) or any(
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
        absent: Absent = NONE_ABSENT,
    ) -> node_evaluation.NodeFacts:
        """Build the facts of `node`. `peer_requests` is what gang peers already use on it.

        `free` is None if it is to be computed from the cluster state and the assumed pods. Otherwise the facts are also
        those of other nodes, none of which had a report of its NUMA nodes; this one may have got one since.
        """
        shapes = self._signature.shapes
        shape = model.find_shape(shapes, node.labels) if shapes else None
        counted = self._count(compute_free(node.name, self._cluster, absent) if free is None else free)
        numa_facts = self._build_numa_facts(node, shape, absent) if free is None else _NO_NUMA_FACTS
        return node_evaluation.NodeFacts(
            eligible=eligibility.admits(node, self._signature.spec),
            shape=shape.name if shape else node.labels.get(GPU_PRODUCT, ""),
            fits_by_other_resources=counted.fits,
            free=counted.devices,
            allocatable=self._count(node.allocatable).devices,
            capacity=self._count(node.capacity).devices,
            peer_usage=self.sum_peer_usage(peer_requests) if peer_requests else self._no_usage,
            zones=numa_facts.zones,
            allocatable_zones=numa_facts.allocatable_zones,
            admission_error=numa_facts.admission_error,
            broken=broken_rails.find_broken(node, self._rails),
        )

    def replace_free(
        self,
        facts: node_evaluation.NodeFacts,
        free: resources.Amounts,
        *,
        if_preempted: bool = False,
    ) -> node_evaluation.NodeFacts:
        """Return the facts with other free resources. With `if_preempted`, all NUMA nodes count as free."""
        counted = self._count(free)
        if if_preempted:
            facts = facts._replace(zones=facts.allocatable_zones)
        if facts.admission_error and (if_preempted or any(map(operator.gt, counted.devices, facts.free))):
            facts = facts._replace(admission_error=None)  # which NUMA nodes the further devices are on is not known
        return facts._replace(free=counted.devices, fits_by_other_resources=counted.fits, eligible=True)

    def compute_free(self, name: str) -> resources.Amounts:
        """Return allocatable minus bound minus assumed."""
        return compute_free(name, self._cluster)

    def sum_peer_usage(self, peer_requests: Sequence[resources.Amounts]) -> tuple[int, ...]:
        """Return the devices that peers use, including rails that they use without requesting them."""
        if not self._unrequested_rails:
            return self._sum(peer_requests)
        accelerated_pods = sum(
            1 for requests in peer_requests if any(requests.get(name, 0) > 0 for name in self._signature.accelerators)
        )
        return tuple(
            sum(requests.get(name, 0) for requests in peer_requests)
            or accelerated_pods * self._unrequested_rails.get(name, 0)
            for name in self._signature.devices
        )

    def _sum(self, amounts: Sequence[resources.Amounts]) -> tuple[int, ...]:
        """Add up the amounts of the signature's devices, in its order."""
        return tuple([sum([pod_amounts.get(name, 0) for pod_amounts in amounts]) for name in self._signature.devices])

    def _count(self, amounts: resources.Amounts) -> _CountedAmounts:
        """Count devices and fitting pods."""
        fits = node_evaluation.MAX_SLOTS_PER_NODE
        for name, amount in self._other_requests:
            fits = min(amounts.get(name, 0) // amount, fits)
        return _CountedAmounts(tuple([amounts.get(name, 0) for name in self._signature.devices]), max(0, fits))

    def _build_numa_facts(
        self,
        node: object_info.NodeInfo,
        shape: model.NodeShape | None,
        absent: Absent,
    ) -> _NumaFacts:
        """Return the free and allocatable zones, and kubelet's admission error by the free ones."""
        report = self._cluster.get_topology_report(node.name)
        if shape is None and report is None:
            return _NO_NUMA_FACTS
        signature, names = self._signature, self._zones.device_names
        unobserved = list_unobserved(node.name, self._cluster, absent)
        zones = self._zones.compute_free(node, shape, unobserved, except_uid=absent.self_uid)
        reported = numa.read_allocatable_zones(report, names) if report is not None else ()
        allocatable = self._zones.compute_allocatable(node, shape, reported)
        if report is None or not signature.container_devices:
            return _NumaFacts(zones, allocatable)
        error = kubelet_admission.find_admission_error(
            report, zones, signature.requested_devices, signature.container_devices
        )
        return _NumaFacts(zones, allocatable, error)
