"""Counts the devices that slices offer on each node, and those of them that claims hold, as amounts of resource names.

Placement therefore treats them as devices of a device plugin. Which devices are in use is read from claims only: while
a pod holds a device, its driver may withdraw attributes, but keeps the device in its slice.

Updated by events, which may arrive in any order and repeatedly. Devices that several nodes share are not counted.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

import msgspec

from railwright.fabric import resources
from railwright.fabric.claims import claim_index, objects, resource_names, slices

_UNSCHEDULABLE = frozenset({"NoSchedule", "NoExecute"})


class NodeDevices(msgspec.Struct, frozen=True):
    """Devices of a node, in milli-units by resource name.

    `allocatable` excludes devices with a taint that keeps pods away. `allocated` is the part of it that claims hold.
    """

    capacity: resources.FrozenAmounts = resources.NO_AMOUNTS
    allocatable: resources.FrozenAmounts = resources.NO_AMOUNTS
    allocated: resources.FrozenAmounts = resources.NO_AMOUNTS


NO_DEVICES = NodeDevices()


class Inventory:
    """Slices, claims, device classes and taint rules, counted by node and by pod.

    Each change returns the names of the nodes whose devices may have changed.
    """

    def __init__(self) -> None:
        self._slices = slices.SliceIndex()
        self._claims = claim_index.ClaimIndex()
        self._names = resource_names.ResourceNames()
        self._taint_rules: dict[str, objects.DeviceTaintRule] = {}
        self._counts: dict[str, NodeDevices] = {}  # computed on demand

    # --- reading --------------------------------------------------------------------------------------

    @property
    def has_devices(self) -> bool:
        """True if slices offer a device. Otherwise the cluster has no Dynamic Resource Allocation."""
        return bool(self._slices.devices)

    def count_devices(self, node: str) -> NodeDevices:
        """Return the devices of a node; NO_DEVICES if it has none."""
        devices = self._slices.ids_by_node.get(node)
        if devices is None:
            return NO_DEVICES
        counts = self._counts.get(node)
        if counts is None:
            counts = self._counts[node] = self._count(devices)
        return counts

    def list_consumers(self, claim: objects.ResourceClaim) -> frozenset[str]:
        """Return the UIDs of the pods that use a claim as it is known now."""
        return self._claims.list_consumers(claim)

    def has_allocation(self, pod: claim_index.PodKey) -> bool:
        """True if a claim of the pod is allocated: then its devices are among the allocated ones of its node."""
        return any(claim.results for claim in self._claims.list_claims(pod))

    def list_allocated_nodes(self, pod: claim_index.PodKey) -> set[str]:
        """Return the nodes with devices that the claims of a pod hold."""
        devices = [claim_index.list_devices(claim) for claim in self._claims.list_claims(pod)]
        return self._slices.list_nodes(set().union(*devices))

    def compute_requests(self, pod: claim_index.PodKey) -> resources.Amounts:
        """Return the devices that a pod's claims request, in milli-units by resource name.

        Claims that stand for extended resources are left out, because the pod's containers request these.
        """
        amounts: Counter[str] = Counter()
        for claim in self._claims.list_claims(pod):
            if objects.EXTENDED_RESOURCE_CLAIM not in claim.metadata.annotations:
                amounts.update(self._compute_amounts(claim))
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

    def upsert_taint_rule(self, rule: objects.DeviceTaintRule) -> set[str]:
        """Add or update a taint rule."""
        self._taint_rules[rule.metadata.name] = rule
        return self._forget_all_counts()

    def remove_taint_rule(self, rule: objects.DeviceTaintRule) -> set[str]:
        """Remove a taint rule."""
        self._taint_rules.pop(rule.metadata.name, None)
        return self._forget_all_counts()

    def replace_taint_rules(self, rules: Sequence[objects.DeviceTaintRule]) -> set[str]:
        """Replace all taint rules."""
        self._taint_rules = {rule.metadata.name: rule for rule in rules}
        return self._forget_all_counts()

    def upsert_claim(self, claim: objects.ResourceClaim) -> set[str]:
        """Add or update a claim."""
        return self._forget_counts(self._slices.list_nodes(self._claims.upsert(claim)))

    def remove_claim(self, claim: objects.ResourceClaim) -> set[str]:
        """Remove a claim."""
        return self._forget_counts(self._slices.list_nodes(self._claims.remove(claim)))

    def replace_claims(self, claims: Sequence[objects.ResourceClaim]) -> set[str]:
        """Replace all claims."""
        return self._forget_counts(self._slices.list_nodes(self._claims.replace(claims)))

    def _forget_devices(self, changes: slices.DeviceChanges) -> set[str]:
        self._names.forget(changes.devices)
        return self._forget_counts(changes.nodes)

    def _forget_all_counts(self) -> set[str]:
        self._counts.clear()
        return set(self._slices.ids_by_node)

    def _forget_counts(self, nodes: Iterable[str]) -> set[str]:
        changed = set(nodes)
        for node in changed:
            self._counts.pop(node, None)
        return changed

    # --- counting -------------------------------------------------------------------------------------

    def _count(self, devices: Collection[slices.DeviceId]) -> NodeDevices:
        capacity: Counter[str] = Counter()
        allocatable: Counter[str] = Counter()
        allocated: Counter[str] = Counter()
        for device in devices:
            offered = self._slices.devices[device]
            names = dict.fromkeys(self._names.find_names(offered), resources.UNIT)
            capacity.update(names)
            if not self._is_tainted(offered):
                allocatable.update(names)
                if self._claims.is_allocated(device):
                    allocated.update(names)
        return NodeDevices(*(resources.FrozenAmounts(dict(count)) for count in (capacity, allocatable, allocated)))

    def _is_tainted(self, device: slices.OfferedDevice) -> bool:
        by_rule = (rule.spec.taint for rule in self._taint_rules.values() if _selects(rule, device.id))
        return any(taint.effect in _UNSCHEDULABLE for taint in (*device.taints, *by_rule))

    def _compute_amounts(self, claim: objects.ResourceClaim) -> resources.Amounts:
        """Return the devices that a claim requests.

        They are the same before and after allocation, so that equal pods stay equal.
        """
        amounts: Counter[str] = Counter()
        for request in claim.requests:
            preferred = request.preferred
            if preferred is not None and not preferred.admin_access:
                names = self._names.get_class_names(preferred.device_class_name)
                amounts.update(dict.fromkeys(names, preferred.count * resources.UNIT))
        return amounts


def _selects(rule: objects.DeviceTaintRule, device: slices.DeviceId) -> bool:
    """Return whether a taint rule selects a device. A rule without a selector selects none (KEP-5055)."""
    selector = rule.spec.device_selector
    if selector is None:
        return False
    names = ((selector.driver, device.driver), (selector.pool, device.pool), (selector.device, device.device))
    return all(name is None or name == actual for name, actual in names)
