"""RDMA devices as the kernel shows them (its Documentation/ABI/stable: sysfs-class-infiniband and its verbs sibling).

Owns the layout below /sys/class/infiniband and /dev/infiniband. Knows no expectations.
"""

import ipaddress
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from railwright.preflight import host as hosts

_CLASS = "/sys/class/infiniband"
_VERBS_CLASS = "/sys/class/infiniband_verbs"
VERBS = "/dev/infiniband"
ACTIVE = "4: ACTIVE"  # ib_port state, number and word (drivers/infiniband/core/sysfs.c)
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Gid(NamedTuple):
    """A used entry of a port's GID table. `kind` and `interface` are "" where gid_attrs does not tell them."""

    position: int
    address: Address
    kind: str  # "RoCE v2", "IB/RoCE v1"
    interface: str


class Port(NamedTuple):
    """A port; texts as the kernel writes them, "" where a file is missing."""

    number: int
    state: str
    link_layer: str
    rate: str
    gids: tuple[Gid, ...]


class Device(NamedTuple):
    """An RDMA device. `nodes` are its character devices below /dev/infiniband, be they there or not."""

    name: str
    ports: tuple[Port, ...]
    nodes: tuple[str, ...]
    visible: bool  # at least one of the nodes is in this container


def read(host: hosts.Host) -> dict[str, Device]:
    """Every device of the host that /sys shows, in natural order."""
    owners = {node: host.text(f"{_VERBS_CLASS}/{node}/ibdev") for node in host.names(_VERBS_CLASS)}
    return {name: _device(host, name, owners) for name in host.names(_CLASS)}


def _device(host: hosts.Host, name: str, owners: Mapping[str, str | None]) -> Device:
    """Read one device; `owners` are the RDMA devices by character device, as libibverbs matches them.

    A device without a PCI function (rxe, siw) is found by no other way. Where a runtime hides that class, the folder of
    the device's function tells.
    """
    base = f"{_CLASS}/{name}"
    ports = tuple(_port(host, f"{base}/ports/{each}", number) for each, number in _numbered(host, f"{base}/ports"))
    nodes = tuple(node for node, owner in owners.items() if owner == name)
    nodes = nodes or tuple(node for node in host.names(f"{base}/device/infiniband_verbs") if owners.get(node) is None)
    return Device(name, ports, nodes, any(host.exists(f"{VERBS}/{node}") for node in nodes))


def _numbered(host: hosts.Host, path: str) -> Iterator[tuple[str, int]]:
    """The entries of a folder that are numbers."""
    for each in host.names(path):
        number = hosts.whole(each)
        if number is not None:
            yield each, number


def _port(host: hosts.Host, base: str, number: int) -> Port:
    texts = [host.text(f"{base}/{each}") or "" for each in ("state", "link_layer", "rate")]
    return Port(number, texts[0], texts[1], texts[2], tuple(_gids(host, base)))


def _gids(host: hosts.Host, base: str) -> Iterator[Gid]:
    for each, number in _numbered(host, f"{base}/gids"):
        address = _address(host.text(f"{base}/gids/{each}"))
        if address is not None:
            kind = host.text(f"{base}/gid_attrs/types/{each}") or ""
            yield Gid(number, address, kind, host.text(f"{base}/gid_attrs/ndevs/{each}") or "")


def _address(written: str | None) -> Address | None:
    """The address a GID stands for; None for an empty entry, which reads as zeros or not at all."""
    try:
        address = ipaddress.IPv6Address(written or "::")
    except ValueError:
        return None
    return None if address == ipaddress.IPv6Address("::") else address.ipv4_mapped or address
