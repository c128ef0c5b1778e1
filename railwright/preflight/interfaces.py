"""Network interfaces of the pod: MTU, addresses, and the RDMA devices of the same PCI function.

Owns /sys/class/net and the tables of /proc/net, which need neither a library nor a privilege; a line that is none of
theirs, as a sandboxed runtime may write it, is skipped. Knows no expectations.
"""

import contextlib
import ipaddress
from collections.abc import Iterator
from typing import NamedTuple

from railwright.preflight import host as hosts
from railwright.preflight.devices import Address

_CLASS = "/sys/class/net"


class Interface(NamedTuple):
    """An interface; `mtu` None where it cannot be read."""

    name: str
    mtu: int | None
    addresses: tuple[Address, ...]
    devices: tuple[str, ...]  # RDMA devices of its PCI function; none for macvlan, which has no function of its own
    enabled: bool = True  # False: set down by an administrator
    state: str = ""  # operational, in the kernel's word; "" where it cannot be read


class Network(NamedTuple):
    """The pod's network namespace: interfaces by name, and all addresses that are the pod's own."""

    interfaces: dict[str, Interface]
    addresses: frozenset[Address]


def read(host: hosts.Host) -> Network:
    """What the namespace of this process has."""
    local = tuple(_local(host))
    routes = tuple(_connected(host))
    sixes = tuple(_sixes(host))
    found = {}
    for name in host.names(_CLASS):
        four = [each for each in local if any(device == name and each in network for device, network in routes)]
        six = [address for device, address in sixes if device == name]
        rdma = tuple(host.names(f"{_CLASS}/{name}/device/infiniband"))
        base = f"{_CLASS}/{name}"
        found[name] = Interface(
            name=name,
            mtu=hosts.whole(host.text(f"{base}/mtu")),
            addresses=(*four, *six),
            devices=rdma,
            enabled=_enabled(host.text(f"{base}/flags")),
            state=host.text(f"{base}/operstate") or "",
        )
    return Network(found, frozenset({*local, *(address for _, address in sixes)}))


def _enabled(flags: str | None) -> bool:
    """False where the kernel's flags, as 0x1003, lack IFF_UP (include/uapi/linux/if.h)."""
    number = hosts.whole((flags or "").removeprefix("0x"), 16)
    return number is None or bool(number & 1)


def _local(host: hosts.Host) -> Iterator[ipaddress.IPv4Address]:
    """IPv4 addresses of the namespace: fib_trie lists each above a line `/32 host LOCAL`."""
    last, seen = "", set()
    for line in (host.text("/proc/net/fib_trie") or "").splitlines():
        words = line.split()
        if words[:1] == ["|--"] and len(words) == 2:
            last = words[1]
        elif words == ["/32", "host", "LOCAL"] and last and last not in seen:
            seen.add(last)
            with contextlib.suppress(ValueError):
                address = ipaddress.IPv4Address(last)
                if not address.is_loopback:
                    yield address


def _connected(host: hosts.Host) -> Iterator[tuple[str, ipaddress.IPv4Network]]:
    """Interface and prefix of each route without a gateway; /proc/net/route writes little-endian hexadecimals."""
    for line in (host.text("/proc/net/route") or "").splitlines()[1:]:
        words = line.split()
        if len(words) > 7 and words[2] == "00000000" and words[7] != "00000000":
            with contextlib.suppress(ValueError):
                prefix, mask = (ipaddress.IPv4Address(bytes.fromhex(words[at])[::-1]) for at in (1, 7))
                yield words[0], ipaddress.IPv4Network(f"{prefix}/{mask}", strict=False)


def _sixes(host: hosts.Host) -> Iterator[tuple[str, ipaddress.IPv6Address]]:
    """Interface and address of each IPv6 address that other hosts can use."""
    for line in (host.text("/proc/net/if_inet6") or "").splitlines():
        words = line.split() or [""]
        with contextlib.suppress(ValueError):
            address = ipaddress.IPv6Address(bytes.fromhex(words[0]))
            if not (address.is_link_local or address.is_loopback):
                yield words[-1], address
