"""Finds the NUMA nodes of devices, from what their drivers write in slices.

A driver says the NUMA node of a device by an attribute. A device without one is on the NUMA node of the devices at its
PCIe root: NVIDIA's driver gives a GPU's PCIe root, and dranet also the NUMA node of the NIC there.
"""

from collections.abc import Iterable, Mapping

from railwright.fabric.claims import slices

_NUMA_NODE = "numaNode"
_STANDARD = "resource.kubernetes.io"
_DOMAINS = (_STANDARD, "dra.net")  # the standard attribute, and that of dranet and dra-driver-sriov


def find_numa_nodes(devices: Iterable[slices.OfferedDevice]) -> Mapping[slices.DeviceId, int]:
    """Return the NUMA node of each device of a node. Devices whose NUMA node is unknown are left out."""
    numbers: dict[slices.DeviceId, int] = {}
    by_root: dict[object, set[int]] = {}
    unknown: list[tuple[slices.DeviceId, object]] = []
    for device in devices:
        root = device.read_attribute(_STANDARD, "pcieRoot")
        number = _read_number(device)
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


def _read_number(device: slices.OfferedDevice) -> int | None:
    values = (device.read_attribute(domain, _NUMA_NODE) for domain in (*_DOMAINS, device.id.driver))
    return next((value for value in values if type(value) is int and value >= 0), None)  # -1: the kernel knows none
