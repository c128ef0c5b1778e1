"""Builds the facts of nodes for one scheduling signature, from the cluster state and the assumed pods.

The devices of each NUMA node come from the node's report, its shape and its slices (docs/interface.md 7.4). Slices
count where the node shape has no NUMA layout. Claims then show exactly which devices are in use.
"""

import itertools
import operator
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import NamedTuple

from railwright.fabric import bounded_cache, resources
from railwright.fabric.claims import device_pairs, node_devices
from railwright.fabric.placement.nodes import (
    eligibility,
    kubelet_admission,
    node_evaluation,
    numa,
    scheduling_signature,
)
from railwright.fabric.placement.state import assumed_pods, cluster_state, object_info, pod_usage, rail_health
from railwright.fabric.policy import model
from railwright.fabric.reasons import reason

# --- devices by NUMA node -------------------------------------------------------------------------------------

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
        self, node: object_info.NodeInfo, shape: model.NodeShape | None, reported: numa.Zones
    ) -> numa.Zones:
        """Return the allocatable devices of each NUMA node. `reported` has those of the node's report."""
        if from_shape := self._read_shape(node, shape):
            return from_shape
        from_slices = self._read_slices(node.name, lambda devices: devices.allocatable)
        if not from_slices:
            return () if shape is not None else reported
        return numa.fill_missing_from(reported, from_slices) if reported else from_slices

    def _read_shape(self, node: object_info.NodeInfo, shape: model.NodeShape | None) -> numa.Zones:
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
        node: object_info.NodeInfo,
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
        released = devices.claims.list_held_devices(own.claims) if own is not None else frozenset()
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

    def _list_device_pods(self, node: str, except_uid: str) -> list[object_info.PodInfo]:
        """Return the pods bound to a node that request any of these devices."""
        return [
            pod
            for pod in self._cluster.list_pods_on(node)
            if pod.uid != except_uid and not self.device_names.isdisjoint(pod.requests)
        ]


# --- kinds of nodes -------------------------------------------------------------------------------------------

_MAX_KINDS = 8192  # that are known at once
_GPU_PRODUCT = "nvidia.com/gpu.product"  # NVIDIA's GPU feature discovery: tells node types apart where shapes do not


class NodeKinds:
    """Numbers the nodes by their state that matters to any pod, without names and labels.

    Computed once for all signatures, and again for the nodes that the change log names. A number is never used twice.
    """

    def __init__(self, cluster: cluster_state.ClusterState) -> None:
        self._cluster = cluster
        self._position = -1  # in the change log
        self._kind_by_node: dict[str, int | None] = {}
        self._kind_by_state: dict[Hashable, int] = {}
        self._numbers = itertools.count()

    def refresh(self) -> None:
        """Forget the nodes that changed since the last call. Call it before `find`."""
        changed = self._cluster.change_log.read_since(self._position)
        self._position = self._cluster.change_log.position
        if changed is None or len(self._kind_by_state) > _MAX_KINDS:
            self._kind_by_node.clear()
            self._kind_by_state.clear()
            return
        for name in changed:
            self._kind_by_node.pop(name, None)

    def find(self, names: Sequence[str]) -> list[int | None]:
        """Return the number of each node's kind; None if reports or claims say more of a node than others share."""
        known = self._kind_by_node
        try:
            return [known[name] for name in names]
        except KeyError:
            for name in names:
                if name not in known:
                    known[name] = self._compute(self._cluster.nodes[name])
            return [known[name] for name in names]

    def _compute(self, node: object_info.NodeInfo) -> int | None:
        name, cluster = node.name, self._cluster
        if cluster.get_topology_report(name) is not None:
            return None
        devices: Hashable = None
        if cluster.has_slices:
            if cluster.list_unallocated(name):
                return None
            devices = cluster.claimed.inventory.read_devices(name), cluster.list_claimable(name)
        product = node.labels.get(_GPU_PRODUCT, "")
        effects = cluster.health.list_all_effects(name)
        taints = tuple([(taint.key, taint.value, taint.effect) for taint in node.taints])
        amounts = cluster.get_free(name), node.allocatable, node.capacity
        state = product, *amounts, devices, effects, node.schedulable, taints
        kind = self._kind_by_state.get(state)
        if kind is None:
            kind = self._kind_by_state[state] = next(self._numbers)
        return kind


# --- facts ----------------------------------------------------------------------------------------------------

_MAX_AMOUNTS = 2048  # cached amounts of nodes; the cache is cleared above that


class _CountedAmounts(NamedTuple):
    """Amounts as a signature counts them."""

    devices: tuple[int, ...]  # in the order of the signature's devices
    fits: int  # pods that fit by CPU, memory and other resources that are not devices


class _NumaFacts(NamedTuple):
    """The part of a node's facts that depends on its NUMA nodes."""

    zones: numa.Zones = ()
    allocatable_zones: numa.Zones = ()
    admission_error: reason.Reason | None = None
    is_never_admissible: bool = False


_NO_NUMA_FACTS = _NumaFacts()


class _FurtherDevices(NamedTuple):
    """Devices of a node that only pods with some claims may get, in the order of the signature's devices."""

    allocatable: tuple[int, ...]
    free: tuple[int, ...]


class Absent(NamedTuple):
    """Pods that count as absent for one request."""

    self_uid: str = ""  # the requesting pod, whose own old allocation never counts against it (docs/interface.md 7.7)
    ignored_uids: Collection[str] = ()  # assumptions to ignore
    # bound pods whose removal the scheduler simulates; the devices of their claims stay allocated
    removed_uids: Collection[str] = ()


NONE_ABSENT = Absent()


class FactsBuilder:
    """Builds facts for pods with one scheduling signature."""

    def __init__(
        self,
        signature: scheduling_signature.SchedulingSignature,
        cluster: cluster_state.ClusterState,
        assumed: assumed_pods.AssumedPods,
        kinds: "NodeKinds",
    ) -> None:
        self._signature = signature
        self._cluster = cluster
        self._kinds = kinds
        self._assumed = assumed
        self._zones = ZoneReader(cluster, signature.fabric.rails, signature.accelerators)
        self._other_requests = [
            (name, amount)
            for name, amount in signature.requests.items()
            if amount > 0 and name not in signature.devices
        ]
        demanded = {need.resource: need.amount for need in signature.needs}
        demanded |= {name: signature.requests[name] for name in signature.devices if name in signature.requests}
        self.demanded = tuple(demanded.items())  # (accelerator or pool, milli-units)
        self._no_usage = (0,) * len(signature.devices)
        self._unrequested_rails = {
            need.resource: need.amount for need in signature.needs if not signature.requests.get(need.resource)
        }
        # True: the free devices of a node do not show how many pods of the gang share its NICs
        self.needs_peer_usage = bool(self._unrequested_rails) or any(
            need.amount > signature.count_devices_of_nics(need) for need in signature.needs
        )
        self._rails = frozenset(signature.uncounted_rails).union(*[need.rails for need in signature.needs])
        self._numa = signature.fabric.placement.numa
        self._requested_devices = [signature.requests.get(name, 0) for name in signature.devices]
        self._counted_amounts: dict[resources.FrozenAmounts, _CountedAmounts] = {}

    def build(
        self,
        node: object_info.NodeInfo,
        free: resources.Amounts | None = None,
        peer_requests: Sequence[resources.Amounts] = (),
        *,
        absent: Absent = NONE_ABSENT,
        assumed: assumed_pods.Assumptions | None = None,
    ) -> node_evaluation.NodeFacts:
        """Build the facts of `node`. `peer_requests` is what gang peers already use on it.

        `free` is what the scheduler offers; None: computed from the cluster state and the assumed pods. `assumed`
        replaces the assumed pods of the cluster for one request.
        """
        signature = self._signature
        shape = model.find_shape(signature.shapes, node.labels) if signature.shapes else None
        assumptions = self._assumed if assumed is None else assumed
        on_node = self._list_assumed(assumptions, node.name, absent)
        of_volcano = self._list_unobserved(
            node.name, [pod for pod in on_node if assumptions.get_scope(pod.uid) != assumed_pods.KUBE_SCOPE]
        )
        counted = self._count(self._subtract_assumed(node.name, on_node, absent) if free is None else free)
        allocatable = self._count(node.allocatable).devices
        further = self._count_further(node.name, absent.self_uid)
        if further is None:
            numa_facts = self._build_numa_facts(node, shape, absent, on_node)
        else:
            numa_facts = _NO_NUMA_FACTS  # where the further devices are is not known
            allocatable = _add(allocatable, further.allocatable)
            counted = counted._replace(devices=_add(counted.devices, further.free))
        return node_evaluation.NodeFacts(
            eligible=eligibility.is_eligible(node, signature.spec),
            shape=shape.name if shape else node.labels.get(_GPU_PRODUCT, ""),
            fits_by_other_resources=counted.fits,
            free=counted.devices,
            allocatable=allocatable,
            capacity=self._count(node.capacity).devices,
            peer_usage=self.sum_peer_usage(peer_requests) if peer_requests else self._no_usage,
            zones=numa_facts.zones,
            allocatable_zones=numa_facts.allocatable_zones,
            admission_error=numa_facts.admission_error,
            is_never_admissible=numa_facts.is_never_admissible,
            used_elsewhere=self._sum(of_volcano) if of_volcano else (),
            pairs=self._count_pairs(node.name, counted, on_node, absent.self_uid)
            if signature.pairs.pairs
            else device_pairs.UNLIMITED,
            further=further.free if further is not None else (),
            reported=self._list_reported(node.name),
        )

    def read_inputs(self, names: Sequence[str]) -> Sequence[Hashable]:
        """Return what determines the facts of each node, which nodes of one type share.

        None: more does, namely an assumed pod, or NUMA nodes that a shape or a report shows.
        """
        signature, assumed = self._signature, self._assumed
        if signature.shapes or (signature.pairs.tolerations and self._cluster.has_slices):
            return [None] * len(names)
        kinds: list[int | None] = self._kinds.find(names)
        if assumed.nodes:
            kinds = [None if name in assumed.nodes else kind for name, kind in zip(names, kinds, strict=True)]
        if not eligibility.depends_on_labels(signature.spec):
            return kinds
        nodes, spec = self._cluster.nodes, signature.spec
        return [
            None if kind is None else (eligibility.is_eligible(nodes[name], spec), kind)
            for name, kind in zip(names, kinds, strict=True)
        ]

    @property
    def depends_on_places(self) -> bool:
        """True if the facts of nodes with equal free amounts may differ, because of NUMA nodes or devices of slices."""
        return bool(self._signature.shapes) or self._cluster.has_slices

    def _list_reported(self, name: str) -> tuple[rail_health.ReportedRail, ...]:
        """Return the rails of the pod that are reported not to work on a node."""
        reported = self._cluster.health.list_effects(name, self._signature.fabric_name)
        return tuple([row for row in reported if row.rail in self._rails]) if reported else ()

    def replace_free(
        self,
        facts: node_evaluation.NodeFacts,
        free: resources.Amounts,
        *,
        if_preempted: bool = False,
        used_elsewhere: resources.Amounts | None = None,
    ) -> node_evaluation.NodeFacts:
        """Return the facts with other free resources. With `if_preempted`, all NUMA nodes count as free (preemption).

        `used_elsewhere` is what assumed pods of other schedulers take in addition; None keeps the present value.
        """
        counted = self._count(free)
        if facts.further:
            counted = counted._replace(devices=_add(counted.devices, facts.further))
        if if_preempted:
            facts = facts._replace(zones=facts.allocatable_zones, pairs=device_pairs.UNLIMITED)
        is_unreported = self._numa != "required" and any(map(operator.gt, counted.devices, facts.free))
        if facts.admission_error and not facts.is_never_admissible and (if_preempted or is_unreported):
            facts = facts._replace(admission_error=None)
        if used_elsewhere is not None:
            facts = facts._replace(used_elsewhere=self._sum([used_elsewhere]) if used_elsewhere else ())
        return facts._replace(free=counted.devices, fits_by_other_resources=counted.fits, eligible=True)

    def compute_free(
        self, name: str, *, absent: Absent = NONE_ABSENT, assumed: assumed_pods.Assumptions | None = None
    ) -> resources.Amounts:
        """Return allocatable minus bound minus assumed. `assumed` replaces the assumed pods of the cluster."""
        assumptions = self._assumed if assumed is None else assumed
        return self._subtract_assumed(name, self._list_assumed(assumptions, name, absent), absent)

    def _subtract_assumed(
        self, name: str, on_node: Sequence[assumed_pods.AssumedPod], absent: Absent
    ) -> resources.Amounts:
        """Return allocatable minus bound minus the assumed pods `on_node`.

        The claims of an assumed pod may be allocated already. Its devices are then not subtracted twice.
        """
        free = self._cluster.get_free(name)
        returned = pod_usage.count_observed(self._cluster, absent.self_uid, name) if absent.self_uid else {}
        if not on_node and not returned and not absent.removed_uids:
            return free
        result = dict(free)
        for requests in self._list_unobserved(name, on_node):
            for resource, amount in requests.items():
                result[resource] = result.get(resource, 0) - amount
        for amounts in (returned, pod_usage.count_removable(self._cluster, name, absent.removed_uids)):
            for resource, amount in amounts.items():
                result[resource] = result.get(resource, 0) + amount
        return result

    def _list_unobserved(self, name: str, on_node: Sequence[assumed_pods.AssumedPod]) -> Sequence[resources.Amounts]:
        """Return what the assumed pods use that the observed state does not count."""
        if not self._cluster.has_slices:
            return [pod.requests for pod in on_node]
        return [pod_usage.count_unobserved(self._cluster, pod.uid, name, pod.requests) for pod in on_node]

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
        """Count devices and fitting pods. Cached for the amounts of the cluster state: many nodes have equal ones."""
        if not isinstance(amounts, resources.FrozenAmounts):
            return self._compute_amounts(amounts)
        counted = self._counted_amounts.get(amounts)
        if counted is None:
            if len(self._counted_amounts) >= _MAX_AMOUNTS:
                self._counted_amounts.clear()
            counted = self._counted_amounts[amounts] = self._compute_amounts(amounts)
        return counted

    def _compute_amounts(self, amounts: resources.Amounts) -> _CountedAmounts:
        fits = node_evaluation.MAX_SLOTS_PER_NODE
        for name, amount in self._other_requests:
            fits = min(amounts.get(name, 0) // amount, fits)
        return _CountedAmounts(tuple([amounts.get(name, 0) for name in self._signature.devices]), max(0, fits))

    def _count_further(self, name: str, self_uid: str) -> _FurtherDevices | None:
        """Return the devices that such pods may get on a node beside those that count there, or None."""
        if not self._cluster.has_slices:
            return None
        known, own = self._cluster.claimed.inventory, self._cluster.pods.get(self_uid) if self_uid else None
        held = known.claims.list_held_devices(own.claims) if own is not None else frozenset()
        further = known.count_further(name, self._signature.pairs, held)
        if not further.allocatable and not further.free:
            return None
        allocatable, free = (
            tuple([amounts.get(device, 0) for device in self._signature.devices]) for amounts in further
        )
        return _FurtherDevices(allocatable, free) if any(allocatable) or any(free) else None

    def _count_pairs(
        self, name: str, counted: _CountedAmounts, on_node: Sequence[assumed_pods.AssumedPod], self_uid: str
    ) -> device_pairs.FreePairs:
        """Return the pairs of a node; UNLIMITED if it has no more slots by the amounts of devices."""
        slots = min(
            (free // amount for free, amount in zip(counted.devices, self._requested_devices, strict=True) if amount),
            default=counted.fits,
        )
        if slots <= 0:
            return device_pairs.UNLIMITED
        assumed = [pod.uid for pod in on_node]
        pairs = pod_usage.count_free_pairs(self._cluster, name, self._signature.pairs, assumed, except_uid=self_uid)
        return pairs if pairs.pods < slots else device_pairs.UNLIMITED

    def _list_assumed(
        self, assumptions: assumed_pods.Assumptions, name: str, absent: Absent
    ) -> Sequence[assumed_pods.AssumedPod]:
        """Return the pods assumed on a node whose binding has not been observed."""
        assumed = assumptions.list_on_node(name)
        if not assumed:
            return ()
        pods = self._cluster.pods
        return [
            pod
            for pod in assumed
            if pod.uid not in absent.ignored_uids and not ((bound := pods.get(pod.uid)) and bound.node)
        ]

    def _build_numa_facts(
        self,
        node: object_info.NodeInfo,
        shape: model.NodeShape | None,
        absent: Absent,
        on_node: Sequence[assumed_pods.AssumedPod],
    ) -> _NumaFacts:
        """Return the free and allocatable zones, and kubelet's admission error.

        With `numa: required` the admission check uses the best estimate of what is free on each NUMA node. Otherwise it
        uses only what kubelet reported, so that no pod waits because of an estimate.
        """
        report = self._cluster.get_topology_report(node.name)
        if self._numa == "ignore" or (shape is None and report is None and not self._cluster.has_slices):
            return _NO_NUMA_FACTS
        signature, names = self._signature, self._zones.device_names
        zones = self._zones.compute_free(
            node,
            shape,
            self._list_unobserved(node.name, on_node),
            except_uid=absent.self_uid,
            removed_uids=absent.removed_uids,
        )
        reported = numa.read_allocatable_zones(report, names) if report is not None else ()
        allocatable = self._zones.compute_allocatable(node, shape, reported)
        if report is None or not signature.container_demands or not kubelet_admission.is_strict(report):
            return _NumaFacts(zones, allocatable)

        def find_error(free: numa.Zones) -> reason.Reason | None:
            return kubelet_admission.find_admission_error(
                report, free, signature.requested_demand, signature.container_demands
            )

        if self._numa == "required":
            error = find_error(zones)
            return _NumaFacts(zones, allocatable, error, error is not None and find_error(allocatable) is not None)
        if error := find_error(reported):
            return _NumaFacts(zones, allocatable, error, is_never_admissible=True)
        if absent.self_uid or absent.removed_uids or on_node or not self._zones.is_reported_exactly(node.name):
            return _NumaFacts(zones, allocatable)
        return _NumaFacts(zones, allocatable, find_error(zones))


def _add(amounts: Sequence[int], further: Sequence[int]) -> tuple[int, ...]:
    return tuple(map(operator.add, amounts, further))
