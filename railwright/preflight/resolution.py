"""Finds the device, port, GID index and interface of each rail in this container.

The first match identifies the devices of a rail:
1. policy: the device that the policy states;
2. claim: the devices of the claim's request that has the rail's name, as the driver describes them;
3. interface: the device of the interface's PCI function, otherwise one with a GID of the interface;
4. resource: the PCI functions that the SR-IOV device plugin names for the rail's resource. Rails with the same resource
   share them equally. A rail on an interface has one device; it has all devices of its resource if RDMA needs no
   address and no other rail has the resource;
5. order: the devices that are left, those that are ready first, in natural order. Not for RoCE on an interface: a
   device without a GID of the interface cannot carry it.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from railwright.preflight import expected
from railwright.preflight import host as hosts


class ContainerView(NamedTuple):
    """The options, and the container's devices and interfaces, read once for all rails."""

    host: hosts.Host
    expectations: expected.Expectations
    devices: dict[str, hosts.Device]
    network: hosts.Network
    claimed: tuple[hosts.ClaimedDevice, ...]


class ResolvedRail(NamedTuple):
    """A rail with one of its devices and the found values. A field is None if nothing was found."""

    rail: expected.Rail
    name: str = ""  # of its device, also of one that is not there
    basis: str = ""  # what identified the device: policy, claim, interface, resource or order
    device: hosts.Device | None = None
    port: hosts.Port | None = None
    interface: hosts.Interface | None = None
    gids: tuple[hosts.Gid, ...] = ()  # of this pod's addresses on the rail, the one to use first
    usable_gids: tuple[hosts.Gid, ...] = ()  # of these, those of a type that the transport allows

    @property
    def gid(self) -> hosts.Gid | None:
        """The GID that the rail uses, None if none was found."""
        return self.usable_gids[0] if self.usable_gids else None

    @property
    def equal_gids(self) -> tuple[hosts.Gid, ...]:
        """The usable GIDs with the address and the type of `gid`, including `gid`.

        There may be two: an ending pod's interface keeps its address briefly after the IPAM has given it to this pod.
        """
        first = self.gid
        return tuple(
            gid for gid in self.usable_gids if first and (gid.address, gid.kind) == (first.address, first.kind)
        )

    @property
    def address(self) -> str:
        """The address of the GID, otherwise the interface's first; "" if there is none."""
        addresses = [self.gid.address] if self.gid else self.interface.addresses if self.interface else ()
        return str(addresses[0]) if addresses else ""


def read_container(host: hosts.Host, expectations: expected.Expectations) -> ContainerView:
    """Read the container's devices, interfaces and claims."""
    devices = hosts.read_devices(host)
    return ContainerView(host, expectations, devices, hosts.read_network(host), hosts.read_claimed_devices(host))


def resolve_rails(view: ContainerView) -> tuple[ResolvedRail, ...]:
    """Return the rails in the policy's order; a rail with several devices is there once for each device.

    Without rails in the policy, each usable device counts as a rail.
    """
    candidates = list_candidates(view)
    rails = view.expectations.rails or [expected.Rail(name, name) for name in candidates]
    identified = [_identify_devices(view, rail, rails, position) for position, rail in enumerate(rails)]
    taken = {name for device_names, _ in identified for name in device_names}
    free = iter([name for name in candidates if name not in taken])
    by_order = [not (rail.interface and view.expectations.rule.needs_gid) for rail in rails]
    identified = [
        ([next(free, "")], "order") if allowed and not basis else (device_names, basis)
        for (device_names, basis), allowed in zip(identified, by_order, strict=True)
    ]
    resolved = [
        _resolve_rail(view, rail, name, basis)
        for rail, (device_names, basis) in zip(rails, identified, strict=True)
        for name in device_names or [""]
    ]
    version = choose_ip_version(view.expectations, resolved)
    return tuple(_sort_gids(view.expectations, rail, version) for rail in resolved)


def list_candidates(view: ContainerView) -> list[str]:
    """Return the names of devices that may be assigned to rails by order, ready ones first."""
    claimed = {device.rdma_device for device in view.claimed} - {""}
    candidates = [
        device
        for device in view.devices.values()
        if view.expectations.is_candidate(device) and (not claimed or device.name in claimed)
    ]
    return [device.name for device in sorted(candidates, key=lambda device: not is_device_ready(view, device))]


def is_device_ready(view: ContainerView, device: hosts.Device) -> bool:
    """True if a port of the device is active, has the transport's link layer, and has a GID for a rail."""
    rule = view.expectations.rule
    return any(
        (port.state, port.link_layer) == (hosts.ACTIVE, rule.link_layer)
        and (not rule.needs_gid or any(gid.address in view.network.addresses for gid in port.gids))
        for port in device.ports
    )


def list_exclusive_rails(view: ContainerView, rails: Sequence[ResolvedRail]) -> list[ResolvedRail]:
    """Return the rails whose devices belong to this container only, although others request the same resources.

    The SR-IOV network device plugin gives each container functions of its own.
    """
    return [rail for rail in rails if view.expectations.several_containers and rail.basis == "resource"]


def _identify_devices(
    view: ContainerView, rail: expected.Rail, rails: Sequence[expected.Rail], position: int
) -> tuple[list[str], str]:
    """Return the names of the rail's devices, and what identified them (`basis`); [] and "" without a match."""
    if rail.device:
        return [rail.device], "policy"
    claimed = [device.rdma_device for device in view.claimed if device.request == rail.name and device.rdma_device]
    if claimed:
        return list(dict.fromkeys(claimed)), "claim"
    same_resource = [number for number, other in enumerate(rails) if other.resource == rail.resource]
    of_resource = _list_devices_by_resource(view, rail.resource, same_resource.index(position), len(same_resource))
    is_one = bool(rail.interface) and (view.expectations.rule.needs_gid or len(same_resource) > 1)
    if interface := view.network.interfaces.get(rail.interface):
        names = [name for name in interface.devices if name in view.devices] or list(
            _list_devices_by_gid(view, interface)
        )
        if names:
            return list(dict.fromkeys([names[0], *([] if is_one else of_resource)])), "interface"
    return of_resource[:1] if is_one else of_resource, "resource" if of_resource else ""


def _list_devices_by_gid(view: ContainerView, interface: hosts.Interface) -> Iterator[str]:
    """Yield the devices with a GID of the interface, those in the container first."""
    for device in sorted(view.devices.values(), key=lambda device: not device.visible):
        if any(_list_own_gids(view, port, interface.name) for port in device.ports):
            yield device.name


def _list_devices_by_resource(view: ContainerView, resource: str, position: int, count: int) -> list[str]:
    """Return the names of devices whose PCI address the SR-IOV network device plugin lists for a resource.

    The `count` rails with the same resource take the addresses in turn; `position` is that of the rail among them.
    """
    variable = f"PCIDEVICE_{re.sub('[./-]', '_', resource).upper()}"
    addresses = view.expectations.environment.get(variable, "").split(",")[position::count]
    devices = view.devices.values()
    return [device.name for address in addresses for device in devices if address and device.pci_address == address]


def _resolve_rail(view: ContainerView, rail: expected.Rail, device_name: str, basis: str) -> ResolvedRail:
    """Return a rail with its device, and the device's port, interface and GIDs."""
    interfaces, device = view.network.interfaces, view.devices.get(device_name)
    claimed = [one for one in view.claimed if one.request == rail.name and one.rdma_device in {"", device_name}]
    name = rail.interface or (claimed[0].interface if claimed else "")
    if device is None or not device.ports:
        return ResolvedRail(rail, device_name, basis, device, interface=interfaces.get(name))
    rule = view.expectations.rule
    port = min(
        device.ports,
        key=lambda port: (
            port.link_layer != rule.link_layer,
            not _list_own_gids(view, port, name),
            port.state != hosts.ACTIVE,
        ),
    )
    gids = tuple(_list_own_gids(view, port, name))
    if not name:
        named = [interface.name for interface in interfaces.values() if device.name in interface.devices]
        name = next(iter([*named, *(gid.interface for gid in gids)]), "")
    usable = tuple(gid for gid in gids if gid.kind in rule.gid_kinds)
    return ResolvedRail(rail, device_name, basis, device, port, interfaces.get(name), gids, usable)


def _list_own_gids(view: ContainerView, port: hosts.Port, interface: str) -> list[hosts.Gid]:
    """Return the port's GIDs that belong to this pod's addresses; only those of `interface` unless it is "".

    The port's GID table also has GIDs of other pods, whose interfaces can have the same names.
    """
    return [
        gid
        for gid in port.gids
        if gid.address in view.network.addresses and (not interface or gid.interface in {interface, ""})
    ]


def choose_ip_version(expectations: expected.Expectations, rails: list[ResolvedRail]) -> int:
    """Return the IP version of the rails' addresses: the stated one, otherwise 4, or 6 if only 6 fits all rails."""
    if expectations.address_range is not None:
        return expectations.address_range.version
    if family := expectations.get_variable(expected.ADDRESS_FAMILY):
        return 6 if family == "AF_INET6" else 4
    versions = [{gid.address.version for gid in rail.usable_gids} for rail in rails if rail.usable_gids]
    return 6 if versions and 4 not in set.intersection(*versions) and 6 in set.intersection(*versions) else 4


def _sort_gids(expectations: expected.Expectations, rail: ResolvedRail, version: int) -> ResolvedRail:
    """Sort the GIDs of a rail: first by the stated index, then by the stated addresses, IP version and GID type."""
    kinds, addresses = expectations.rule.gid_kinds, expectations.address_range

    def build_preference(gid: hosts.Gid) -> tuple[bool, bool, bool, int, int]:
        return (
            gid.position != expectations.stated_index,
            addresses is not None and gid.address not in addresses,
            gid.address.version != version,
            kinds.index(gid.kind),
            gid.position,
        )

    return rail._replace(usable_gids=tuple(sorted(rail.usable_gids, key=build_preference)))
