"""Assigns the devices that a pod's claims hold to the rails of its fabric, in the order of the rails."""

from collections.abc import Mapping, Sequence

import msgspec

from railwright.fabric import device_names
from railwright.fabric.claims import allocation, drivers
from railwright.fabric.policy import claimed_rails, compiled
from railwright.fabric.policy import model as policies

_NIC_DRIVERS = frozenset(driver.name for driver in drivers.KNOWN.values())


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
    fabric: compiled.CompiledFabric,
    labels: Mapping[str, str],
) -> tuple[AllocatedRail, ...]:
    """Return the NICs among allocated devices. `labels` are those of the node."""
    names_on_node = {name: _find_name(rail.rail, document, labels) for name, rail in fabric.rails.items()}
    positions = {name: position for position, name in enumerate(fabric.rails)}
    nics = []
    for device in devices:
        rdma_device = _read_rdma_device(device, fabric)
        rail = _find_rail(device, rdma_device, fabric, names_on_node)
        if rail or rdma_device or _may_have_rdma(device):
            interface = fabric.rails[rail].rail.interface if rail else None
            nics.append(
                AllocatedRail(
                    rail=rail,
                    claim=device.claim,
                    request=device.request,
                    device=device.device,
                    rdma_device=rdma_device or names_on_node.get(rail, ""),
                    interface=device.interface or interface or "",
                )
            )
    return tuple(sorted(nics, key=lambda nic: positions.get(nic.rail, len(positions))))


def has_names(fabric: compiled.CompiledFabric) -> bool:
    """True if the driver's slices have the names of RDMA devices. Those of SR-IOV functions have none."""
    return fabric.claims is None or fabric.claims.driver.has_rdma_names


def _find_rail(
    device: allocation.AllocatedDevice,
    rdma_device: str,
    fabric: compiled.CompiledFabric,
    names_on_node: Mapping[str, str],
) -> str:
    """Return the rail of a device, "" if it has none.

    The first match counts: the rail's selector in the policy, its RDMA device on the node, its resource that the pod
    requested, and the request's name.
    """
    for name, rail in fabric.rails.items():
        if rail.claim is not None and _selects(rail.claim.selector, device):
            return name
    by_device = next((name for name, known in names_on_node.items() if known and known == rdma_device), "")
    by_resource = [name for name, rail in fabric.rails.items() if rail.resource in device.resources]
    if by_device or len(by_resource) == 1:
        return by_device or by_resource[0]
    return device.request if device.request in fabric.rails else ""


def _selects(selector: claimed_rails.RailSelector, device: allocation.AllocatedDevice) -> bool:
    if selector.attribute:
        return device.get_attribute(selector.attribute) in selector.values
    return selector.expression in device.expressions


def _read_rdma_device(device: allocation.AllocatedDevice, fabric: compiled.CompiledFabric) -> str:
    """Return the name of a device's RDMA device by its slice, "" if the slice does not have it.

    The attribute that identifies the rails has such names only if a rail is identified by its `device`. It may also be
    that of a PCIe root.
    """
    attributes = [drivers.DRANET.rail_attribute]
    claims = fabric.claims
    if claims is not None and claims.driver.has_rdma_names and device.driver == claims.driver.name:
        has_names = any(rail.rail.claim is None for rail in fabric.rails.values())
        attributes[:0] = [claims.rail_attribute] if has_names else []
    values = (device.get_attribute(attribute) for attribute in attributes if attribute)
    return next((value for value in values if isinstance(value, str) and value), "")


def _may_have_rdma(device: allocation.AllocatedDevice) -> bool:
    """True for a NIC whose slice does not deny RDMA, as it does for the interface of a storage network."""
    is_denied = any(device.get_attribute(name) is False for name in drivers.RDMA_CAPABLE)
    return device.driver in _NIC_DRIVERS and not is_denied


def _find_name(rail: policies.Rail, document: policies.FabricPolicy, labels: Mapping[str, str]) -> str:
    known = device_names.resolve_on_node(document, (rail,), labels)
    return known[0] if known else ""
