"""Adds up the devices of a node by resource name: in total, and by NUMA node.

Nodes of one type have equal devices, and differ in those that claims hold. So a cluster has few counts. Each is
computed once, and nodes share it.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from railwright.fabric import bounded_cache, resources
from railwright.fabric.claims import node_devices, pair_counts, pair_demand

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

    total: node_devices.NodeDevices
    by_numa_node: node_devices.NumaDevices
    held: int = 0  # the devices that are allocated


class FurtherDevices(NamedTuple):
    """Devices that some pods may get on a node beside those that count there, in milli-units by resource name."""

    allocatable: resources.Amounts
    free: resources.Amounts


NO_COUNTS = Counts(node_devices.NO_DEVICES, node_devices.NO_NUMA_DEVICES)


class DeviceCounts:
    """The counts of all layouts. A set of devices is an integer with the bit of each device's position."""

    def __init__(self) -> None:
        self._layouts: bounded_cache.BoundedCache[Layout, Layout] = bounded_cache.BoundedCache(_MAX_LAYOUTS)
        self._counts: bounded_cache.BoundedCache[tuple[Layout, int], Counts] = bounded_cache.BoundedCache(_MAX_COUNTS)
        self._pairs: bounded_cache.BoundedCache[tuple[Layout, int, pair_demand.PairDemand], pair_counts.FreePairs]
        self._pairs = bounded_cache.BoundedCache(_MAX_COUNTS)
        self._free_rails: bounded_cache.BoundedCache[
            tuple[Layout, int, node_devices.DeviceNames], node_devices.FreeRails
        ]
        self._free_rails = bounded_cache.BoundedCache(_MAX_COUNTS)

    def share(
        self, devices: Sequence[CountedDevice], attributes: tuple[str, ...], shares: Sequence[int] = ()
    ) -> Layout:
        """Return the layout of these devices: one object for equal ones. `shares` has the claims for each device."""
        if set(shares) <= {1}:
            layout = Layout(tuple(devices), attributes)
        else:
            repeated = [device for device, count in zip(devices, shares, strict=True) for _ in range(count)]
            layout = Layout(tuple(repeated), attributes, tuple(shares))
        known = self._layouts.get(layout)
        if known is None:
            self._layouts.add(layout, layout)
        return known or layout

    def count(self, layout: Layout, held: int) -> Counts:
        """Return the counts of a layout whose devices `held` are allocated."""
        counts = self._counts.get((layout, held))
        if counts is None:
            is_held = [bool(held >> position & 1) for position in range(len(layout.devices))]
            counts = Counts(_count(layout.devices, is_held), _count_by_numa_node(layout.devices, is_held), held)
            self._counts.add((layout, held), counts)
        return counts

    def count_pairs(self, layout: Layout, held: int, demand: pair_demand.PairDemand) -> pair_counts.FreePairs:
        """Return the pairs of a layout whose devices `held` are allocated."""
        key = (layout, held, demand)
        free = self._pairs.get(key)
        if free is None:
            pairs = [pair for pair in demand.pairs if pair.attribute in layout.attributes]
            free = pair_counts.count_pods(_list_free(layout, held), pairs)
            self._pairs.add(key, free)
        return free

    def count_free_rails(self, layout: Layout, held: int, names: node_devices.DeviceNames) -> node_devices.FreeRails:
        """Return the free rails of a layout whose devices `held` are allocated."""
        key = (layout, held, names)
        free = self._free_rails.get(key)
        if free is None:
            free = count_free_rails(_list_free(layout, held), layout.attributes, names)
            self._free_rails.add(key, free)
        return free


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
    devices: Sequence[pair_counts.FreeDevice], attributes: Sequence[str], names: node_devices.DeviceNames
) -> node_devices.FreeRails:
    """Return the free devices of a node. Values of `attributes` are known."""
    attribute = names.pair_attribute
    counts = Counter(name for device in devices for name in device.names)
    rails = tuple([counts[name] for name in names.rails])
    if not names.accelerator:
        return node_devices.FreeRails(rails)
    accelerators = counts[names.accelerator]
    if not attribute or attribute not in attributes:
        return node_devices.FreeRails(rails, accelerators)
    places = tuple([_find_place(devices, name, attribute) for name in names.rails])
    beside = Counter(device.values.get(attribute) for device in devices if names.accelerator in device.names)
    counts_beside = tuple([0 if place == _NOWHERE else beside[place] + beside[pair_counts.ANY] for place in places])
    return node_devices.FreeRails(rails, accelerators, places, counts_beside)


def _find_place(devices: Sequence[pair_counts.FreeDevice], rail: str, attribute: str) -> int | None:
    values = {device.values.get(attribute, _NOWHERE) for device in devices if rail in device.names}
    place = values.pop() if len(values) == 1 else None
    return None if place == pair_counts.ANY else place


def _list_free(layout: Layout, held: int) -> Sequence[pair_counts.FreeDevice]:
    return [
        pair_counts.FreeDevice(
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


def _count(devices: Sequence[CountedDevice], is_held: Sequence[bool]) -> node_devices.NodeDevices:
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
    return node_devices.NodeDevices(*map(resources.FrozenAmounts, (capacity, allocatable, allocated, held_tainted)))


def _count_by_numa_node(devices: Sequence[CountedDevice], is_held: Sequence[bool]) -> node_devices.NumaDevices:
    allocatable: dict[int, dict[str, int]] = {}
    free: dict[int, dict[str, int]] = {}
    for device, held in zip(devices, is_held, strict=True):
        if device.numa_node is not None:
            offered = 0 if device.is_tainted else resources.UNIT
            _add(allocatable.setdefault(device.numa_node, {}), device.names, offered)
            _add(free.setdefault(device.numa_node, {}), device.names, 0 if held else offered)
    return node_devices.NumaDevices(*map(node_devices.NumaAmounts, (allocatable, free)))


def _add(amounts: dict[str, int], names: Iterable[str], amount: int) -> None:
    """Add an amount to each of these resources."""
    for name in names:
        amounts[name] = amounts.get(name, 0) + amount
