"""Finds the NUMA nodes of devices, from what their drivers write in slices.

A driver says the NUMA node of a device by an attribute. A device without one is on the NUMA node of the devices at its
PCIe root: NVIDIA's driver gives a GPU's PCIe root, and dranet also the NUMA node of the NIC there.
"""

import functools
from collections.abc import Iterable, Mapping

from railwright.fabric.claims import objects, slices

_NUMA_NODE = "numaNode"
_STANDARD = "resource.kubernetes.io"
_DOMAINS = (_STANDARD, "dra.net")  # the standard attribute, and that of dranet and dra-driver-sriov
_PCIE_ROOT = f"{_STANDARD}/pcieRoot"


def find_numa_nodes(devices: Iterable[slices.OfferedDevice]) -> Mapping[slices.DeviceId, int]:
    """Return the NUMA node of each device of a node. Devices whose NUMA node is unknown are left out."""
    numbers: dict[slices.DeviceId, int] = {}
    by_root: dict[objects.Attribute | None, set[int]] = {}
    unknown: list[tuple[slices.DeviceId, objects.Attribute | None]] = []
    for device in devices:
        attributes: Mapping[str, objects.Attribute] = device.device.attributes or {}
        root = attributes.get(_PCIE_ROOT)
        number = _read_number(attributes, device.id.driver)
        if number is None:
            unknown.append((device.id, root))
        else:
            numbers[device.id] = number
            if root is not None:
                by_root.setdefault(root, set()).add(number)
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
    """Return the attributes with the NUMA node. A name without a domain belongs to the driver's."""
    return (*dict.fromkeys(f"{domain}/{_NUMA_NODE}" for domain in (*_DOMAINS, driver)), _NUMA_NODE)
