"""Reads the pod's network interfaces: MTU, addresses, and the RDMA devices of the same PCI function.

Contains the layout of /sys/class/net and of the tables in /proc/net, which need no library and no privilege. Lines in
another format, as a sandboxed runtime may write them, are skipped.
"""

import contextlib
import ipaddress
from collections.abc import Iterator
from typing import NamedTuple

from railwright.preflight import host as hosts
from railwright.preflight.devices import Address

_CLASS = "/sys/class/net"


class Interface(NamedTuple):
    """An interface. `mtu` is None if it cannot be read."""

    name: str
    mtu: int | None
    addresses: tuple[Address, ...]
    devices: tuple[str, ...]  # RDMA devices of its PCI function; () for macvlan, which has no function
    enabled: bool = True  # False if an administrator set it down
    state: str = ""  # operational state as the kernel names it; "" if it cannot be read


class Network(NamedTuple):
    """The pod's network namespace: interfaces by name, and all addresses of the pod."""

    interfaces: dict[str, Interface]
    addresses: frozenset[Address]


def read(host: hosts.Host) -> Network:
    """Read the network namespace of this process."""
    local = tuple(_read_ipv4_addresses(host))
    routes = tuple(_read_connected_routes(host))
    ipv6_addresses = tuple(_read_ipv6_addresses(host))
    interfaces = {}
    for name in host.list_names(_CLASS):
        ipv4 = [
            address for address in local if any(device == name and address in network for device, network in routes)
        ]
        ipv6 = [address for device, address in ipv6_addresses if device == name]
        rdma = tuple(host.list_names(f"{_CLASS}/{name}/device/infiniband"))
        base = f"{_CLASS}/{name}"
        interfaces[name] = Interface(
            name=name,
            mtu=hosts.parse_number(host.read_text(f"{base}/mtu")),
            addresses=(*ipv4, *ipv6),
            devices=rdma,
            enabled=_is_enabled(host.read_text(f"{base}/flags")),
            state=host.read_text(f"{base}/operstate") or "",
        )
    return Network(interfaces, frozenset({*local, *(address for _, address in ipv6_addresses)}))


def _is_enabled(flags: str | None) -> bool:
    """Return whether the kernel's flags, such as 0x1003, have IFF_UP (include/uapi/linux/if.h), or are unknown."""
    number = hosts.parse_number((flags or "").removeprefix("0x"), 16)
    return number is None or bool(number & 1)


def _read_ipv4_addresses(host: hosts.Host) -> Iterator[ipaddress.IPv4Address]:
    """Yield the IPv4 addresses of the namespace: fib_trie lists each above a line `/32 host LOCAL`."""
    last, addresses = "", set()
    for line in (host.read_text("/proc/net/fib_trie") or "").splitlines():
        words = line.split()
        if words[:1] == ["|--"] and len(words) == 2:
            last = words[1]
        elif words == ["/32", "host", "LOCAL"] and last and last not in addresses:
            addresses.add(last)
            with contextlib.suppress(ValueError):
                address = ipaddress.IPv4Address(last)
                if not address.is_loopback:
                    yield address


def _read_connected_routes(host: hosts.Host) -> Iterator[tuple[str, ipaddress.IPv4Network]]:
    """Yield interface and prefix of each route without a gateway; /proc/net/route uses little-endian hexadecimal."""
    for line in (host.read_text("/proc/net/route") or "").splitlines()[1:]:
        words = line.split()
        if len(words) > 7 and words[2] == "00000000" and words[7] != "00000000":
            with contextlib.suppress(ValueError):
                prefix, mask = (ipaddress.IPv4Address(bytes.fromhex(words[at])[::-1]) for at in (1, 7))
                yield words[0], ipaddress.IPv4Network(f"{prefix}/{mask}", strict=False)


def _read_ipv6_addresses(host: hosts.Host) -> Iterator[tuple[str, ipaddress.IPv6Address]]:
    """Yield interface and address of each IPv6 address that other hosts can reach."""
    for line in (host.read_text("/proc/net/if_inet6") or "").splitlines():
        words = line.split() or [""]
        with contextlib.suppress(ValueError):
            address = ipaddress.IPv6Address(bytes.fromhex(words[0]))
            if not (address.is_link_local or address.is_loopback):
                yield words[-1], address
