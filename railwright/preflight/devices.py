"""Reads RDMA devices from sysfs (Documentation/ABI/stable/sysfs-class-infiniband and its verbs counterpart).

Contains the layout of /sys/class/infiniband and /dev/infiniband.
"""

import ipaddress
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from railwright.preflight import host as hosts

_CLASS = "/sys/class/infiniband"
_VERBS_CLASS = "/sys/class/infiniband_verbs"
VERBS = "/dev/infiniband"
ACTIVE = "4: ACTIVE"  # state of an ib_port, number and name (drivers/infiniband/core/sysfs.c)
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Gid(NamedTuple):
    """A used entry of a port's GID table. `kind` and `interface` are "" if gid_attrs does not show them."""

    position: int
    address: Address
    kind: str  # "RoCE v2", "IB/RoCE v1"
    interface: str


class Port(NamedTuple):
    """A port. Texts are the kernel's, "" if a file is missing."""

    number: int
    state: str
    link_layer: str
    rate: str
    gids: tuple[Gid, ...]


class Device(NamedTuple):
    """An RDMA device.

    `nodes` are the names of its character devices below /dev/infiniband, whether they exist or not.
    """

    name: str
    ports: tuple[Port, ...]
    nodes: tuple[str, ...]
    visible: bool  # at least one of the nodes is in this container


def read(host: hosts.Host) -> dict[str, Device]:
    """Return every device that /sys shows, by name, in natural order."""
    owners = {node: host.read_text(f"{_VERBS_CLASS}/{node}/ibdev") for node in host.list_names(_VERBS_CLASS)}
    return {name: _read_device(host, name, owners) for name in host.list_names(_CLASS)}


def _read_device(host: hosts.Host, name: str, owners: Mapping[str, str | None]) -> Device:
    """Read one device; `owners` maps character devices to RDMA devices, as libibverbs matches them.

    Devices without a PCI function (rxe, siw) can be matched only this way. If a runtime hides that class, the
    directory of the device's PCI function is used.
    """
    base = f"{_CLASS}/{name}"
    ports = tuple(
        _read_port(host, f"{base}/ports/{name}", number) for name, number in _list_numbered(host, f"{base}/ports")
    )
    nodes = tuple(node for node, owner in owners.items() if owner == name)
    nodes = nodes or tuple(
        node for node in host.list_names(f"{base}/device/infiniband_verbs") if owners.get(node) is None
    )
    return Device(name, ports, nodes, any(host.exists(f"{VERBS}/{node}") for node in nodes))


def _list_numbered(host: hosts.Host, path: str) -> Iterator[tuple[str, int]]:
    """Yield the numeric entries of a directory with their values."""
    for name in host.list_names(path):
        number = hosts.parse_number(name)
        if number is not None:
            yield name, number


def _read_port(host: hosts.Host, base: str, number: int) -> Port:
    texts = [host.read_text(f"{base}/{name}") or "" for name in ("state", "link_layer", "rate")]
    return Port(number, texts[0], texts[1], texts[2], tuple(_read_gids(host, base)))


def _read_gids(host: hosts.Host, base: str) -> Iterator[Gid]:
    for name, number in _list_numbered(host, f"{base}/gids"):
        address = _parse_address(host.read_text(f"{base}/gids/{name}"))
        if address is not None:
            kind = host.read_text(f"{base}/gid_attrs/types/{name}") or ""
            yield Gid(number, address, kind, host.read_text(f"{base}/gid_attrs/ndevs/{name}") or "")


def _parse_address(text: str | None) -> Address | None:
    """Return the address that a GID contains, or None for an empty entry, which is all zeros or unreadable."""
    try:
        address = ipaddress.IPv6Address(text or "::")
    except ValueError:
        return None
    return None if address == ipaddress.IPv6Address("::") else address.ipv4_mapped or address
