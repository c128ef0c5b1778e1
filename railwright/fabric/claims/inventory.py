"""Counts the devices that slices offer on each node, and those of them that claims hold, as amounts of resource names.

Placement therefore treats them as devices of a device plugin. Which devices are in use is read from claims only: while
a pod holds a device, its driver may withdraw attributes, but keeps the device in its slice. So a device that is held
counts under the names that it had before.

Updated by events, which may arrive in any order and repeatedly. Devices that several nodes share are not counted.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Generic, Protocol, TypeVar

import msgspec

from railwright.fabric import resources, views
from railwright.fabric.claims import (
    claim_index,
    device_pairs,
    node_devices,
    objects,
    resource_names,
    slices,
)

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class _Index(Protocol[T_contra, R_co]):
    def replace(self, listed: Sequence[T_contra], /) -> R_co: ...
    def upsert(self, obj: T_contra, /) -> R_co: ...
    def remove(self, obj: T_contra, /) -> R_co: ...


class Sink(Generic[T, R]):
    """Passes the events of one kind of object on to its index. `follow` turns what changed there into names."""

    def __init__(self, index: _Index[T, R], follow: Callable[[R, Sequence[T]], set[str]]) -> None:
        self._index, self._follow = index, follow

    def replace(self, listed: Sequence[T]) -> set[str]:
        """Replace all objects."""
        return self._follow(self._index.replace(listed), listed)

    def upsert(self, obj: T) -> set[str]:
        """Add or update an object."""
        return self._follow(self._index.upsert(obj), (obj,))

    def remove(self, obj: T) -> set[str]:
        """Remove an object."""
        return self._follow(self._index.remove(obj), (obj,))


class Inventory:
    """Slices, claims, templates of claims, device classes and taint rules, counted by node and by pod.

    `offered`, `claims` and `names` are for reading, the sinks for changes. Each change returns the names of the nodes
    whose devices may have changed; that of a template, the keys of the templates that changed.
    """

    def __init__(self) -> None:
        self.offered = slices.SliceIndex()
        self.claims = claim_index.ClaimIndex()
        self.names = resource_names.ResourceNames()
        self._templates = claim_index.ClaimTemplates()
        self._taint_rules = slices.TaintRules()
        self._requested = claim_index.RequestedDevices(self.names)
        self._demands = device_pairs.PairDemands(self.names)
        self._shared = node_devices.DeviceCounts()
        # of each node; computed on demand
        self._layouts: dict[str, node_devices.Layout] = {}
        self._counts: dict[str, node_devices.Counts] = {}
        self._holders: dict[str, Sequence[claim_index.Holder]] = {}
        self._shared_amounts: tuple[tuple[int, int], Counter[str]] = ((0, 0), Counter())  # for these versions
        self.slice_sink = Sink(self.offered, self._forget_devices)
        self.class_sink = Sink(self.names, self._forget_if_changed)
        self.taint_rule_sink = Sink(self._taint_rules, self._forget_if_changed)
        self.claim_sink = Sink(self.claims, self._follow_claims)
        self.template_sink = Sink(self._templates, self._follow_templates)

    # --- reading --------------------------------------------------------------------------------------

    @property
    def has_devices(self) -> bool:
        """True if slices offer a device. Otherwise the cluster has no Dynamic Resource Allocation."""
        return self.offered.has_devices

    def count_devices(self, node: str) -> node_devices.NodeDevices:
        """Return the devices of a node; NO_DEVICES if it has none."""
        return self._get_counts(node).total

    def count_by_numa_node(
        self, node: str, released: AbstractSet[slices.DeviceId] = frozenset()
    ) -> node_devices.NumaDevices:
        """Return the devices of each NUMA node of a node, as far as slices say where they are.

        The devices `released` count as free.
        """
        return self._count_without(node, released).by_numa_node

    def count_pairs(
        self, node: str, demand: device_pairs.PairDemand, released: AbstractSet[slices.DeviceId] = frozenset()
    ) -> device_pairs.FreePairs:
        """Return for how many pods with these pairs a node has free devices. The devices `released` count as free."""
        devices = self.offered.ids_by_node.get(node)
        if devices is None:
            return device_pairs.UNLIMITED
        counts = self._count_without(node, released)
        layout = self._get_tolerant_layout(node, devices, demand.tolerations)
        return self._shared.count_pairs(layout, counts.held, self._select_pairs(demand))

    def count_further(
        self, node: str, demand: device_pairs.PairDemand, own: AbstractSet[slices.DeviceId] = frozenset()
    ) -> node_devices.FurtherDevices:
        """Return the devices that pods with this demand may get on a node beside those that count there.

        They are tainted ones that their claims tolerate or hold already, `own`, and those offered to several nodes.
        """
        further = self.count_shared_devices()
        devices = self.offered.ids_by_node.get(node) if demand.tolerations or own else None
        if devices is None:
            return node_devices.FurtherDevices(further, further)
        counts = self._get_counts(node)
        layout = self._get_tolerant_layout(node, devices, demand.tolerations)
        tainted = [self.offered.devices[device] for device in devices if device in own]
        tainted = [device for device in tainted if self._taint_rules.is_tainted(device)]
        lacking = [device for device in tainted if self._taint_rules.is_tainted(device, demand.tolerations)]
        return node_devices.count_further(
            counts,
            self._shared.count(layout, counts.held),
            further + _count_names(map(self.names.find_names, lacking)),
            further + _count_names(map(self.names.find_names, tainted)),
        )

    def read_devices(self, node: str) -> Hashable:
        """Return what the counts of a node follow from: equal for nodes of one type whose claims hold equal devices."""
        devices = self.offered.ids_by_node.get(node)
        return None if devices is None else (self._get_layout(node, devices), self._get_counts(node).held)

    def count_free_rails(self, node: str, names: node_devices.DeviceNames) -> node_devices.FreeRails:
        """Return the free devices of each rail of a node, and the free GPUs beside them."""
        devices = self.offered.ids_by_node.get(node)
        if devices is None:
            return node_devices.count_free_rails((), (), names)
        held = self._get_counts(node).held
        return self._shared.count_free_rails(self._get_layout(node, devices), held, names)

    def count_shared_devices(self) -> Counter[str]:
        """Return the devices that slices offer to several nodes, in milli-units by resource name."""
        version = self.offered.shared_version, self.names.version
        if self._shared_amounts[0] != version:
            self._shared_amounts = (version, _count_names(map(self.names.read_names, self.offered.list_shared())))
        return self._shared_amounts[1]

    def _select_pairs(self, demand: device_pairs.PairDemand) -> device_pairs.PairDemand:
        """Return the demand without pairs for which a device may come from those of several nodes."""
        shared = self.count_shared_devices()
        if not shared:
            return demand
        pairs = [pair for pair in demand.pairs if not any(kind.device_class in shared for kind, _ in pair.devices)]
        return msgspec.structs.replace(demand, pairs=tuple(pairs))

    def list_offered(self, node: str) -> Sequence[slices.OfferedDevice]:
        """Return the devices that slices offer on a node only."""
        return [self.offered.devices[device] for device in self.offered.ids_by_node.get(node, ())]

    def list_holders(self, node: str) -> Sequence[claim_index.Holder]:
        """Return the claims that hold devices of a node."""
        holders = self._holders.get(node)
        if holders is None:
            holders = self.claims.list_holders(self.offered.ids_by_node.get(node, ()))
            self._holders[node] = holders
        return holders

    def list_unavailable(self, node: str) -> Mapping[str, Sequence[node_devices.UnavailableDevice]]:
        """Return the devices of a node that pods cannot get now, by resource, in the order of their names."""
        counts = self.count_devices(node)
        if not counts.allocated and counts.allocatable == counts.capacity:
            return {}
        devices: dict[str, list[node_devices.UnavailableDevice]] = {}
        for device in sorted(self.offered.ids_by_node.get(node, ()), key=lambda device: device.device):
            offered, claim = self.offered.devices[device], self.claims.get_holder(device)
            taint = self._taint_rules.describe_taint(offered)
            if not taint and claim is None:
                continue
            key = claim.metadata.full_name if claim else ""
            row = node_devices.UnavailableDevice(device.device, taint, key, tuple(claim.consumers) if claim else ())
            for name in self.names.find_names(offered):
                devices.setdefault(name, []).append(row)
        return devices

    def list_allocated_nodes(self, pod: claim_index.PodKey) -> set[str]:
        """Return the nodes with devices that the claims of a pod hold."""
        return self.offered.list_nodes(self.claims.list_held_devices(pod))

    def compute_requests(self, pod: claim_index.PodKey) -> resources.FrozenAmounts:
        """Return the devices that a pod's claims request, in milli-units by resource name."""
        known = self.claims.list_claims(pod)
        if not known and not pod.templates:  # most pods
            return resources.NO_AMOUNTS
        claims = claim_index.list_device_claims(pod, known, self._templates)
        return resources.add_up([self._requested.count(claim) for claim in claims])

    def list_held(self, pod: claim_index.PodKey) -> Sequence[tuple[slices.OfferedDevice, tuple[str, ...]]]:
        """Return the devices that a pod's claims hold, in the order of their names, each with its resources."""
        held = sorted(self.claims.list_held_devices(pod), key=slices.get_order)
        devices = [self.offered.devices[device] for device in held if device in self.offered.devices]
        return [(device, self.names.find_names(device)) for device in devices]

    def read_pairs(self, pod: claim_index.PodKey) -> device_pairs.PairDemand:
        """Return which devices of a pod's claims must be beside each other."""
        claims = self.claims.list_claims(pod)
        if not claims and not pod.templates:
            return device_pairs.NO_PAIRS
        return self._demands.read(claim_index.list_device_claims(pod, claims, self._templates))

    def count_requested(self, claim: objects.ResourceClaim) -> resources.Amounts:
        """Return the devices that a claim requests, in milli-units by resource name."""
        return self._requested.count(claim.spec.devices)

    def count_held(self, claims: Iterable[objects.ResourceClaim], node: str) -> resources.Amounts:
        """Return the allocatable devices of a node that claims hold, in milli-units by resource name."""
        held = set().union(*map(claim_index.list_devices, claims))
        return self._count(node, held).total.allocated

    # --- events ---------------------------------------------------------------------------------------

    def replace_claim_resources(self, named: Sequence[resource_names.ClaimResource]) -> set[str]:
        """Replace the resources by which the policy names devices."""
        return self._forget_all_counts() if self.names.replace_claim_resources(named) else set()

    def learn_attributes(self, names: Iterable[str]) -> None:
        """Compare devices by these attributes from now on, too. Results stay the same."""
        if self._demands.learn_attributes(names):
            self._forget_all_counts()

    def _follow_claims(self, devices: Collection[slices.DeviceId], claims: Iterable[objects.ResourceClaim]) -> set[str]:
        """Compare devices by the attributes of these claims, and count those again that were allocated or released."""
        self._learn_from([claim.spec.devices for claim in claims])
        return self._update_holders(devices)

    def _follow_templates(self, keys: set[str], templates: Iterable[objects.ResourceClaimTemplate]) -> set[str]:
        """Compare devices by the attributes of these templates. Return the keys of those that changed."""
        self._learn_from([template.spec.spec.devices for template in templates])
        return keys

    def _learn_from(self, claims: Iterable[objects.DeviceClaim]) -> None:
        self.learn_attributes(
            constraint.match_attribute for claim in claims for constraint in claim.constraints_or_none or ()
        )

    def _forget_if_changed(self, is_changed: bool, _: object) -> set[str]:  # noqa: FBT001 - the result of an index
        return self._forget_all_counts() if is_changed else set()

    def _forget_devices(self, changes: slices.DeviceChanges, _: object) -> set[str]:
        """Forget names and counts of devices that changed. One that is held keeps names that its driver withdraws."""
        for device in changes.devices:
            offered = self.offered.devices.get(device)
            if offered is not None and self.claims.is_held(device):
                self.names.refresh(offered)
            else:
                self.names.forget([device])
        return self._forget_layouts(changes.nodes)

    def _forget_all_counts(self) -> set[str]:
        return self._forget_layouts(self.offered.ids_by_node)

    def _forget_layouts(self, nodes: Iterable[str]) -> set[str]:
        """Forget what the devices of these nodes count as."""
        changed = set(nodes)
        for node in changed:
            self._layouts.pop(node, None)
        self._forget_counts(changed)
        return changed

    def _forget_counts(self, nodes: Iterable[str]) -> None:
        """Forget which devices of these nodes are held."""
        for node in nodes:
            self._counts.pop(node, None)
            self._holders.pop(node, None)

    def _update_holders(self, devices: Collection[slices.DeviceId]) -> set[str]:
        """Count the devices of nodes again where some were allocated or released."""
        released = [device for device in devices if not self.claims.is_held(device)]
        self.names.forget(released)
        self._forget_layouts(self.offered.list_nodes(released))
        changed = self.offered.list_nodes(devices)
        self._forget_counts(changed)
        for node in changed:  # now, so that no request waits for it
            self._get_counts(node)
        return changed

    # --- counting -------------------------------------------------------------------------------------

    def _get_counts(self, node: str) -> node_devices.Counts:
        counts = self._counts.get(node)
        if counts is None:
            devices = self.offered.ids_by_node.get(node)
            if devices is None:
                return node_devices.NO_COUNTS
            counts = self._counts[node] = self._count(node, devices)
        return counts

    def _count_without(self, node: str, released: AbstractSet[slices.DeviceId]) -> node_devices.Counts:
        """Return the counts of a node. The devices `released` count as free."""
        devices = self.offered.ids_by_node.get(node, ()) if released else ()
        if released.isdisjoint(devices):
            return self._get_counts(node)
        return self._count(node, [device for device in devices if device not in released])

    def _count(self, node: str, candidates: Collection[slices.DeviceId]) -> node_devices.Counts:
        """Return the counts of a node. Of its devices, the `candidates` that claims hold are allocated."""
        devices, is_held = self.offered.ids_by_node.get(node), self.claims.is_held
        if devices is None:
            return node_devices.NO_COUNTS
        layout = self._get_layout(node, devices)
        held = position = 0
        for device, shares in zip(devices, layout.shares or itertools.repeat(1), strict=False):
            if is_held(device) and (candidates is devices or device in candidates):
                taken = self.claims.count_taken(self.offered.devices[device], shares)
                held |= ((1 << taken) - 1) << position
            position += shares
        return self._shared.count(layout, held)

    def _get_layout(self, node: str, devices: Sequence[slices.DeviceId]) -> node_devices.Layout:
        layout = self._layouts.get(node)
        if layout is None:
            layout = self._layouts[node] = self._build_layout(devices)
        return layout

    def _build_layout(
        self, devices: Sequence[slices.DeviceId], tolerations: Sequence[views.Toleration] = ()
    ) -> node_devices.Layout:
        """Return the layout of a node with these devices, for pods that tolerate some taints."""
        offered = [self.offered.devices[device] for device in devices]
        numbers = slices.find_numa_nodes(offered)
        values = device_pairs.number_values(offered, self._demands.attributes)
        counted = [
            node_devices.CountedDevice(
                self.names.find_names(device),
                numbers.get(device.id),
                self._taint_rules.is_tainted(device, tolerations),
                own,
            )
            for device, own in zip(offered, values, strict=True)
        ]
        shares = [max(1, slices.count_shares(device.device)) for device in offered]
        return self._shared.share(counted, self._demands.attributes, shares)

    def _get_tolerant_layout(
        self, node: str, devices: Sequence[slices.DeviceId], tolerations: Sequence[views.Toleration]
    ) -> node_devices.Layout:
        """Return the layout of a node for pods that tolerate some taints."""
        layout = self._get_layout(node, devices)
        has_taint = bool(tolerations) and any(device.is_tainted for device in layout.devices)
        return self._build_layout(devices, tolerations) if has_taint else layout


def _count_names(devices: Iterable[Iterable[str]]) -> Counter[str]:
    """Return devices with these names in milli-units by resource name."""
    amounts: Counter[str] = Counter()
    for names in devices:
        amounts.update(dict.fromkeys(names, resources.UNIT))
    return amounts
