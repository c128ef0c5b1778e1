"""Shares equal parts of the devices in slices: nodes of one type have equal devices but for serial numbers.

Slices are shared one by one as they are read, so that all of them are never in memory unshared.
"""

from collections.abc import Mapping

import msgspec

from railwright.fabric import bounded_cache
from railwright.fabric.claims import objects

_MAX_ATTRIBUTES = 1 << 16  # distinct ones that are shared; UUIDs and addresses are distinct on each device
_MAX_DEVICES = 1 << 14  # a node type has tens
_MAX_CAPACITIES = 1 << 12

_Capacity = tuple[tuple[str, objects.Capacity], ...]


class SharedDevices:
    """Attributes, capacities and devices in bounded tables. A full table is cleared; existing references stay valid."""

    def __init__(self) -> None:
        self._attributes: dict[objects.Attribute, objects.Attribute] = {}
        self._capacities: bounded_cache.BoundedCache[_Capacity, dict[str, objects.Capacity]]
        self._capacities = bounded_cache.BoundedCache(_MAX_CAPACITIES)
        self._devices: bounded_cache.BoundedCache[tuple[object, ...], objects.Device]
        self._devices = bounded_cache.BoundedCache(_MAX_DEVICES)

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
        attributes = {name: share(attribute, attribute) for name, attribute in (device.attributes or {}).items()}
        capacity = self._share_capacity(device.capacity)
        shared = msgspec.structs.replace(device, attributes=attributes, capacity=capacity)
        if device.taints or len(self._attributes) > before:
            return shared  # probably like no other: it has an attribute of its own, such as a UUID
        facts = (device.name, device.node_name, device.allow_multiple_allocations)
        key = (*facts, *attributes.items(), *(capacity or {}).items())
        known = self._devices.get(key)
        if known is None:
            self._devices.add(key, shared)
        return known or shared

    def _share_capacity(self, capacity: Mapping[str, objects.Capacity] | None) -> dict[str, objects.Capacity] | None:
        if not capacity:
            return None
        key = tuple(capacity.items())
        known = self._capacities.get(key)
        if known is None:
            known = dict(capacity)
            self._capacities.add(key, known)
        return known
