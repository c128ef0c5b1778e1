"""Indexes the devices of ResourceSlices by name and by node.

Updated by events, which may arrive in any order and repeatedly. Devices that several nodes may use are left out.
"""

from collections.abc import Collection, Sequence

import msgspec

from railwright.fabric.claims import objects

_Pool = tuple[str, str]  # driver, name
_MAX_ATTRIBUTES = 1 << 16  # distinct attributes that are kept for sharing; UUIDs and addresses differ by device


class DeviceId(msgspec.Struct, frozen=True, cache_hash=True):
    """Driver, pool and name, which together identify a device in ResourceClaims."""

    driver: str
    pool: str
    device: str


class OfferedDevice(msgspec.Struct, frozen=True):
    """Device of a ResourceSlice, with its node."""

    id: DeviceId
    node: str
    device: objects.Device  # as in its slice

    def find_taint(self) -> str:
        """Return the first taint with effect NoSchedule or NoExecute, as KEY=VALUE:EFFECT; "" if there is none."""
        taint = next((taint for taint in self.device.taints or () if taint.is_blocking()), None)
        return f"{taint.key}{taint.value and f'={taint.value}'}:{taint.effect}" if taint is not None else ""

    def get_value(self, attribute: str) -> object:
        """Return the value of the device's attribute DOMAIN/NAME; None if the device lacks it."""
        value = objects.find_attribute(self.device, self.id.driver, attribute)
        return value.value if value is not None else None


class SliceIndex:
    """Devices of all ResourceSlices, by name and by node."""

    def __init__(self) -> None:
        self._slices_by_pool: dict[_Pool, dict[str, objects.ResourceSlice]] = {}
        self._devices_by_pool: dict[_Pool, Sequence[OfferedDevice]] = {}
        self._attributes: dict[objects.Attribute, objects.Attribute] = {}
        self.devices: dict[DeviceId, OfferedDevice] = {}
        self.devices_by_node: dict[str, dict[DeviceId, OfferedDevice]] = {}

    def share_attributes(self, offered: objects.ResourceSlice) -> objects.ResourceSlice:
        """Return the slice, with equal attributes of all slices replaced by one object, to save memory."""
        if len(self._attributes) >= _MAX_ATTRIBUTES:
            self._attributes.clear()  # existing references stay valid
        for device in offered.spec.devices:
            for name, attribute in (attributes := device.attributes or {}).items():
                attributes[name] = self._attributes.setdefault(attribute, attribute)
        return offered

    def replace_slice(self, before: objects.ResourceSlice | None, after: objects.ResourceSlice | None) -> set[str]:
        """Record an added, updated or deleted slice. Return the nodes whose devices may have changed.

        `before` is None for an added slice, `after` for a deleted one.
        """
        pools = dict.fromkeys([_get_pool(offered) for offered in (before, after) if offered is not None])
        if before is not None:
            del self._slices_by_pool[_get_pool(before)][before.metadata.name]
        if after is not None:
            self._slices_by_pool.setdefault(_get_pool(after), {})[after.metadata.name] = after
        return set().union(*map(self._index_pool, pools))

    def list_node_devices(self, node: str) -> Sequence[OfferedDevice]:
        """Return the devices that slices offer on a node, in the order of `get_sort_key`."""
        return sorted(self.devices_by_node.get(node, {}).values(), key=lambda device: get_sort_key(device.id))

    def _index_pool(self, pool: _Pool) -> set[str]:
        """Index the devices of a pool: those of its newest generation, if all its slices are known."""
        # By pool and not by slice: a generation counts only once all of its slices are known, so one slice may make the
        # devices of all others appear or disappear.
        before = self._devices_by_pool.pop(pool, ())
        for known in before:
            del self.devices[known.id], self.devices_by_node[known.node][known.id]
        if not self._slices_by_pool[pool]:
            del self._slices_by_pool[pool]
        current = _list_newest_slices(self._slices_by_pool.get(pool, {}).values())
        after = {device.id: device for offered in current for device in _list_devices(offered)}
        if after:
            self._devices_by_pool[pool] = list(after.values())
        for known in after.values():
            self.devices[known.id] = self.devices_by_node.setdefault(known.node, {})[known.id] = known
        nodes = {known.node for known in (*before, *after.values())}
        for node in nodes:
            if not self.devices_by_node[node]:
                del self.devices_by_node[node]
        return nodes


def identify_device(result: objects.DeviceResult) -> DeviceId:
    """Return driver, pool and name of an allocated device."""
    return DeviceId(result.driver, result.pool, result.device)


def get_sort_key(device: DeviceId) -> tuple[str, str, str]:
    """Return a sort key: driver, name, pool. Nodes with equal devices get the same order.

    The pool counts last, because it is often named after its node.
    """
    return device.driver, device.device, device.pool


def _get_pool(offered: objects.ResourceSlice) -> _Pool:
    return offered.spec.driver, offered.spec.pool.name


def _list_newest_slices(slices: Collection[objects.ResourceSlice]) -> list[objects.ResourceSlice]:
    """Return the slices of a pool's newest generation; none while one of them has not arrived."""
    newest = max((offered.spec.pool.generation for offered in slices), default=0)
    current = [offered for offered in slices if offered.spec.pool.generation == newest]
    return current if current and len(current) >= current[0].spec.pool.resource_slice_count else []


def _list_devices(offered: objects.ResourceSlice) -> list[OfferedDevice]:
    """Return the devices of a slice that name one node."""
    spec = offered.spec
    return [
        OfferedDevice(id=DeviceId(spec.driver, spec.pool.name, device.name), node=node, device=device)
        for device in spec.devices
        if (node := spec.node_name or device.node_name)
    ]
