"""Finds the NUMA nodes of devices, from what their drivers write in slices.

A driver says the NUMA node of a device by an attribute. A device without one is on the NUMA node of the devices at its
PCIe root: NVIDIA's driver gives a GPU's PCIe root, and dranet also the NUMA node of the NIC there.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from railwright.fabric.claims import slices

_NUMA_NODE = "numaNode"
_DOMAINS = ("resource.kubernetes.io", "dra.net")  # the standard attribute, and that of dranet and dra-driver-sriov


def find_numa_nodes(devices: Iterable[slices.OfferedDevice]) -> Mapping[slices.DeviceId, int]:
    """Return the NUMA node of each device of a node. Devices whose NUMA node is unknown are left out."""
    numbers: dict[slices.DeviceId, int] = {}
    by_root: dict[object, set[int]] = {}
    unknown: list[tuple[slices.DeviceId, object]] = []
    for device in devices:
        attributes = device.description["attributes"]
        root = attributes.get("resource.kubernetes.io", {}).get("pcieRoot")
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


def _read_number(attributes: Mapping[str, Mapping[str, Any]], driver: str) -> int | None:
    values = (attributes.get(domain, {}).get(_NUMA_NODE) for domain in (*_DOMAINS, driver))
    return next((value for value in values if type(value) is int and value >= 0), None)  # -1: the kernel knows none
