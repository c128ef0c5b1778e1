"""The devices of one node by resource name: in total, by NUMA node, and by rail.

Nodes of one type have equal devices, and differ in those that claims hold. So a cluster has few counts. Each is
computed once, and nodes share it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from railwright.fabric import bounded_cache, resources
from railwright.fabric.claims import device_pairs


class NodeDevices(msgspec.Struct, frozen=True):
    """Devices of a node, in milli-units by resource name.

    `allocatable` excludes devices with a taint that keeps pods away. `allocated` is the part of it that claims hold,
    and `held_tainted` is the part of the others that they still hold.
    """

    capacity: resources.FrozenAmounts = resources.NO_AMOUNTS
    allocatable: resources.FrozenAmounts = resources.NO_AMOUNTS
    allocated: resources.FrozenAmounts = resources.NO_AMOUNTS
    held_tainted: resources.FrozenAmounts = resources.NO_AMOUNTS


class UnavailableDevice(msgspec.Struct, frozen=True):
    """A device that pods cannot get now: by a taint, or because a claim holds it."""

    device: str
    taint: str = ""
    claim: str = ""  # namespace/name
    pods: tuple[str, ...] = ()  # UIDs of the pods that use the claim


NO_DEVICES = NodeDevices()


class NumaAmounts(dict[int, resources.FrozenAmounts]):
    """Milli-units of each resource by the number of the NUMA node.

    They never change, so that they can be a key. The hash is computed once.
    """

    __slots__ = ("_hash",)

    def __init__(self, written: Mapping[int, resources.Amounts]) -> None:
        super().__init__({number: resources.freeze(amounts) for number, amounts in written.items()})
        self._hash = hash(frozenset(self.items()))

    def __hash__(self) -> int:  # type: ignore[override]  # dict has None
        return self._hash


_NO_AMOUNTS = NumaAmounts({})


class NumaDevices(msgspec.Struct, frozen=True):
    """Devices of each NUMA node. A resource that a NUMA node has, but none of it free, is listed with 0."""

    allocatable: NumaAmounts = _NO_AMOUNTS
    free: NumaAmounts = _NO_AMOUNTS


NO_NUMA_DEVICES = NumaDevices()


class DeviceNames(NamedTuple):
    """The resources under which the devices of a fabric count, and what pairs them."""

    rails: tuple[str, ...]
    accelerator: str = ""  # "" if the claims have no GPUs
    pair_attribute: str = ""  # that a GPU and its NIC share; "" if none does


class FreeRails(NamedTuple):
    """The free devices of a node. Rails are positions in the fabric.

    `places` has the number of the value that the devices of a rail have of the attribute that pairs them. It is None
    for a rail without a single known value: nothing is known of the GPUs beside it.
    """

    rails: tuple[int, ...]
    accelerators: int = 0
    places: tuple[int | None, ...] = ()
    accelerators_beside: tuple[int, ...] = ()  # of each rail; rails at one place share them


_MAX_LAYOUTS = 4096  # distinct ones; a node type has one for each combination of tainted devices
_MAX_COUNTS = 8192  # distinct ones; a layout has one for each combination of devices that claims hold

_NOWHERE = -2  # the place of a device without the attribute: it satisfies no constraint


class CountedDevice(NamedTuple):
    """The facts of a device by which it is counted."""

    names: tuple[str, ...]  # of the resources
    numa_node: int | None  # None if it is unknown
    is_tainted: bool  # a taint keeps pods away
    values: tuple[int | None, ...] = ()  # numbers of the values of the layout's attributes; None if it has none


class Layout(msgspec.Struct, frozen=True, cache_hash=True):
    """The devices of a node, in the order of their names."""

    devices: tuple[CountedDevice, ...]  # one for several claims counts as one for each of them
    attributes: tuple[str, ...] = ()  # in which devices of a pair agree
    shares: tuple[int, ...] = ()  # claims that each device has room for when free; () if each has room for one


class Counts(NamedTuple):
    """The devices of a node in total, and by NUMA node."""

    total: NodeDevices
    by_numa_node: NumaDevices
    held: int = 0  # the devices that are allocated


class FurtherDevices(NamedTuple):
    """Devices that some pods may get on a node beside those that count there, in milli-units by resource name."""

    allocatable: resources.Amounts
    free: resources.Amounts


NO_COUNTS = Counts(NO_DEVICES, NO_NUMA_DEVICES)


class DeviceCounts:
    """The counts of all layouts. A set of devices is an integer with the bit of each device's position."""

    def __init__(self) -> None:
        self._layouts = bounded_cache.BoundedCache[Layout, Layout](_MAX_LAYOUTS)
        self._counts = bounded_cache.BoundedCache[tuple[Layout, int], Counts](_MAX_COUNTS)
        self._pairs = bounded_cache.BoundedCache[tuple[Layout, int, device_pairs.PairDemand], device_pairs.FreePairs](
            _MAX_COUNTS
        )
        self._free_rails = bounded_cache.BoundedCache[tuple[Layout, int, DeviceNames], FreeRails](_MAX_COUNTS)

    def share(
        self, devices: Sequence[CountedDevice], attributes: tuple[str, ...], shares: Sequence[int] = ()
    ) -> Layout:
        """Return the layout of these devices: one object for equal ones. `shares` has the claims for each device."""
        if set(shares) <= {1}:
            layout = Layout(tuple(devices), attributes)
        else:
            repeated = [device for device, count in zip(devices, shares, strict=True) for _ in range(count)]
            layout = Layout(tuple(repeated), attributes, tuple(shares))
        return self._layouts.find(layout, lambda: layout)

    def count(self, layout: Layout, held: int) -> Counts:
        """Return the counts of a layout whose devices `held` are allocated."""
        return self._counts.find((layout, held), lambda: _count_all(layout, held))

    def count_pairs(self, layout: Layout, held: int, demand: device_pairs.PairDemand) -> device_pairs.FreePairs:
        """Return the pairs of a layout whose devices `held` are allocated."""
        pairs = [pair for pair in demand.pairs if pair.attribute in layout.attributes]
        return self._pairs.find(
            (layout, held, demand), lambda: device_pairs.count_pods(_list_free(layout, held), pairs)
        )

    def count_free_rails(self, layout: Layout, held: int, names: DeviceNames) -> FreeRails:
        """Return the free rails of a layout whose devices `held` are allocated."""
        return self._free_rails.find(
            (layout, held, names), lambda: count_free_rails(_list_free(layout, held), layout.attributes, names)
        )


def count_further(
    counts: Counts, tolerant: Counts, allocatable: resources.Amounts, free: resources.Amounts
) -> FurtherDevices:
    """Return the devices that `tolerant` has beside `counts`, and these further ones."""

    def subtract(field: str) -> Counter[str]:
        more = Counter(getattr(tolerant.total, field))
        more.subtract(getattr(counts.total, field))
        return more

    tolerated = subtract("allocatable")
    untaken = Counter(tolerated)
    untaken.subtract(subtract("allocated"))
    tolerated.update(allocatable)
    untaken.update(free)
    return FurtherDevices(tolerated, untaken)


def count_free_rails(
    devices: Sequence[device_pairs.FreeDevice], attributes: Sequence[str], names: DeviceNames
) -> FreeRails:
    """Return the free devices of a node. Values of `attributes` are known."""
    attribute = names.pair_attribute
    counts = Counter(name for device in devices for name in device.names)
    rails = tuple([counts[name] for name in names.rails])
    if not names.accelerator:
        return FreeRails(rails)
    accelerators = counts[names.accelerator]
    if not attribute or attribute not in attributes:
        return FreeRails(rails, accelerators)
    places = tuple([_find_place(devices, name, attribute) for name in names.rails])
    beside = Counter(device.values.get(attribute) for device in devices if names.accelerator in device.names)
    counts_beside = tuple([0 if place == _NOWHERE else beside[place] + beside[device_pairs.ANY] for place in places])
    return FreeRails(rails, accelerators, places, counts_beside)


def _find_place(devices: Sequence[device_pairs.FreeDevice], rail: str, attribute: str) -> int | None:
    values = {device.values.get(attribute, _NOWHERE) for device in devices if rail in device.names}
    place = values.pop() if len(values) == 1 else None
    return None if place == device_pairs.ANY else place


def _list_free(layout: Layout, held: int) -> Sequence[device_pairs.FreeDevice]:
    return [
        device_pairs.FreeDevice(
            device.names,
            {
                attribute: number
                for attribute, number in zip(layout.attributes, device.values, strict=True)
                if number is not None
            },
        )
        for position, device in enumerate(layout.devices)
        if not device.is_tainted and not held >> position & 1
    ]


def _count_all(layout: Layout, held: int) -> Counts:
    is_held = [bool(held >> position & 1) for position in range(len(layout.devices))]
    return Counts(_count(layout.devices, is_held), _count_by_numa_node(layout.devices, is_held), held)


def _count(devices: Sequence[CountedDevice], is_held: Sequence[bool]) -> NodeDevices:
    capacity: dict[str, int] = {}
    allocatable: dict[str, int] = {}
    allocated: dict[str, int] = {}
    held_tainted: dict[str, int] = {}
    for device, held in zip(devices, is_held, strict=True):
        _add(capacity, device.names, resources.UNIT)
        if not device.is_tainted:
            _add(allocatable, device.names, resources.UNIT)
        if held:
            _add(held_tainted if device.is_tainted else allocated, device.names, resources.UNIT)
    return NodeDevices(*map(resources.FrozenAmounts, (capacity, allocatable, allocated, held_tainted)))


def _count_by_numa_node(devices: Sequence[CountedDevice], is_held: Sequence[bool]) -> NumaDevices:
    allocatable: dict[int, dict[str, int]] = {}
    free: dict[int, dict[str, int]] = {}
    for device, held in zip(devices, is_held, strict=True):
        if device.numa_node is not None:
            offered = 0 if device.is_tainted else resources.UNIT
            _add(allocatable.setdefault(device.numa_node, {}), device.names, offered)
            _add(free.setdefault(device.numa_node, {}), device.names, 0 if held else offered)
    return NumaDevices(*map(NumaAmounts, (allocatable, free)))


def _add(amounts: dict[str, int], names: Iterable[str], amount: int) -> None:
    """Add an amount to each of these resources."""
    for name in names:
        amounts[name] = amounts.get(name, 0) + amount
