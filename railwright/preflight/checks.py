"""Compares the found rails with the policy, and reports the location and fix of each problem.

A rail that is missing or differs from the policy stops the pod. A requirement that the policy does not state, such as
that of a library, causes a warning. The result is one line that fits a terminal and a pod's status.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from railwright.preflight import expected, resolution
from railwright.preflight import host as hosts

MAX = 1000  # characters; kubelet keeps 4096 bytes of a container's termination message and 12 KiB of a pod's
_MAX_NAMES = 8  # maximum number of device names, or of locations, in a message


class Problem(NamedTuple):
    """Location, description and fix of a problem.

    `stated` is True if the container differs from the policy, which stops the pod. Otherwise it is a warning.
    """

    where: str
    what: str
    fix: str
    stated: bool = True


def find_problems(view: resolution.ContainerView, rails: Sequence[resolution.ResolvedRail]) -> Iterator[Problem]:
    """Yield the problems of the container and of each rail."""
    yield from _check_memlock(view)
    yield from _check_hca_list(view, rails)
    if not rails:
        what = f"no usable RDMA device (found: {_join_names(view.devices)})"
        yield Problem("devices", what, "request the fabric's resources in the pod")
    for rail in rails:
        yield from _check_rail(view, rail)
    yield from _check_order(view, rails)
    for rail in resolution.list_exclusive_rails(view, rails):
        what = "is in this container only, but other containers request such devices too: no device list is written"
        fix = "name the container that needs the rails in annotation railwright.io/containers"
        yield Problem(_name_rail(rail), what, fix, stated=False)
    yield from _check_common_index(view, rails)


def _check_rail(view: resolution.ContainerView, rail: resolution.ResolvedRail) -> Iterator[Problem]:
    """Yield the problems of a rail: device, device file, port, GID, interface, link, MTU."""
    where = _name_rail(rail)
    if rail.device is not None:
        yield from _check_device_files(view, rail.device, where)
        yield from _check_port(view, rail, where)
        yield from _check_gid(view, rail, where)
    elif not rail.basis and rail.rail.interface and view.devices:
        yield from _check_gid(view, rail, where)
    else:
        missing = "device not found" if rail.name else "no RDMA device left for this rail"
        yield Problem(where, f"{missing} (found: {_join_names(view.devices)})", _suggest_device_fix(view))
    if rail.rail.interface and rail.interface is None:
        what = f"interface {rail.rail.interface} is not in the pod"
        yield Problem(where, what, "check the network's CNI and the pod's network-status")
    if rail.interface is not None:
        yield from _check_interface(view, rail.interface, where)


def _name_rail(rail: resolution.ResolvedRail) -> str:
    """Return the name of a rail, and that of its device if it differs, for messages."""
    return f"{rail.rail.name} {rail.name}".strip() if rail.name != rail.rail.name else rail.name


def _describe_ready_rail(rail: resolution.ResolvedRail) -> str:
    """Return the description of a rail without problems: device, address, GID index, and MTU or rate."""
    mtu = f"mtu {rail.interface.mtu}" if rail.interface and rail.interface.mtu else ""
    gid = f"GID {rail.gid.position}" if rail.gid else ""
    return " ".join(filter(None, (_name_rail(rail), rail.address, gid, mtu or (rail.port.rate if rail.port else ""))))


def _join_names(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - _MAX_NAMES} more" if len(listed) > _MAX_NAMES else ""
    return ", ".join(listed[:_MAX_NAMES]) + more or "none"


# --- the container ----------------------------------------------------------------------------------------

_LIMIT = "Max locked memory"
_IPC_LOCK = 14  # CAP_IPC_LOCK, include/uapi/linux/capability.h
# Common defaults are 64 KiB and 8 MiB, and one channel's buffers take 4 MiB per peer.
_MIN_LOCKED_BYTES = 1 << 30


def _check_memlock(view: resolution.ContainerView) -> Iterator[Problem]:
    """Warn if a process may lock too little memory for RDMA.

    The container runtime sets this limit for every container. IPC_LOCK lifts it, but takes effect only for root
    (NVIDIA/nvidia-container-toolkit issue 2037).
    """
    lines = view.host.read_lines("/proc/self/limits")
    text = next((line[len(_LIMIT) :] for line in lines if line.startswith(_LIMIT)), "")
    limit = hosts.parse_number("".join(text.split()[:1]))
    if limit is not None and limit < _MIN_LOCKED_BYTES and (view.expectations.non_root or not _has_ipc_lock(view.host)):
        yield Problem(
            "memlock",
            f"is limited to {limit} bytes",
            "grant IPC_LOCK in the policy's security.capabilities, or set LimitMEMLOCK=infinity for the container "
            "runtime (the only way for ranks that are not root)",
            stated=False,
        )


def _has_ipc_lock(host: hosts.Host) -> bool:
    """True if the ranks can have CAP_IPC_LOCK. The bounding set counts, because this process is not root."""
    for line in host.read_lines("/proc/self/status"):
        name, _, value = line.partition(":")
        if name in {"CapBnd", "CapEff"} and (hosts.parse_number(value.strip(), 16) or 0) >> _IPC_LOCK & 1:
            return True
    return False


def _check_hca_list(view: resolution.ContainerView, rails: Sequence[resolution.ResolvedRail]) -> Iterator[Problem]:
    """Report the rails' devices that NCCL_IB_HCA leaves out: as a warning if the pod's author sets the variable."""
    value = view.expectations.get_variable(expected.HCA)
    left_out = [
        rail.device.name
        for rail in rails
        if rail.device and rail.port and not expected.selects_port(value, rail.device.name, rail.port.number)
    ]
    selected = any(
        view.expectations.is_candidate(device) and expected.selects_port(value, device.name, port.number)
        for device in view.devices.values()
        for port in device.ports
    )
    if value and view.expectations.rule.by_hca and (left_out or not selected):
        what = (
            f"leaves out {_join_names(left_out)}"
            if selected
            else f"selects no device (found: {_join_names(view.devices)})"
        )
        is_authors = expected.HCA in view.expectations.environment
        fix = f"correct or remove the variable in the {'pod' if is_authors else 'policy'}"
        yield Problem(expected.HCA, f"{value[:80]} {what}", fix, stated=not is_authors)


def _check_order(view: resolution.ContainerView, rails: Sequence[resolution.ResolvedRail]) -> Iterator[Problem]:
    """Warn if devices were chosen by order alone and others are unused, or if several rails share a device."""
    by_order = [rail for rail in rails if rail.basis == "order" and rail.device]
    used = Counter(rail.device.name for rail in rails if rail.device)
    left = [
        name
        for name in resolution.list_candidates(view)
        if name not in used and resolution.is_device_ready(view, view.devices[name])
    ]
    if by_order and left:
        what = f"chosen by the order of device names alone, although these are unused: {_join_names(left)}"
        fix = "state `device` of these rails in the policy"
        yield Problem(", ".join(map(_name_rail, by_order[:_MAX_NAMES])), what, fix, stated=False)
    if shared := [name for name, count in used.items() if count > 1]:
        fix = "check `master` of the rails' networks: each rail usually has a NIC of its own"
        yield Problem(_join_names(shared), "is the device of more than one rail", fix, stated=False)


def _check_common_index(view: resolution.ContainerView, rails: Sequence[resolution.ResolvedRail]) -> Iterator[Problem]:
    """Warn if the rails' GID indexes differ, and neither an index nor an address range is stated.

    UCX, NVSHMEM and Mooncake take one index for all devices. NCCL chooses a GID for each device by the range.
    """
    indexes, stated = {rail.gid.position for rail in rails if rail.gid}, view.expectations
    if len(indexes) > 1 and stated.stated_index is None and stated.address_range is None:
        listed = ", ".join(f"{rail.rail.name} {rail.gid.position}" for rail in rails if rail.gid)
        fix = "set `nccl.addressRange`, by which NCCL 2.21 and newer chooses; other libraries may use a GID of the host"
        yield Problem("GID indexes", f"differ ({listed}), so none is written", fix, stated=False)


# --- device and port --------------------------------------------------------------------------------------


def _suggest_device_fix(view: resolution.ContainerView) -> str:
    """Return the fix for a missing device.

    Device files without any device show that the kernel hides the devices: in mode `exclusive`, a network namespace
    has only the RDMA devices that were moved into it.
    """
    nodes = [name for name in view.host.list_names(hosts.VERBS) if name.startswith("uverbs")]
    if nodes and not view.devices:
        return (
            "there are device files but no devices: if `rdma system` on the node says `netns exclusive`, "
            "add the CNI plugin rdma to the rail's network, or set `netns shared`"
        )
    return "check the rail's resource and device in the policy, and the device plugin on the node"


def _check_device_files(view: resolution.ContainerView, device: hosts.Device, where: str) -> Iterator[Problem]:
    if not device.nodes:
        yield Problem(where, "no uverbs device", "load the kernel module ib_uverbs on the node")
    elif not device.visible:
        what = f"{hosts.VERBS}/{device.nodes[0]} is not in the container"
        yield Problem(where, what, "request the rail's resource, or set mounts.devInfiniband in the policy")
    else:
        for node in device.nodes:
            if why := view.host.find_open_error(f"{hosts.VERBS}/{node}"):
                yield Problem(
                    where,
                    f"{hosts.VERBS}/{node} cannot be opened ({why})",
                    "a mount alone gives no access: "
                    "request the rail's resource, or set security.privileged in the policy",
                )


_NO_LINK = "check cable, transceiver and switch port"
_NO_MANAGER = "the subnet manager has not configured the port: check that it runs and reaches this port"
_STATES = {"INIT": _NO_MANAGER, "ARMED": _NO_MANAGER}


def _check_port(view: resolution.ContainerView, rail: resolution.ResolvedRail, where: str) -> Iterator[Problem]:
    port, expectations = rail.port, view.expectations
    if port is None:
        yield Problem(where, "has no port", "check the driver on the node")
        return
    if port.link_layer != expectations.rule.link_layer:
        yield Problem(
            where,
            f"port {port.number} is {port.link_layer or 'of unknown link layer'}, "
            f"{expectations.transport} needs {expectations.rule.link_layer}",
            "correct transport or device in the policy, or the port's type on the node",
        )
    if port.state != hosts.ACTIVE:
        word = port.state.rpartition(" ")[2] or "in an unknown state"
        yield Problem(where, f"port {port.number} is {word}", _STATES.get(word, _NO_LINK))


# --- GID and interface ------------------------------------------------------------------------------------


def _check_gid(view: resolution.ContainerView, rail: resolution.ResolvedRail, where: str) -> Iterator[Problem]:
    rule, interface = view.expectations.rule, rail.interface
    if rail.gid is not None:
        yield from _check_stated_index(view, rail, rail.gid, where)
        yield from _check_addresses(view, rail.gid, where)
        if len(rail.equal_gids) > 1:
            listed = ", ".join(str(gid.position) for gid in rail.equal_gids)
            what = f"GIDs {listed} have the address {rail.gid.address}, and the first is used"
            fix = "another pod of the node has or had this address: check the network's IPAM, and recreate the pod"
            yield Problem(where, what, fix, stated=False)
        return
    is_required = rule.needs_gid or (rule.gid_kinds and rail.rail.interface)
    if not is_required or (rail.rail.interface and interface is None):
        return  # a missing interface is reported as such
    kinds = " or ".join(rule.gid_kinds)
    if rail.gids:
        gid = rail.gids[0]
        what = f"GID {gid.position} of {gid.address} is {gid.kind or 'of unknown type'}, not {kinds}"
        yield Problem(where, what, f"set the port to {kinds} on the node, and make gid_attrs readable in the container")
    elif interface and not interface.addresses:
        yield Problem(where, f"{interface.name} has no address", "check the IPAM of its NetworkAttachmentDefinition")
    else:
        owner = (
            f"{interface.name} ({', '.join(map(str, interface.addresses))})" if interface else "an address of the pod"
        )
        fix = "make `master` of the network and the device of the rail the same NIC"
        yield Problem(where, f"no {kinds} GID of {owner}", fix)


def _check_stated_index(
    view: resolution.ContainerView, rail: resolution.ResolvedRail, gid: hosts.Gid, where: str
) -> Iterator[Problem]:
    """Report a stated GID index whose entry has no address of the rail: NCCL uses the index unchecked."""
    authors = hosts.parse_number(view.expectations.environment.get(expected.GID_INDEX))
    index = view.expectations.stated_index if authors is None else authors
    if index is None or rail.port is None or any(own.position == index for own in rail.usable_gids):
        return
    present = next((f"{own.kind} {own.address}" for own in rail.port.gids if own.position == index), "an empty entry")
    yield Problem(
        where,
        f"NCCL_IB_GID_INDEX={index} selects {present}, but {gid.address} is GID {gid.position}",
        "remove the variable from the pod" if authors is not None else "remove gidIndex from the policy",
        stated=authors is None,
    )


def _check_addresses(view: resolution.ContainerView, gid: hosts.Gid, where: str) -> Iterator[Problem]:
    """Report a rail without an address in the stated range, or of the family that NCCL_IB_ADDR_FAMILY names.

    NCCL then uses entry 0, which is link-local (NVIDIA/nccl src/transport/net_ib/connect.cc). On Oracle's nodes, RoCE
    needs IPv6 addresses, and pods have disable_ipv6=1 (kubernetes-sigs/dranet issue 138).
    """
    addresses, family = view.expectations.address_range, view.expectations.get_variable(expected.ADDRESS_FAMILY)
    if addresses is not None and gid.address not in addresses:
        yield Problem(
            where,
            f"GID address {gid.address} is outside nccl.addressRange {addresses}",
            "correct `nccl.addressRange` in the policy, or the IPAM of the network; a pod without IPv6 addresses may "
            "have disable_ipv6=1",
        )
    elif family and gid.address.version != (6 if family == "AF_INET6" else 4):
        is_authors = expected.ADDRESS_FAMILY in view.expectations.environment
        what = f"GID address {gid.address} is not of the family {expected.ADDRESS_FAMILY}={family[:20]}"
        fix = f"correct or remove {expected.ADDRESS_FAMILY} in the {'pod' if is_authors else 'policy'}"
        yield Problem(where, what, fix, stated=not is_authors)


# Values of operstate (Documentation/ABI/testing/sysfs-class-net) of an interface without traffic. A driver that does
# not report its state shows "unknown".
_WITHOUT_LINK = frozenset({"down", "lowerlayerdown", "notpresent", "dormant", "testing"})


def _check_interface(view: resolution.ContainerView, interface: hosts.Interface, where: str) -> Iterator[Problem]:
    """Report an interface that is down, although its address and GIDs remain, or whose MTU is less than stated."""
    if not interface.enabled:
        fix = "find out what ran `ip link set down` in the pod, or check the network's CNI"
        yield Problem(where, f"interface {interface.name} is administratively down", fix)
    elif interface.state in _WITHOUT_LINK:
        yield Problem(where, f"interface {interface.name} has no link ({interface.state})", _NO_LINK)
    if interface.mtu is not None and interface.mtu < view.expectations.mtu:
        what = f"{interface.name} has MTU {interface.mtu}, less than {view.expectations.mtu}"
        yield Problem(where, what, "raise the MTU in the network's definition, on the host's NIC and on the switch")


# --- the line ---------------------------------------------------------------------------------------------


def format_result(
    view: resolution.ContainerView, rails: Sequence[resolution.ResolvedRail], problems: Sequence[Problem]
) -> str:
    """Return the result in one line: the differences from the policy, otherwise the ready rails and the warnings.

    Problems with the same fix are grouped. Problems that stop the pod come first.
    """
    by_fix: dict[str, list[str]] = {}
    for problem in sorted(problems, key=lambda problem: not problem.stated):
        by_fix.setdefault(problem.fix, []).append(f"{problem.where}: {problem.what}")
    text = "; ".join(f"{_join_names(locations)}: {fix}" for fix, locations in by_fix.items())
    if any(problem.stated for problem in problems):
        line = f"{'warning' if view.expectations.warn else 'failed'}: {text}"
    else:
        broken = {rail.rail.name for rail in rails if any(_check_rail(view, rail))}
        ready = [rail for rail in rails if rail.rail.name not in broken]
        count = len({rail.rail.name for rail in ready})
        line = (
            f"{count} rail{'s' * (count != 1)} ready{': ' * bool(ready)}{', '.join(map(_describe_ready_rail, ready))}"
        )
        line += f"; warning: {text}" if text else ""
    plain = "".join(character if character.isprintable() else "?" for character in line)
    return plain if len(plain) <= MAX else f"{plain[: MAX - 3]}..."
