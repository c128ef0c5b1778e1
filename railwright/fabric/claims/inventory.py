"""Counts the devices that slices offer on each node, and those of them that claims hold, as amounts of resource names.

Placement therefore treats them as devices of a device plugin. Which devices are in use is read from claims only: while
a pod holds a device, its driver may withdraw attributes, but keeps the device in its slice. So a device that is held
counts under the names that it had before.

Updated by events, which may arrive in any order and repeatedly. Devices that several nodes share are not counted.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from railwright.fabric import resources
from railwright.fabric.claims import (
    claim_index,
    claim_requests,
    claim_resources,
    node_devices,
    numa_nodes,
    objects,
    resource_names,
    slices,
    taints,
)


class Inventory:
    """Slices, claims, templates of claims, device classes and taint rules, counted by node and by pod.

    Each change returns the names of the nodes whose devices may have changed; that of a template, the templates.
    The indexes may be the caller's, for reading.
    """

    def __init__(self, offered: slices.SliceIndex | None = None, claims: claim_index.ClaimIndex | None = None) -> None:
        self._slices = offered if offered is not None else slices.SliceIndex()
        self._claims = claims if claims is not None else claim_index.ClaimIndex()
        self._templates = claim_requests.ClaimTemplates()
        self._names = resource_names.ResourceNames()
        self._taint_rules = taints.TaintRules()
        self._counts: dict[str, node_devices.NodeDevices] = {}  # computed on demand
        self._numa_counts: dict[str, node_devices.NumaDevices] = {}  # computed on demand

    # --- reading --------------------------------------------------------------------------------------

    @property
    def has_devices(self) -> bool:
        """True if slices offer a device. Otherwise the cluster has no Dynamic Resource Allocation."""
        return bool(self._slices.devices)

    @property
    def names_version(self) -> int:
        """Incremented when requests of claims may count under other names."""
        return self._names.version

    def count_devices(self, node: str) -> node_devices.NodeDevices:
        """Return the devices of a node; NO_DEVICES if it has none."""
        devices = self._slices.ids_by_node.get(node)
        if devices is None:
            return node_devices.NO_DEVICES
        counts = self._counts.get(node)
        if counts is None:
            counts = self._counts[node] = self._count(devices)
        return counts

    def count_by_numa_node(
        self, node: str, released: AbstractSet[slices.DeviceId] = frozenset()
    ) -> node_devices.NumaDevices:
        """Return the devices of each NUMA node of a node, as far as slices say where they are.

        The devices `released` count as free.
        """
        devices = self._slices.ids_by_node.get(node)
        if devices is None:
            return node_devices.NO_NUMA_DEVICES
        if not released.isdisjoint(devices):
            return self._count_by_numa_node(devices, released)
        counts = self._numa_counts.get(node)
        if counts is None:
            counts = self._numa_counts[node] = self._count_by_numa_node(devices, frozenset())
        return counts

    def list_claims(self, pod: claim_index.PodKey) -> Sequence[objects.ResourceClaim]:
        """Return the known claims of a pod."""
        return self._claims.list_claims(pod)

    def list_consumers(self, claim: objects.ResourceClaim) -> frozenset[str]:
        """Return the UIDs of the pods that use a claim as it is known now."""
        return self._claims.list_consumers(claim)

    def list_holders(self, node: str) -> Sequence[objects.ResourceClaim]:
        """Return the claims that hold devices of a node."""
        claims = (self._claims.get_holder(device) for device in self._slices.ids_by_node.get(node, ()))
        by_key = {claim_index.format_key(claim.metadata): claim for claim in claims if claim is not None}
        return [claim for _, claim in sorted(by_key.items())]

    def list_unavailable(self, node: str) -> Mapping[str, Sequence[node_devices.UnavailableDevice]]:
        """Return the devices of a node that pods cannot get now, by resource, in the order of their names."""
        counts = self.count_devices(node)
        if not counts.allocated and counts.allocatable == counts.capacity:
            return {}
        devices: dict[str, list[node_devices.UnavailableDevice]] = {}
        for device in sorted(self._slices.ids_by_node.get(node, ()), key=lambda device: device.device):
            offered, claim = self._slices.devices[device], self._claims.get_holder(device)
            taint = self._taint_rules.describe_taint(offered)
            if not taint and claim is None:
                continue
            key = claim_index.format_key(claim.metadata) if claim else ""
            row = node_devices.UnavailableDevice(device.device, taint, key, tuple(claim.consumers) if claim else ())
            for name in self._names.find_names(offered):
                devices.setdefault(name, []).append(row)
        return devices

    def list_allocated_nodes(self, pod: claim_index.PodKey) -> set[str]:
        """Return the nodes with devices that the claims of a pod hold."""
        return self._slices.list_nodes(self.list_held_devices(pod))

    def list_held_devices(self, pod: claim_index.PodKey) -> set[slices.DeviceId]:
        """Return the devices that the claims of a pod hold."""
        return set().union(*map(claim_index.list_devices, self._claims.list_claims(pod)))

    def compute_requests(self, pod: claim_index.PodKey) -> resources.Amounts:
        """Return the devices that a pod's claims request, in milli-units by resource name."""
        return claim_requests.compute_requests(self._names, pod, self._claims.list_claims(pod), self._templates)

    def count_requested(self, claim: objects.ResourceClaim) -> resources.Amounts:
        """Return the devices that a claim requests, in milli-units by resource name."""
        return claim_requests.count_devices(self._names, claim.requests)

    def count_held(self, claims: Iterable[objects.ResourceClaim], node: str) -> resources.Amounts:
        """Return the allocatable devices of a node that claims hold, in milli-units by resource name."""
        amounts: Counter[str] = Counter()
        for device in set().union(*map(claim_index.list_devices, claims)):
            offered = self._slices.devices.get(device)
            if offered is not None and offered.node == node and self._is_counted_as_allocated(offered):
                amounts.update(dict.fromkeys(self._names.find_names(offered), resources.UNIT))
        return amounts

    # --- events ---------------------------------------------------------------------------------------

    def upsert_slice(self, offered: objects.ResourceSlice) -> set[str]:
        """Add or update a slice."""
        return self._forget_devices(self._slices.upsert(offered))

    def remove_slice(self, offered: objects.ResourceSlice) -> set[str]:
        """Remove a slice."""
        return self._forget_devices(self._slices.remove(offered))

    def replace_slices(self, offered: Sequence[objects.ResourceSlice]) -> set[str]:
        """Replace all slices."""
        return self._forget_devices(self._slices.replace(offered))

    def upsert_class(self, device_class: objects.DeviceClass) -> set[str]:
        """Add or update a device class."""
        return self._forget_all_counts() if self._names.upsert(device_class) else set()

    def remove_class(self, device_class: objects.DeviceClass) -> set[str]:
        """Remove a device class."""
        self._names.remove(device_class)
        return self._forget_all_counts()

    def replace_classes(self, classes: Sequence[objects.DeviceClass]) -> set[str]:
        """Replace all device classes."""
        self._names.replace(classes)
        return self._forget_all_counts()

    def replace_claim_resources(self, named: Sequence[claim_resources.ClaimResource]) -> set[str]:
        """Replace the resources by which the policy names devices."""
        return self._forget_all_counts() if self._names.replace_claim_resources(named) else set()

    def upsert_taint_rule(self, rule: objects.DeviceTaintRule) -> set[str]:
        """Add or update a taint rule."""
        return self._forget_all_counts() if self._taint_rules.upsert(rule) else set()

    def remove_taint_rule(self, rule: objects.DeviceTaintRule) -> set[str]:
        """Remove a taint rule."""
        return self._forget_all_counts() if self._taint_rules.remove(rule) else set()

    def replace_taint_rules(self, rules: Sequence[objects.DeviceTaintRule]) -> set[str]:
        """Replace all taint rules."""
        self._taint_rules.replace(rules)
        return self._forget_all_counts()

    def upsert_claim(self, claim: objects.ResourceClaim) -> set[str]:
        """Add or update a claim."""
        return self._forget_holders(self._claims.upsert(claim))

    def remove_claim(self, claim: objects.ResourceClaim) -> set[str]:
        """Remove a claim."""
        return self._forget_holders(self._claims.remove(claim))

    def replace_claims(self, claims: Sequence[objects.ResourceClaim]) -> set[str]:
        """Replace all claims."""
        return self._forget_holders(self._claims.replace(claims))

    def upsert_template(self, template: objects.ResourceClaimTemplate) -> set[str]:
        """Add or update a template of claims. Returns its key if its requests changed."""
        return self._templates.upsert(template)

    def remove_template(self, template: objects.ResourceClaimTemplate) -> set[str]:
        """Remove a template of claims. Returns its key if it was known."""
        return self._templates.remove(template)

    def replace_templates(self, templates: Sequence[objects.ResourceClaimTemplate]) -> set[str]:
        """Replace all templates of claims. Returns the keys of those that changed."""
        return self._templates.replace(templates)

    def _forget_devices(self, changes: slices.DeviceChanges) -> set[str]:
        """Forget names and counts of devices that changed. A device that is held keeps its names."""
        offered, claims = self._slices.devices, self._claims
        self._names.forget(
            [device for device in changes.devices if device not in offered or not claims.is_allocated(device)]
        )
        return self._forget_counts(changes.nodes)

    def _forget_holders(self, devices: Collection[slices.DeviceId]) -> set[str]:
        """Forget the counts of devices that were allocated or released."""
        self._names.forget([device for device in devices if not self._claims.is_allocated(device)])
        return self._forget_counts(self._slices.list_nodes(devices))

    def _forget_all_counts(self) -> set[str]:
        self._counts.clear()
        self._numa_counts.clear()
        return set(self._slices.ids_by_node)

    def _forget_counts(self, nodes: Iterable[str]) -> set[str]:
        changed = set(nodes)
        for node in changed:
            self._counts.pop(node, None)
            self._numa_counts.pop(node, None)
        return changed

    # --- counting -------------------------------------------------------------------------------------

    def _is_counted_as_allocated(self, device: slices.OfferedDevice) -> bool:
        return self._claims.is_allocated(device.id) and not self._taint_rules.is_tainted(device)

    def _count(self, devices: Collection[slices.DeviceId]) -> node_devices.NodeDevices:
        capacity: dict[str, int] = {}
        allocatable: dict[str, int] = {}
        allocated: dict[str, int] = {}
        for device in devices:
            offered = self._slices.devices[device]
            names = self._names.find_names(offered)
            _add(capacity, names, resources.UNIT)
            if not self._taint_rules.is_tainted(offered):
                _add(allocatable, names, resources.UNIT)
                if self._claims.is_allocated(device):
                    _add(allocated, names, resources.UNIT)
        return node_devices.NodeDevices(
            *(resources.FrozenAmounts(amounts) for amounts in (capacity, allocatable, allocated))
        )

    def _count_by_numa_node(
        self, devices: Collection[slices.DeviceId], released: AbstractSet[slices.DeviceId]
    ) -> node_devices.NumaDevices:
        allocatable: dict[int, dict[str, int]] = {}
        free: dict[int, dict[str, int]] = {}
        for device, number in numa_nodes.find_numa_nodes(self._slices.devices[device] for device in devices).items():
            offered = self._slices.devices[device]
            is_offered = not self._taint_rules.is_tainted(offered)
            names = self._names.find_names(offered)
            is_free = is_offered and (device in released or not self._claims.is_allocated(device))
            _add(allocatable.setdefault(number, {}), names, is_offered * resources.UNIT)
            _add(free.setdefault(number, {}), names, is_free * resources.UNIT)
        return node_devices.NumaDevices(allocatable, free)


def _add(amounts: dict[str, int], names: Iterable[str], amount: int) -> None:
    """Add an amount to each of these resources."""
    for name in names:
        amounts[name] = amounts.get(name, 0) + amount
