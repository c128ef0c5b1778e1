"""Which device carries which rail, as far as the policy left that to the node.

Owns the order of evidence: the policy's name, an exact NCCL_IB_HCA with a device for each rail, the interface's own PCI
function or its entry in a GID table, and last the devices this container can use, in natural order (SR-IOV gives
functions whose names nobody knows before).
"""

from collections.abc import Mapping, Sequence

from railwright.preflight import devices, expected, hca, interfaces


def assign(
    wanted: expected.Expected, there: Mapping[str, devices.Device], network: interfaces.Network
) -> tuple[expected.Rail, ...]:
    """The rails with their devices; "" where none is left. Without rails, each device that can be used is one."""
    usable = [device.name for device in there.values() if device.visible and selected(wanted, device)]
    if not wanted.rails:
        return tuple(expected.Rail(name, name) for name in usable)
    rails = _by_list(wanted)
    rails = [each if each.device else each._replace(device=_by_interface(each, there, network)) for each in rails]
    taken = {each.device for each in rails}
    free = iter([name for name in usable if name not in taken])
    return tuple(each if each.device else each._replace(device=next(free, "")) for each in rails)


def selected(wanted: expected.Expected, device: devices.Device) -> bool:
    """True where NCCL, or the transport's plugin, would look at the device."""
    if not device.name.startswith(wanted.rule.prefixes):
        return False
    if wanted.hca is None or not wanted.rule.by_hca:
        return True
    return any(hca.selects(wanted.hca, device.name, port.number) for port in device.ports)


def _by_list(wanted: expected.Expected) -> list[expected.Rail]:
    """At binding railwright writes the devices in the order of the rails."""
    listed = hca.exact(wanted.hca or "") if wanted.rule.by_hca else ()
    if len(listed) != len(wanted.rails) or any(each.device for each in wanted.rails):
        return list(wanted.rails)
    return [each._replace(device=device) for each, device in zip(wanted.rails, listed, strict=True)]


def _by_interface(rail: expected.Rail, there: Mapping[str, devices.Device], network: interfaces.Network) -> str:
    interface = network.interfaces.get(rail.interface)
    if interface is None:
        return ""
    own: Sequence[str] = [name for name in interface.devices if name in there]
    own = own or [device.name for device in there.values() if any(_holds(port, interface) for port in device.ports)]
    return own[0] if own else ""


def _holds(port: devices.Port, interface: interfaces.Interface) -> bool:
    return any(gid.interface == interface.name and gid.address in interface.addresses for gid in port.gids)
