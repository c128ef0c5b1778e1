"""Reads facts of devices from slices and DeviceTaintRules: taints, NUMA nodes, and the claims that they have room for.

A driver says the NUMA node of a device by an attribute. A device without one is on the NUMA node of the devices at its
PCIe root: NVIDIA's driver gives a GPU's PCIe root, and dranet also the NUMA node of the NIC there.

A device has room for one claim, or for several if it allows multiple allocations (KEP-5075). Their number is an upper
bound, so that no node is refused where the allocator finds room: what the next request asks of the device's capacity
is not read, only the least that an allocation takes.
"""

import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction

from railwright.fabric import node_views, quantity, views
from railwright.fabric.claims import drivers, objects, slices


class TaintRules:
    """All DeviceTaintRules by name, and by the pool that they select: a cluster may have one for each broken device."""

    def __init__(self) -> None:
        self._rules: dict[str, objects.DeviceTaintRule] = {}
        self._rules_by_pool: dict[str | None, dict[str, objects.DeviceTaintRule]] = {}  # None: those of any pool

    def is_tainted(self, device: slices.OfferedDevice, tolerations: Sequence[views.Toleration] = ()) -> bool:
        """True if a taint keeps pods from a device that tolerate only `tolerations`."""
        if not device.taints and not self._rules:
            return False
        return any(taint.is_blocking(tolerations) for taint, _ in self._list_taints(device))

    def describe_taint(self, device: slices.OfferedDevice) -> str:
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
        self._rules_by_pool.setdefault(_get_pool(rule), {})[name] = rule
        return previous is None or previous.spec != rule.spec

    def remove(self, rule: objects.DeviceTaintRule) -> bool:
        """Remove a rule. Returns False if it was not known."""
        previous = self._rules.pop(rule.metadata.name, None)
        if previous is None:
            return False
        rules = self._rules_by_pool[_get_pool(previous)]
        del rules[rule.metadata.name]
        if not rules:
            del self._rules_by_pool[_get_pool(previous)]
        return True

    def replace(self, rules: Sequence[objects.DeviceTaintRule]) -> None:
        """Replace all rules."""
        self._rules.clear()
        self._rules_by_pool.clear()
        for rule in rules:
            self.upsert(rule)

    def _list_taints(self, device: slices.OfferedDevice) -> Iterator[tuple[node_views.Taint, str]]:
        """Yield the taints of a device, each with the name of the rule that sets it, "" for its slice."""
        for taint in device.taints:
            yield taint, ""
        for pool in (device.id.pool, None):
            for name, rule in self._rules_by_pool.get(pool, {}).items():
                if _selects(rule, device.id):
                    yield rule.spec.taint, name


def _get_pool(rule: objects.DeviceTaintRule) -> str | None:
    return rule.spec.device_selector.pool if rule.spec.device_selector is not None else None


def _selects(rule: objects.DeviceTaintRule, device: slices.DeviceId) -> bool:
    """Return whether a taint rule selects a device. A rule without a selector selects none (KEP-5055)."""
    selector = rule.spec.device_selector
    if selector is None:
        return False
    names = ((selector.driver, device.driver), (selector.pool, device.pool), (selector.device, device.device))
    return all(name is None or name == actual for name, actual in names)


def find_numa_nodes(devices: Iterable[slices.OfferedDevice]) -> Mapping[slices.DeviceId, int]:
    """Return the NUMA node of each device of a node. Devices whose NUMA node is unknown are left out."""
    numbers: dict[slices.DeviceId, int] = {}
    by_root: dict[objects.Attribute | None, set[int]] = {}
    unknown: list[tuple[slices.DeviceId, objects.Attribute | None]] = []
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
