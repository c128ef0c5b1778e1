"""Assigns the devices that a pod's claims hold to the rails of its fabric, in the order of the rails."""

from collections.abc import Mapping, Sequence

import msgspec

from railwright.fabric import device_names
from railwright.fabric.claims import allocation
from railwright.fabric.policy import model as policies

RDMA_DEVICE = "dra.net/rdmaDevice"


class AllocatedRail(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A NIC that a claim holds, as in the annotation `placement`. Keys in this order; a key without a value is absent.

    `rail` is "" if the device belongs to no rail of the fabric, `rdma_device` if its name is not known.
    """

    rail: str = ""
    claim: str = ""
    request: str = ""
    device: str = ""
    rdma_device: str = ""
    interface: str = ""


def assign(
    devices: Sequence[allocation.AllocatedDevice],
    document: policies.FabricPolicy,
    fabric: policies.Fabric,
    labels: Mapping[str, str],
) -> tuple[AllocatedRail, ...]:
    """Return the NICs among allocated devices. `labels` are those of the node."""
    names_on_node = {rail.name: _find_name(rail, document, labels) for rail in fabric.rails}
    positions = {rail.name: position for position, rail in enumerate(fabric.rails)}
    nics = []
    for device in devices:
        rdma_device = _read_text(device, RDMA_DEVICE)
        rail = _find_rail(device, rdma_device, names_on_node)
        if rail or rdma_device:
            rail_interface = fabric.rails[positions[rail]].interface if rail else None
            nics.append(
                AllocatedRail(
                    rail=rail,
                    claim=device.claim,
                    request=device.request,
                    device=device.device,
                    rdma_device=rdma_device or names_on_node.get(rail, ""),
                    interface=device.interface or rail_interface or "",
                )
            )
    return tuple(sorted(nics, key=lambda nic: positions.get(nic.rail, len(positions))))


def _find_rail(device: allocation.AllocatedDevice, rdma_device: str, names_on_node: Mapping[str, str]) -> str:
    """Return the rail of a device, "" if it has none: by its RDMA name on the node, otherwise by its request."""
    if rdma_device:
        by_name = next((rail for rail, name in names_on_node.items() if name == rdma_device), "")
        if by_name:
            return by_name
    return device.request if device.request in names_on_node else ""


def _find_name(rail: policies.Rail, document: policies.FabricPolicy, labels: Mapping[str, str]) -> str:
    known = device_names.resolve_on_node(document, (rail,), labels)
    return known[0] if known else ""


def _read_text(device: allocation.AllocatedDevice, attribute: str) -> str:
    value = device.get_attribute(attribute)
    return value if isinstance(value, str) else ""
