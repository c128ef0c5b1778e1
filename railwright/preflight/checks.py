"""Checks the rails of this container and reports each problem with its location and fix.

Finds the device of each rail first, as far as the policy leaves it to the node. The first match counts: the device in
the policy; an exact NCCL_IB_HCA with one device per rail; the PCI function of the rail's interface or its entry in a
GID table; the remaining usable devices in natural order (names of SR-IOV functions are not known before the pod runs).

Each rail is checked in this order: device, device file, port, GID, interface, link, MTU.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from railwright.preflight import allocation, expected
from railwright.preflight import host as hosts
from railwright.preflight.report import Problem, ReadyRail, Report


class _Inputs(NamedTuple):
    """Inputs of the checks, read once for all rails."""

    host: hosts.Host
    expectations: expected.Expected
    present: dict[str, hosts.Device]
    network: hosts.Network


_NOT_WRITTEN = "was not written at binding: railwright was not called, or did not know the node"
_MAX_NAMES = 8  # maximum number of device names in a message


def check(host: hosts.Host, expectations: expected.Expected, allocated: allocation.Allocation | None = None) -> Report:
    """Run every check once. `allocated` are the devices of the pod's claims; None if no rails come as claims."""
    inputs = _Inputs(host, expectations, hosts.read_devices(host), hosts.read_network(host))
    problems, ready_rails, broken = list(_check_pod(inputs)), [], []
    if allocated is not None:
        problems += allocation.compare(allocated, expectations, inputs.present)
    elif expectations.rule.by_hca and expectations.hca == allocation.NOT_WRITTEN:
        problems.append(Problem("NCCL_IB_HCA", _NOT_WRITTEN, allocation.REBIND))
    for rail in assign_devices(expectations, inputs.present, inputs.network):
        rail_problems = list(_check_rail(inputs, rail))
        problems += rail_problems
        if not rail_problems:
            ready_rails.append(_build_ready_rail(inputs, rail))
        elif not _OF_THE_NODE.isdisjoint(problem.fix for problem in rail_problems):
            broken.append(rail.name)
    return Report(tuple(problems), tuple(ready_rails), tuple(broken))


def _check_pod(inputs: _Inputs) -> Iterator[Problem]:
    expectations, present = inputs.expectations, inputs.present
    limit = _read_memlock(inputs.host)
    if limit is not None and limit < _ENOUGH and not (expectations.root and _has_ipc_lock(inputs.host)):
        yield Problem(
            "memlock",
            f"is limited to {limit} bytes",
            "grant IPC_LOCK in the policy's security.capabilities, or set LimitMEMLOCK=infinity for the container "
            "runtime (the only way for ranks that are not root)",
        )
    if not expectations.rails and not any(
        device.visible and is_selected(expectations, device) for device in present.values()
    ):
        yield Problem(
            "devices",
            f"no usable RDMA device (found: {_format_devices(inputs)})",
            "request the fabric's resources in the pod",
        )
    elif (
        expectations.hca
        and expectations.hca != allocation.NOT_WRITTEN
        and expectations.rule.by_hca
        and not any(is_selected(expectations, device) for device in present.values())
    ):
        yield Problem(
            "NCCL_IB_HCA",
            f"{expectations.hca[:80]} matches no device (found: {_format_devices(inputs)}), so NCCL uses TCP",
            "correct or remove the variable in the pod",
        )


_LIMIT = "Max locked memory"
_IPC_LOCK = 14  # CAP_IPC_LOCK, include/uapi/linux/capability.h
_ENOUGH = 1 << 30  # bytes; common defaults are 64 KiB and 8 MiB, and one channel's buffers take 4 MiB per peer


def _read_memlock(host: hosts.Host) -> int | None:
    """Return how many bytes a process may lock, as verbs must; None if unlimited or unreadable.

    The runtime sets the limit, the same in every container of the pod. IPC_LOCK lifts it, but takes effect only for
    root (NVIDIA/nvidia-container-toolkit issue 2037).
    """
    for line in (host.read_text("/proc/self/limits") or "").splitlines():
        if line.startswith(_LIMIT):
            return hosts.parse_number("".join(line[len(_LIMIT) :].split()[:1]))
    return None


def _has_ipc_lock(host: hosts.Host) -> bool:
    """Check the bounding set: this process is not root and may lack capabilities that the ranks have."""
    for line in (host.read_text("/proc/self/status") or "").splitlines():
        name, _, value = line.partition(":")
        if name in {"CapBnd", "CapEff"} and (hosts.parse_number(value.strip(), 16) or 0) >> _IPC_LOCK & 1:
            return True
    return False


def _format_devices(inputs: _Inputs) -> str:
    names = list(inputs.present)
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return ", ".join(names[:_MAX_NAMES]) + more or "none"


def _check_rail(inputs: _Inputs, rail: expected.Rail) -> Iterator[Problem]:
    where = f"{rail.name} {rail.device}".strip() if rail.device != rail.name else rail.name
    where = f"{where} ({rail.source})" if rail.source else where
    device = inputs.present.get(rail.device)
    if not rail.device:
        what = f"no RDMA device left for this rail (found: {_format_devices(inputs)})"
        yield Problem(where, what, _suggest_device(inputs))
    elif device is None:
        yield Problem(where, f"device not found (found: {_format_devices(inputs)})", _suggest_device(inputs))
    else:
        yield from _check_files(inputs, device, where)
        yield from _check_best_port(inputs, rail, device, where)
    yield from _check_interface(inputs, rail, device, where)


def _suggest_device(inputs: _Inputs) -> str:
    """Return the fix for a missing device. Without any device, device files show that the kernel hides them: in mode
    exclusive, a network namespace sees only the RDMA devices that were moved into it.
    """
    nodes = [name for name in inputs.host.list_names(hosts.VERBS) if name.startswith("uverbs")]
    return _EXCLUSIVE if nodes and not inputs.present else _PLUGIN


_PLUGIN = "check the rail's resource and device in the policy, and the device plugin on the node"
_EXCLUSIVE = (
    "there are device files but no devices: if `rdma system` on the node says `netns exclusive`, "
    "add the CNI plugin rdma to the rail's network, or set `netns shared`"
)


def _check_files(inputs: _Inputs, device: hosts.Device, where: str) -> Iterator[Problem]:
    if not device.nodes:
        yield Problem(where, "no uverbs device", _NO_VERBS)
    elif not device.visible:
        path = f"{hosts.VERBS}/{device.nodes[0]}"
        yield Problem(
            where,
            f"{path} is not in the container",
            "request the rail's resource, or set mounts.devInfiniband in the policy",
        )
    else:
        for node in device.nodes:
            if why := inputs.host.find_open_error(f"{hosts.VERBS}/{node}"):
                yield Problem(
                    where,
                    f"{hosts.VERBS}/{node} cannot be opened ({why})",
                    "a mount alone gives no access: "
                    "request the rail's resource, or set security.privileged in the policy",
                )


def _check_best_port(inputs: _Inputs, rail: expected.Rail, device: hosts.Device, where: str) -> list[Problem]:
    """Return the problems of the port that has the fewest: a card may have a port without a cable."""
    problems_by_port = [
        [*_check_port(inputs, port, where), *_check_gid(inputs, rail, port, where)] for port in device.ports
    ]
    return min(problems_by_port, key=len) if problems_by_port else [Problem(where, "has no port", _NO_DRIVER)]


def _check_port(inputs: _Inputs, port: hosts.Port, where: str) -> Iterator[Problem]:
    rule = inputs.expectations.rule
    if port.link_layer != rule.link_layer:
        yield Problem(
            where,
            f"port {port.number} is {port.link_layer or 'of unknown link layer'}, "
            f"{inputs.expectations.transport} needs {rule.link_layer}",
            "correct transport or device in the policy, or the port's type on the node",
        )
    if port.state != hosts.ACTIVE:
        word = port.state.rpartition(" ")[2] or "in an unknown state"
        yield Problem(where, f"port {port.number} is {word}", _STATES.get(word, _NO_LINK))


_NO_DRIVER, _NO_VERBS = "check the driver on the node", "load the kernel module ib_uverbs on the node"
_NO_LINK = "check cable, transceiver and switch port"
_NO_MANAGER = "the subnet manager has not configured the port: check that it runs and reaches this port"
_NO_IPV6 = "give the interface a global IPv6 address: IPAM of its network, and disable_ipv6=0 in the pod"
_NO_IPV4 = "set `addressFamily: AF_INET6` in the policy, or give the interface an IPv4 address"
_STATES = {"INIT": _NO_MANAGER, "ARMED": _NO_MANAGER}
_OF_THE_NODE = frozenset({_NO_DRIVER, _NO_VERBS, _NO_LINK, _NO_MANAGER})  # fixes that no other pod there can do without


def _check_gid(inputs: _Inputs, rail: expected.Rail, port: hosts.Port, where: str) -> Iterator[Problem]:
    rule, interface = inputs.expectations.rule, inputs.network.interfaces.get(rail.interface)
    if not rule.gid_kinds or (rail.interface and interface is None):
        return  # _check_interface reports the missing interface
    if not rail.interface and not rule.needs_address:
        return
    own_gids = _list_own_gids(inputs, rail, port)
    matching_gids = [gid for gid in own_gids if gid.kind in rule.gid_kinds]
    if matching_gids:
        yield from _check_fixed_index(inputs, port, matching_gids, where)
        yield from _check_ip_version(inputs, matching_gids[0], {gid.address.version for gid in matching_gids}, where)
        return
    kinds = " or ".join(rule.gid_kinds)
    if own_gids:
        gid = own_gids[0]
        what = f"GID {gid.position} of {gid.address} is {gid.kind or 'of unknown type'}, not {kinds}"
        yield Problem(where, what, f"set the port to {kinds} on the node, and make gid_attrs readable in the container")
    elif interface and not interface.addresses:
        yield Problem(where, f"{interface.name} has no address", "check the IPAM of its NetworkAttachmentDefinition")
    else:
        owner = (
            f"{interface.name} ({', '.join(map(str, interface.addresses))})" if interface else "an address of the pod"
        )
        yield Problem(
            where, f"no {kinds} GID of {owner}", "the network's master and the rail's device must be the same NIC"
        )


def _check_fixed_index(
    inputs: _Inputs, port: hosts.Port, matching_gids: list[hosts.Gid], where: str
) -> Iterator[Problem]:
    """Report a fixed GID index that fits no entry of the rail.

    NCCL uses it unchecked on every device, and table order varies.
    """
    index = inputs.expectations.gid_index
    if index is None or any(gid.position == index for gid in matching_gids):
        return
    present = next((f"{gid.kind} {gid.address}" for gid in port.gids if gid.position == index), "an empty entry")
    yield Problem(
        where,
        f"NCCL_IB_GID_INDEX={index} selects {present}, but "
        f"{matching_gids[0].address} is GID {matching_gids[0].position}",
        "remove gidIndex from the policy or the variable from the pod: NCCL 2.21 and newer finds the index",
    )


def _check_ip_version(inputs: _Inputs, gid: hosts.Gid, versions: set[int], where: str) -> Iterator[Problem]:
    """Report a rail without an address of the family that NCCL looks for.

    NCCL then uses entry 0, which is link-local (NVIDIA/nccl src/transport/net_ib/connect.cc). On Oracle's nodes, RoCE
    needs IPv6 addresses, and pods have disable_ipv6=1 (kubernetes-sigs/dranet issue 138).
    """
    version = inputs.expectations.ip_version
    if inputs.expectations.gid_index is None and version not in versions:
        yield Problem(
            where,
            f"its GID is of {gid.address}, and NCCL uses GIDs of IPv{version} addresses only",
            _NO_IPV6 if version == 6 else _NO_IPV4,
        )


def _list_own_gids(inputs: _Inputs, rail: expected.Rail, port: hosts.Port) -> list[hosts.Gid]:
    """Return the GID entries of this pod's addresses.

    The table also lists other pods' interfaces, under the same names.
    """
    own_gids = [gid for gid in port.gids if gid.address in inputs.network.addresses]
    return [gid for gid in own_gids if gid.interface in {rail.interface, ""}] if rail.interface else own_gids


def _check_interface(
    inputs: _Inputs, rail: expected.Rail, device: hosts.Device | None, where: str
) -> Iterator[Problem]:
    if rail.interface and rail.interface not in inputs.network.interfaces:
        yield Problem(
            where,
            f"interface {rail.interface} is not in the pod",
            "check the network's CNI and the pod's network-status",
        )
        return
    interface = _find_interface(inputs, rail, device)
    if interface is not None:
        yield from _check_link(interface, where)
    if interface and interface.mtu is not None and interface.mtu < inputs.expectations.mtu:
        yield Problem(
            where,
            f"{interface.name} has MTU {interface.mtu}, less than {inputs.expectations.mtu}",
            "raise it in the network's definition, on the host's NIC and on the switch",
        )


def _check_link(interface: hosts.Interface, where: str) -> Iterator[Problem]:
    """Report an interface that is down: its address and GIDs remain, but no traffic passes."""
    if not interface.enabled:
        yield Problem(where, f"interface {interface.name} is administratively down", _SET_DOWN)
    elif interface.state in _WITHOUT_LINK:
        yield Problem(where, f"interface {interface.name} has no link ({interface.state})", _NO_LINK)


_SET_DOWN = "find out what ran `ip link set down` in the pod, or check the network's CNI"
# Values of operstate (Documentation/ABI/testing/sysfs-class-net) of an interface without traffic. A driver that does
# not report its state shows "unknown".
_WITHOUT_LINK = frozenset({"down", "lowerlayerdown", "notpresent", "dormant", "testing"})


def _find_interface(inputs: _Inputs, rail: expected.Rail, device: hosts.Device | None) -> hosts.Interface | None:
    """Return the rail's interface: the named one, or the one that shares the device's PCI function or is in its GID
    table.
    """
    present = inputs.network.interfaces
    if rail.interface or device is None:
        return present.get(rail.interface)
    candidates = [interface for interface in present.values() if device.name in interface.devices]
    candidates += [
        present[gid.interface]
        for port in device.ports
        for gid in _list_own_gids(inputs, rail, port)
        if gid.interface in present
    ]
    return candidates[0] if candidates else None


def _build_ready_rail(inputs: _Inputs, rail: expected.Rail) -> ReadyRail:
    device = inputs.present[rail.device]
    port = next((port for port in device.ports if not list(_check_port(inputs, port, ""))), device.ports[0])
    interface = _find_interface(inputs, rail, device)
    kinds = inputs.expectations.rule.gid_kinds
    gid = next((gid for gid in _list_own_gids(inputs, rail, port) if gid.kind in kinds), None)
    address = str(gid.address) if gid else str(interface.addresses[0]) if interface and interface.addresses else ""
    return ReadyRail(
        rail.name, device.name, address, gid.position if gid else None, interface.mtu if interface else None, port.rate
    )


def assign_devices(
    expectations: expected.Expected, present: Mapping[str, hosts.Device], network: hosts.Network
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


def is_selected(expectations: expected.Expected, device: hosts.Device) -> bool:
    """True if NCCL, or the transport's plugin, would consider the device."""
    rule = expectations.rule
    return device.name.startswith(rule.prefixes) and (
        not rule.by_hca or expected.selects_device(expectations.hca, device)
    )


def _assign_by_list(expectations: expected.Expected) -> list[expected.Rail]:
    """Take the devices from an exact NCCL_IB_HCA: at binding railwright writes it in the order of the rails."""
    listed = expected.parse_exact_list(expectations.hca or "") if expectations.rule.by_hca else ()
    if len(listed) != len(expectations.rails) or any(rail.device for rail in expectations.rails):
        return list(expectations.rails)
    return [rail._replace(device=device) for rail, device in zip(expectations.rails, listed, strict=True)]


def _find_by_interface(rail: expected.Rail, present: Mapping[str, hosts.Device], network: hosts.Network) -> str:
    interface = network.interfaces.get(rail.interface)
    if interface is None:
        return ""
    candidates: Sequence[str] = [name for name in interface.devices if name in present]
    candidates = candidates or [
        device.name for device in present.values() if any(_has_gid(port, interface) for port in device.ports)
    ]
    return candidates[0] if candidates else ""


def _has_gid(port: hosts.Port, interface: hosts.Interface) -> bool:
    return any(gid.interface == interface.name and gid.address in interface.addresses for gid in port.gids)
