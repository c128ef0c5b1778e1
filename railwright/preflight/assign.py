"""Finds the device of each rail, as far as the policy leaves it to the node.

The first match counts: the device in the policy; an exact NCCL_IB_HCA with one device per rail; the PCI function of
the rail's interface or its entry in a GID table; the remaining usable devices in natural order (names of SR-IOV
functions are not known before the pod runs).
"""

from collections.abc import Mapping, Sequence

from railwright.preflight import devices, expected, interfaces, variables


def assign_devices(
    expectations: expected.Expected, present: Mapping[str, devices.Device], network: interfaces.Network
) -> tuple[expected.Rail, ...]:
    """Return the rails with their devices, "" if none is left. Without rails, each usable device is a rail."""
    usable = [device.name for device in present.values() if device.visible and is_selected(expectations, device)]
    if not expectations.rails:
        return tuple(expected.Rail(name, name) for name in usable)
    rails = _assign_by_list(expectations)
    rails = [
        rail if rail.device else rail._replace(device=_find_by_interface(rail, present, network)) for rail in rails
    ]
    assigned_devices = {rail.device for rail in rails}
    free = iter([name for name in usable if name not in assigned_devices])
    return tuple(rail if rail.device else rail._replace(device=next(free, "")) for rail in rails)


def is_selected(expectations: expected.Expected, device: devices.Device) -> bool:
    """True if NCCL, or the transport's plugin, would consider the device."""
    if not device.name.startswith(expectations.rule.prefixes):
        return False
    if expectations.hca is None or not expectations.rule.by_hca:
        return True
    return any(variables.selects(expectations.hca, device.name, port.number) for port in device.ports)


def _assign_by_list(expectations: expected.Expected) -> list[expected.Rail]:
    """Take the devices from an exact NCCL_IB_HCA: at binding railwright writes it in the order of the rails."""
    listed = variables.parse_exact_list(expectations.hca or "") if expectations.rule.by_hca else ()
    if len(listed) != len(expectations.rails) or any(rail.device for rail in expectations.rails):
        return list(expectations.rails)
    return [rail._replace(device=device) for rail, device in zip(expectations.rails, listed, strict=True)]


def _find_by_interface(rail: expected.Rail, present: Mapping[str, devices.Device], network: interfaces.Network) -> str:
    interface = network.interfaces.get(rail.interface)
    if interface is None:
        return ""
    candidates: Sequence[str] = [name for name in interface.devices if name in present]
    candidates = candidates or [
        device.name for device in present.values() if any(_has_gid(port, interface) for port in device.ports)
    ]
    return candidates[0] if candidates else ""


def _has_gid(port: devices.Port, interface: interfaces.Interface) -> bool:
    return any(gid.interface == interface.name and gid.address in interface.addresses for gid in port.gids)
