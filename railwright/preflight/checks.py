"""What is wrong with the rails of this container, each with its place and its fix; or what they are.

Owns the checks of one rail, in the order in which one would look: device, its file, its port, interface, MTU, GID.
"""

from collections.abc import Iterator
from typing import NamedTuple

from railwright.preflight import assign, devices, expected, interfaces, memlock
from railwright.preflight import host as hosts


class Problem(NamedTuple):
    """Where, what, and how to mend it."""

    where: str
    what: str
    fix: str


class Found(NamedTuple):
    """A rail that is ready; "" or None for what its transport does not have."""

    rail: str
    device: str
    address: str = ""
    gid: int | None = None
    mtu: int | None = None
    rate: str = ""


class Report(NamedTuple):
    """All problems, and the rails without one."""

    problems: tuple[Problem, ...]
    rails: tuple[Found, ...]


class _Scene(NamedTuple):
    """What was read, once, for all rails."""

    host: hosts.Host
    wanted: expected.Expected
    there: dict[str, devices.Device]
    network: interfaces.Network


_SHOWN = 8  # device names that a message lists


def check(host: hosts.Host, wanted: expected.Expected) -> Report:
    """Look at everything once."""
    scene = _Scene(host, wanted, devices.read(host), interfaces.read(host))
    problems, found = list(_pod(scene)), []
    for rail in assign.assign(wanted, scene.there, scene.network):
        wrong = list(_rail(scene, rail))
        problems += wrong
        if not wrong:
            found.append(_found(scene, rail))
    return Report(tuple(problems), tuple(found))


def _pod(scene: _Scene) -> Iterator[Problem]:
    wanted, there = scene.wanted, scene.there
    lock = memlock.read(scene.host, root=wanted.root)
    if not lock.suffices:
        yield Problem(
            "memlock",
            f"is limited to {lock.limit} bytes",
            "grant IPC_LOCK in the policy's security.capabilities, or set LimitMEMLOCK=infinity for the container "
            "runtime (the only way for ranks that are not root)",
        )
    if not wanted.rails and not any(each.visible and assign.selected(wanted, each) for each in there.values()):
        yield Problem("devices", f"there is none to use (here: {_here(scene)})", "request the fabric's resources")
    elif wanted.hca and wanted.rule.by_hca and not any(assign.selected(wanted, each) for each in there.values()):
        yield Problem(
            "NCCL_IB_HCA",
            f"{wanted.hca[:80]} selects none of the devices (here: {_here(scene)}), so NCCL would use TCP",
            "correct it in the pod, or remove it",
        )


def _here(scene: _Scene) -> str:
    names = list(scene.there)
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more or "none"


def _rail(scene: _Scene, rail: expected.Rail) -> Iterator[Problem]:
    where = f"{rail.name} {rail.device}".strip() if rail.device != rail.name else rail.name
    device = scene.there.get(rail.device)
    if not rail.device:
        yield Problem(where, f"no RDMA device is left for it (here: {_here(scene)})", _PLUGIN)
    elif device is None:
        yield Problem(where, f"the device is not here (here: {_here(scene)})", _PLUGIN)
    else:
        yield from _files(scene, device, where)
        yield from _best_port(scene, rail, device, where)
    yield from _interface(scene, rail, device, where)


_PLUGIN = "check the rail's resource and device in the policy, and the device plugin on the node"


def _files(scene: _Scene, device: devices.Device, where: str) -> Iterator[Problem]:
    if not device.nodes:
        yield Problem(where, "has no uverbs device", "load the module ib_uverbs on the node")
    elif not device.visible:
        path = f"{devices.VERBS}/{device.nodes[0]}"
        yield Problem(where, f"{path} is not in the container", "request the rail's resource, or mounts.devInfiniband")
    else:
        for node in device.nodes:
            if why := scene.host.opening(f"{devices.VERBS}/{node}"):
                yield Problem(
                    where,
                    f"{devices.VERBS}/{node} does not open ({why})",
                    "a mount alone gives no access: request the rail's resource, or security.privileged",
                )


def _best_port(scene: _Scene, rail: expected.Rail, device: devices.Device, where: str) -> list[Problem]:
    """What is wrong with the port that has the least wrong with it: a card may have a port without a cable."""
    judged = [[*_port(scene, port, where), *_gid(scene, rail, port, where)] for port in device.ports]
    return min(judged, key=len) if judged else [Problem(where, "has no port", "check the driver on the node")]


def _port(scene: _Scene, port: devices.Port, where: str) -> Iterator[Problem]:
    rule = scene.wanted.rule
    if port.link_layer != rule.link_layer:
        yield Problem(
            where,
            f"port {port.number} is {port.link_layer or 'of no known link layer'}, {scene.wanted.transport} needs "
            f"{rule.link_layer}",
            "correct transport or device in the policy, or the port's type on the node",
        )
    if port.state != devices.ACTIVE:
        word = port.state.rpartition(" ")[2] or "of no known state"
        yield Problem(where, f"port {port.number} is {word}", _STATES.get(word, _NO_LINK))


_NO_LINK = "check cable, transceiver and switch port"
_NO_MANAGER = "the subnet manager has not set it up: check that one runs and reaches this port"
_STATES = {"INIT": _NO_MANAGER, "ARMED": _NO_MANAGER}


def _gid(scene: _Scene, rail: expected.Rail, port: devices.Port, where: str) -> Iterator[Problem]:
    rule, interface = scene.wanted.rule, scene.network.interfaces.get(rail.interface)
    if not rule.gid_kinds or (rail.interface and interface is None):
        return  # the missing interface is told anyway
    if not rail.interface and not rule.needs_address:
        return
    mine = _own_gids(scene, rail, port)
    right = [gid for gid in mine if gid.kind in rule.gid_kinds]
    if right:
        yield from _fixed(scene, port, right, where)
        return
    kinds = " or ".join(rule.gid_kinds)
    if mine:
        gid = mine[0]
        what = f"GID {gid.position} of {gid.address} is {gid.kind or 'of no kind that gid_attrs tells'}, not {kinds}"
        yield Problem(where, what, f"set the port to {kinds} on the node, and show gid_attrs in the container")
    elif interface and not interface.addresses:
        yield Problem(where, f"{interface.name} has no address", "check the IPAM of its network")
    else:
        of = f"{interface.name} ({', '.join(map(str, interface.addresses))})" if interface else "an address of the pod"
        yield Problem(
            where, f"no {kinds} GID of {of}", "the network's master and the rail's device must be the same NIC"
        )


def _fixed(scene: _Scene, port: devices.Port, right: list[devices.Gid], where: str) -> Iterator[Problem]:
    """A fixed index is taken unchecked for every device, and the order of a table is that in which addresses came."""
    index = scene.wanted.gid_index
    if index is None or any(gid.position == index for gid in right):
        return
    there = next((f"{gid.kind} {gid.address}" for gid in port.gids if gid.position == index), "empty")
    yield Problem(
        where,
        f"NCCL_IB_GID_INDEX={index} is {there}, and {right[0].address} is GID {right[0].position}",
        "remove gidIndex from the policy or the variable from the pod: NCCL 2.21 and newer finds it",
    )


def _own_gids(scene: _Scene, rail: expected.Rail, port: devices.Port) -> list[devices.Gid]:
    """Entries of this pod's addresses: other pods' interfaces have entries too, and the same names."""
    mine = [gid for gid in port.gids if gid.address in scene.network.addresses]
    return [gid for gid in mine if gid.interface in {rail.interface, ""}] if rail.interface else mine


def _interface(scene: _Scene, rail: expected.Rail, device: devices.Device | None, where: str) -> Iterator[Problem]:
    if rail.interface and rail.interface not in scene.network.interfaces:
        yield Problem(
            where,
            f"interface {rail.interface} is not in the pod",
            "check the network's CNI and the pod's network-status",
        )
        return
    interface = _of_rail(scene, rail, device)
    if interface is not None:
        yield from _link(interface, where)
    if interface and interface.mtu is not None and interface.mtu < scene.wanted.mtu:
        yield Problem(
            where,
            f"{interface.name} has MTU {interface.mtu}, less than {scene.wanted.mtu}",
            "raise it in the network's definition, on the host's NIC and on the switch",
        )


def _link(interface: interfaces.Interface, where: str) -> Iterator[Problem]:
    """An interface that is down: its address and its GIDs stay, and nothing passes."""
    if not interface.enabled:
        yield Problem(where, f"interface {interface.name} is set down", _SET_DOWN)
    elif interface.state in _WITHOUT_LINK:
        yield Problem(where, f"interface {interface.name} has no link ({interface.state})", _NO_LINK)


_SET_DOWN = "find what has run `ip link set down` in the pod, or check the network's CNI"
# Words of operstate (Documentation/ABI/testing/sysfs-class-net) of an interface that passes nothing. A driver that does
# not report its state says "unknown".
_WITHOUT_LINK = frozenset({"down", "lowerlayerdown", "notpresent", "dormant", "testing"})


def _of_rail(scene: _Scene, rail: expected.Rail, device: devices.Device | None) -> interfaces.Interface | None:
    """The rail's interface: named, or the one that shares the device's function or stands in its GID table."""
    there = scene.network.interfaces
    if rail.interface or device is None:
        return there.get(rail.interface)
    own = [each for each in there.values() if device.name in each.devices]
    own += [
        there[gid.interface] for port in device.ports for gid in _own_gids(scene, rail, port) if gid.interface in there
    ]
    return own[0] if own else None


def _found(scene: _Scene, rail: expected.Rail) -> Found:
    device = scene.there[rail.device]
    port = next((each for each in device.ports if not list(_port(scene, each, ""))), device.ports[0])
    interface = _of_rail(scene, rail, device)
    kinds = scene.wanted.rule.gid_kinds
    gid = next((each for each in _own_gids(scene, rail, port) if each.kind in kinds), None)
    address = str(gid.address) if gid else str(interface.addresses[0]) if interface and interface.addresses else ""
    return Found(
        rail.name, device.name, address, gid.position if gid else None, interface.mtu if interface else None, port.rate
    )
