"""Indexes the devices that ResourceSlices offer: by name, and by node.

Updated by events, which may arrive in any order and repeatedly. Devices that several nodes share have no node.

Nodes of one type have equal devices but for serial numbers. So slices share equal parts, one by one as they are read:
all of them are never in memory unshared.
"""

import functools
import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

import msgspec

from railwright.fabric import bounded_cache, node_views, quantity, views
from railwright.fabric.claims import drivers, objects

_Pool = tuple[str, str]  # driver, name


class DeviceId(msgspec.Struct, frozen=True, cache_hash=True):
    """The name of a device in allocation results."""

    driver: str
    pool: str
    device: str


class OfferedDevice(msgspec.Struct, frozen=True):
    """A device in the current generation of its pool."""

    id: DeviceId
    node: str  # "" if slices offer it to several nodes
    device: objects.Device  # as in its slice

    @property
    def taints(self) -> Sequence[node_views.Taint]:
        """Taints of the slice; empty if absent."""
        return self.device.taints or ()

    def get_value(self, attribute: str) -> object:
        """Return the value of an attribute by its qualified name; None if the device has none."""
        domain, _, name = attribute.rpartition("/")
        value = objects.find_attribute(self.device, self.id.driver, domain, name)
        return value.value if value is not None else None


class DeviceChanges(NamedTuple):
    """Devices that were added, changed or removed, and their nodes."""

    devices: frozenset[DeviceId] = frozenset()
    nodes: frozenset[str] = frozenset()


class SliceIndex:
    """The devices of all slices."""

    def __init__(self) -> None:
        self._slices: dict[str, objects.ResourceSlice] = {}
        self._slices_by_pool: dict[_Pool, dict[str, objects.ResourceSlice]] = {}
        self._devices_by_pool: dict[_Pool, Mapping[DeviceId, OfferedDevice]] = {}
        self._shared = SharedDevices()
        self._devices_of_several_nodes: dict[_Pool, Sequence[OfferedDevice]] = {}
        self.shared_version = 0  # incremented when these change
        self.devices: dict[DeviceId, OfferedDevice] = {}
        self.ids_by_node: dict[str, tuple[DeviceId, ...]] = {}  # in the order of `get_order`
        # pools of which slices are missing -> the nodes that had devices of them
        self._incomplete: dict[_Pool, frozenset[str]] = {}

    def share(self, offered: objects.ResourceSlice) -> objects.ResourceSlice:
        """Return a slice that was just read with the parts that it has in common with others. Add that one."""
        return self._shared.share(offered)

    def upsert(self, offered: objects.ResourceSlice) -> DeviceChanges:
        """Add or update a slice."""
        name = offered.metadata.name
        previous = self._slices.get(name)
        if previous == offered:
            return DeviceChanges()
        self._slices[name] = offered
        if previous is not None:
            self._slices_by_pool[_get_pool(previous)].pop(name)
        self._slices_by_pool.setdefault(_get_pool(offered), {})[name] = offered
        pools = {_get_pool(offered)} if previous is None else {_get_pool(previous), _get_pool(offered)}
        return _merge(self._index_pool(pool) for pool in pools)

    def remove(self, offered: objects.ResourceSlice) -> DeviceChanges:
        """Remove a slice."""
        previous = self._slices.pop(offered.metadata.name, None)
        if previous is None:
            return DeviceChanges()
        self._slices_by_pool[_get_pool(previous)].pop(previous.metadata.name)
        return self._index_pool(_get_pool(previous))

    def replace(self, slices: Sequence[objects.ResourceSlice]) -> DeviceChanges:
        """Replace all slices."""
        listed = {offered.metadata.name for offered in slices}
        removed = [offered for name, offered in self._slices.items() if name not in listed]
        return _merge([*map(self.remove, removed), *map(self.upsert, slices)])

    def list_nodes(self, devices: Iterable[DeviceId]) -> set[str]:
        """Return the nodes of these devices. Devices that no slice offers have none."""
        return {self.devices[device].node for device in devices if device in self.devices}

    @property
    def has_devices(self) -> bool:
        """True if slices offer a device."""
        return bool(self.devices or self._devices_of_several_nodes)

    def is_incomplete(self, node: str) -> bool:
        """True if a pool that had devices of the node misses slices: its driver is writing them one by one."""
        return any(node in nodes for nodes in self._incomplete.values())

    def list_shared(self) -> Iterator[OfferedDevice]:
        """Yield the devices that are offered to several nodes."""
        return itertools.chain.from_iterable(self._devices_of_several_nodes.values())

    def _index_pool(self, pool: _Pool) -> DeviceChanges:
        """Index the devices of a pool: those of its newest generation, if all its slices are known."""
        # By pool and not by slice: a generation counts only once all of its slices are known, so one slice may make the
        # devices of all others appear or disappear.
        before = self._devices_by_pool.pop(pool, {})
        slices = self._slices_by_pool[pool]
        if not slices:
            del self._slices_by_pool[pool]
        complete = _list_current(slices.values())
        waiting = self._incomplete.pop(pool, frozenset[str]())
        if slices and not complete:
            self._incomplete[pool] = waiting.union([known.node for known in before.values()])
        current = [device for offered in complete for device in _list_devices(offered)]
        devices = {device.id: device for device in current if device.node}
        shared = [device for device in current if not device.node]
        if shared != self._devices_of_several_nodes.get(pool, []):
            self._devices_of_several_nodes[pool] = shared
            if not shared:
                del self._devices_of_several_nodes[pool]
            self.shared_version += 1
        if devices:
            self._devices_by_pool[pool] = devices
        changed = frozenset(
            device for device in before.keys() | devices.keys() if before.get(device) != devices.get(device)
        )
        for device in changed:
            self.devices.pop(device, None)
        self.devices.update((device, devices[device]) for device in changed if device in devices)
        nodes = {known.node for known in (*map(before.get, changed), *map(devices.get, changed)) if known is not None}
        self._index_nodes(nodes, changed, devices)
        return DeviceChanges(changed, waiting.union(nodes))

    def _index_nodes(
        self, nodes: Iterable[str], changed: Collection[DeviceId], devices: Mapping[DeviceId, OfferedDevice]
    ) -> None:
        """Index changed devices of a pool by their nodes. `devices` are those that the pool has now."""
        added: dict[str, list[DeviceId]] = {}
        for device in changed:
            if device in devices:
                added.setdefault(devices[device].node, []).append(device)
        for node in nodes:
            unchanged = [device for device in self.ids_by_node.pop(node, ()) if device not in changed]
            if ids := sorted([*unchanged, *added.get(node, ())], key=get_order):
                self.ids_by_node[node] = tuple(ids)


def _merge(changes: Iterable[DeviceChanges]) -> DeviceChanges:
    merged = list(changes)
    return DeviceChanges(
        frozenset().union(*(change.devices for change in merged)),
        frozenset().union(*(change.nodes for change in merged)),
    )


def get_order(device: DeviceId) -> tuple[str, str, str]:
    """Return the key by which equal nodes have their devices in one order: pools are often named like the node."""
    return device.driver, device.device, device.pool


def _get_pool(offered: objects.ResourceSlice) -> _Pool:
    return offered.spec.driver, offered.spec.pool.name


def _list_current(slices: Collection[objects.ResourceSlice]) -> list[objects.ResourceSlice]:
    """Return the slices of a pool in its newest generation; none if one is missing."""
    newest = max((offered.spec.pool.generation for offered in slices), default=0)
    current = [offered for offered in slices if offered.spec.pool.generation == newest]
    return current if current and len(current) >= current[0].spec.pool.resource_slice_count else []


def _list_devices(offered: objects.ResourceSlice) -> list[OfferedDevice]:
    """Return the devices of a slice."""
    spec = offered.spec
    return [
        OfferedDevice(
            id=DeviceId(spec.driver, spec.pool.name, device.name),
            node=spec.node_name or device.node_name,
            device=device,
        )
        for device in spec.devices
    ]


# attributes and capacities of a device that is shared: as many as API servers accept, by the constant
# ResourceSliceMaxAttributesAndCapacitiesPerDevice of k8s.io/api/resource/v1
_MAX_PARTS = 32
_MAX_ATTRIBUTES = 1 << 16  # distinct ones that are shared; UUIDs and addresses are distinct on each device
_MAX_DEVICES = 1 << 14  # a node type has tens
_MAX_CAPACITIES = 1 << 12

_Capacity = tuple[tuple[str, objects.Capacity], ...]


class SharedDevices:
    """Attributes, capacities and devices in bounded tables. A full table is cleared; existing references stay valid."""

    def __init__(self) -> None:
        self._attributes: dict[objects.Attribute, objects.Attribute] = {}
        self._capacities = bounded_cache.BoundedCache[_Capacity, dict[str, objects.Capacity]](_MAX_CAPACITIES)
        self._devices = bounded_cache.BoundedCache[tuple[object, ...], objects.Device](_MAX_DEVICES)

    def share(self, offered: objects.ResourceSlice) -> objects.ResourceSlice:
        """Return the slice with one object for each equal part that was shared before."""
        if len(self._attributes) >= _MAX_ATTRIBUTES:
            self._attributes.clear()
        devices = [self._share_device(device) for device in offered.spec.devices]
        spec = msgspec.structs.replace(offered.spec, devices_or_none=devices)
        return msgspec.structs.replace(offered, spec=spec)

    def _share_device(self, device: objects.Device) -> objects.Device:
        before = len(self._attributes)
        share = self._attributes.setdefault
        own = device.capacity
        if len(device.attributes or ()) + len(own or ()) > _MAX_PARTS:
            return device
        attributes = {name: share(attribute, attribute) for name, attribute in (device.attributes or {}).items()}
        capacity = self._capacities.find(tuple(own.items()), lambda: own) if own else None
        shared = msgspec.structs.replace(device, attributes=attributes, capacity=capacity)
        if device.taints or len(self._attributes) > before:
            return shared  # probably like no other: it has an attribute of its own, such as a UUID
        facts = (device.name, device.node_name, device.allow_multiple_allocations)
        key = (*facts, *attributes.items(), *(capacity or {}).items())
        return self._devices.find(key, lambda: shared)


# --- facts of devices: taints, NUMA nodes, and the claims that they have room for ----------------------

# A driver says the NUMA node of a device by an attribute. A device without one is on the NUMA node of the devices at
# its PCIe root: NVIDIA's driver gives a GPU's PCIe root, and dranet also the NUMA node of the NIC there.
#
# A device has room for one claim, or for several if it allows multiple allocations (KEP-5075). Their number is an
# upper bound, so that no node is refused where the allocator finds room: what the next request asks of the device's
# capacity is not read, only the least that an allocation takes.


class TaintRules:
    """All DeviceTaintRules by name, and by the pool that they select: a cluster may have one for each broken device."""

    def __init__(self) -> None:
        self._rules: dict[str, objects.DeviceTaintRule] = {}
        self._rules_by_pool: dict[str | None, dict[str, objects.DeviceTaintRule]] = {}  # None: those of any pool

    def is_tainted(self, device: OfferedDevice, tolerations: Sequence[views.Toleration] = ()) -> bool:
        """True if a taint keeps pods from a device that tolerate only `tolerations`."""
        if not device.taints and not self._rules:
            return False
        return any(taint.is_blocking(tolerations) for taint, _ in self._list_taints(device))

    def describe_taint(self, device: OfferedDevice) -> str:
        """Return a taint that keeps pods away, as KEY=VALUE:EFFECT, and the rule that sets it; "" if there is none."""
        for taint, rule in self._list_taints(device):
            if taint.is_blocking():
                written = f"{taint.key}{taint.value and f'={taint.value}'}:{taint.effect}"
                return f"{written} of DeviceTaintRule {rule}" if rule else written
        return ""

    def upsert(self, rule: objects.DeviceTaintRule) -> bool:
        """Add or update a rule. Returns False if it is unchanged: kube-scheduler updates its status."""
        name = rule.metadata.name
        previous = self._rules.get(name)
        self.remove(rule)
        self._rules[name] = rule
        self._rules_by_pool.setdefault(_get_rule_pool(rule), {})[name] = rule
        return previous is None or previous.spec != rule.spec

    def remove(self, rule: objects.DeviceTaintRule) -> bool:
        """Remove a rule. Returns False if it was not known."""
        previous = self._rules.pop(rule.metadata.name, None)
        if previous is None:
            return False
        rules = self._rules_by_pool[_get_rule_pool(previous)]
        del rules[rule.metadata.name]
        if not rules:
            del self._rules_by_pool[_get_rule_pool(previous)]
        return True

    def replace(self, rules: Sequence[objects.DeviceTaintRule]) -> bool:
        """Replace all rules. Returns True: others may select devices."""
        self._rules.clear()
        self._rules_by_pool.clear()
        for rule in rules:
            self.upsert(rule)
        return True

    def _list_taints(self, device: OfferedDevice) -> Iterator[tuple[node_views.Taint, str]]:
        """Yield the taints of a device, each with the name of the rule that sets it, "" for its slice."""
        for taint in device.taints:
            yield taint, ""
        for pool in (device.id.pool, None):
            for name, rule in self._rules_by_pool.get(pool, {}).items():
                if _selects(rule, device.id):
                    yield rule.spec.taint, name


def _get_rule_pool(rule: objects.DeviceTaintRule) -> str | None:
    return rule.spec.device_selector.pool if rule.spec.device_selector is not None else None


def _selects(rule: objects.DeviceTaintRule, device: DeviceId) -> bool:
    """Return whether a taint rule selects a device. A rule without a selector selects none (KEP-5055)."""
    selector = rule.spec.device_selector
    if selector is None:
        return False
    names = ((selector.driver, device.driver), (selector.pool, device.pool), (selector.device, device.device))
    return all(name is None or name == actual for name, actual in names)


def find_numa_nodes(devices: Iterable[OfferedDevice]) -> Mapping[DeviceId, int]:
    """Return the NUMA node of each device of a node. Devices whose NUMA node is unknown are left out."""
    numbers: dict[DeviceId, int] = {}
    by_root: dict[objects.Attribute | None, set[int]] = {}
    unknown: list[tuple[DeviceId, objects.Attribute | None]] = []
    for device in devices:
        attributes: Mapping[str, objects.Attribute] = device.device.attributes or {}
        root = attributes.get(drivers.PCIE_ROOT)
        number = _read_number(attributes, device.id.driver)
        if number is None:
            unknown.append((device.id, root))
        else:
            numbers[device.id] = number
            if root is not None:
                by_root.setdefault(root, set()).add(number)
    # second, because the device that shows the NUMA node of a PCIe root may come after the one that needs it
    for device_id, root in unknown:
        if len(by_root.get(root, ())) == 1:  # drivers that disagree locate nothing
            [numbers[device_id]] = by_root[root]
    return numbers


def _read_number(attributes: Mapping[str, objects.Attribute], driver: str) -> int | None:
    for key in _list_keys(driver):
        attribute = attributes.get(key)
        number = None if attribute is None else attribute.integer
        if number is not None and number >= 0:  # -1: the kernel knows none
            return number
    return None


@functools.lru_cache(maxsize=64)  # a cluster has a few drivers
def _list_keys(driver: str) -> tuple[str, ...]:
    """Return the attributes with the NUMA node: the standard one, that of dranet and dra-driver-sriov, the driver's."""
    return tuple(dict.fromkeys((drivers.NUMA_NODE, "dra.net/numaNode", f"{driver}/numaNode", "numaNode")))


MAX_SHARES = 64  # a larger number counts as this

Consumed = Mapping[str, views.RawQuantity]
"""The capacity that one allocation of a device takes, by name."""


def count_shares(device: objects.Device, consumed: Sequence[Consumed] = ()) -> int:
    """Return how many further claims a device has room for, beside the allocations that consume these capacities."""
    if not device.allow_multiple_allocations:
        return int(not consumed)
    total: Counter[str] = Counter()
    for amounts in consumed:
        total.update({name: _read(amount) for name, amount in amounts.items()})
    shares = MAX_SHARES
    for name, capacity in (device.capacity or {}).items():
        value = _read(capacity.value)
        smallest = _read(capacity.request_policy.smallest) if capacity.request_policy is not None else Fraction(0)
        if smallest > 0:
            shares = min(shares, int((value - total[name]) // smallest))
        elif 0 < value <= total[name] and capacity.request_policy is None:
            shares = 0  # a request that does not say otherwise takes all of it
    return max(0, shares)


def _read(amount: views.RawQuantity) -> Fraction:
    """Return an amount; 0 if it is no quantity, which the API server does not accept."""
    try:
        return quantity.parse(amount)
    except quantity.InvalidQuantityError:
        return Fraction(0)
