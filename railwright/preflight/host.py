"""Reads a host as a container sees it, below a root directory: RDMA devices, interfaces, devices of claims.

Needs no library and no privilege. A file that cannot be read counts as absent and is never an error: the kernel returns
EINVAL for an empty GID entry, and a runtime may hide or replace any of these files. Lines in another format, as a
sandboxed runtime may write them, are skipped.
"""

import contextlib
import ipaddress
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

_NUMBER = re.compile(r"(\d+)", re.ASCII)  # ASCII only, because a name may contain other digits, such as net\u00b2
_MOST_BYTES = 8 << 20  # of a file; the routes of a node take less than 1 MiB


class Host:
    """The file tree below `root`: / in production, another directory in tests and for a recorded tree."""

    def __init__(self, root: str | Path = "/") -> None:
        self._root = str(root).rstrip("/")

    def resolve_path(self, path: str) -> str:
        """Return the path, below the root, of an absolute path in the container."""
        return self._root + path

    def read_text(self, path: str) -> str | None:
        """Return a file's content, stripped; None if it cannot be read."""
        try:
            with open(self.resolve_path(path), "rb") as file:  # noqa: PTH123 - GID tables are thousands of files
                return file.read(_MOST_BYTES).decode(errors="replace").strip()
        except (OSError, ValueError):
            return None

    def read_lines(self, path: str) -> list[str]:
        """Return the lines of a file; none if it cannot be read."""
        return (self.read_text(path) or "").splitlines()

    def list_names(self, path: str) -> list[str]:
        """Return the entries of a directory in natural order (mlx5_2 before mlx5_10); [] if it cannot be read."""
        try:
            return sorted(os.listdir(self.resolve_path(path)), key=build_sort_key)  # noqa: PTH208 - names, not paths
        except OSError:
            return []

    def find_paths(self, pattern: str) -> list[str]:
        """Return the absolute paths in the container that match a pattern with `*`, sorted."""
        return sorted(
            f"/{path.relative_to(self.resolve_path('/'))}" for path in Path(self.resolve_path("/")).glob(pattern[1:])
        )

    def exists(self, path: str) -> bool:
        """True if the container has a file or directory at the path."""
        return Path(self.resolve_path(path)).exists()

    def find_real_path(self, path: str) -> str:
        """Return the target of a symbolic link of /sys; "" if it does not exist."""
        try:
            real = str(Path(self.resolve_path(path)).resolve(strict=True))
        except OSError:
            return ""
        return real.removeprefix(str(Path(self._root or "/").resolve()).rstrip("/"))

    def find_open_error(self, path: str) -> str:
        """Return the error of opening a device file for reading and writing; "" if it opens."""
        try:
            os.close(os.open(self.resolve_path(path), os.O_RDWR | os.O_CLOEXEC))
        except OSError as error:
            return error.strerror or str(error)
        return ""


def build_sort_key(name: str) -> list[tuple[int, str]]:
    """Return a sort key that orders numbers in names by value."""
    return [(int(part), "") if _NUMBER.fullmatch(part) else (-1, part) for part in _NUMBER.split(name) if part]


def parse_number(text: str | None, base: int = 10) -> int | None:
    """Parse an unsigned number as the kernel writes it; None for anything else."""
    if not text or not (text.isascii() and text.isalnum()):  # int() accepts signs, blanks and other digits
        return None
    try:
        return int(text, base)
    except ValueError:
        return None


# --- RDMA devices -----------------------------------------------------------------------------------------

_RDMA_CLASS = "/sys/class/infiniband"
_VERBS_CLASS = "/sys/class/infiniband_verbs"
VERBS = "/dev/infiniband"
ACTIVE = "4: ACTIVE"  # state of an ib_port, number and name (drivers/infiniband/core/sysfs.c)
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Gid(NamedTuple):
    """A used entry of a port's GID table. `kind` and `interface` are "" if gid_attrs does not show them."""

    position: int  # the GID index
    address: Address
    kind: str  # "RoCE v2", "IB/RoCE v1"
    interface: str


class Port(NamedTuple):
    """A port of an RDMA device. Fields have the kernel's text, "" if the file is missing."""

    number: int
    state: str
    link_layer: str
    rate: str
    gids: tuple[Gid, ...]


class Device(NamedTuple):
    """An RDMA device. `nodes` are its character devices below /dev/infiniband, whether they exist or not."""

    name: str
    ports: tuple[Port, ...]
    nodes: tuple[str, ...]
    visible: bool  # at least one of the nodes is in this container
    pci_address: str = ""  # of its PCI function, such as 0000:3b:00.2; "" without one (rxe, siw)


def read_devices(host: Host) -> dict[str, Device]:
    """Return the RDMA devices in /sys by name, in natural order."""
    owners = {node: host.read_text(f"{_VERBS_CLASS}/{node}/ibdev") for node in host.list_names(_VERBS_CLASS)}
    return {name: _read_device(host, name, owners) for name in host.list_names(_RDMA_CLASS)}


_PCI_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]")


def _read_device(host: Host, name: str, owners: Mapping[str, str | None]) -> Device:
    """Read one device; `owners` maps character devices to RDMA devices, as libibverbs matches them.

    Devices without a PCI function (rxe, siw) can be matched only by their character devices.
    """
    base = f"{_RDMA_CLASS}/{name}"
    ports = tuple(
        _read_port(host, f"{base}/ports/{port}", number)
        for port, number in _list_numbered_entries(host, f"{base}/ports")
    )
    nodes = tuple(node for node, owner in owners.items() if owner == name)
    visible = any(host.exists(f"{VERBS}/{node}") for node in nodes)
    function = host.find_real_path(f"{base}/device").rpartition("/")[2]
    return Device(name, ports, nodes, visible, function if _PCI_ADDRESS.fullmatch(function) else "")


def _read_port(host: Host, base: str, number: int) -> Port:
    state, link_layer, rate = (host.read_text(f"{base}/{name}") or "" for name in ("state", "link_layer", "rate"))
    return Port(number, state, link_layer, rate, tuple(_read_gids(host, base)))


def _list_numbered_entries(host: Host, path: str) -> Iterator[tuple[str, int]]:
    """Yield name and value of each directory entry that is a number."""
    for name in host.list_names(path):
        number = parse_number(name)
        if number is not None:
            yield name, number


def _read_gids(host: Host, base: str) -> Iterator[Gid]:
    for name, number in _list_numbered_entries(host, f"{base}/gids"):
        address = _parse_address(host.read_text(f"{base}/gids/{name}"))
        if address is not None:
            kind = host.read_text(f"{base}/gid_attrs/types/{name}") or ""
            yield Gid(number, address, kind, host.read_text(f"{base}/gid_attrs/ndevs/{name}") or "")


_EMPTY_GID = "0000:0000:0000:0000:0000:0000:0000:0000"  # also an mlx5 entry of another network namespace


def _parse_address(text: str | None) -> Address | None:
    """Return the address that a GID contains, or None for an empty entry."""
    if not text or text == _EMPTY_GID:
        return None
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        return None
    return address.ipv4_mapped or address


# --- the network namespace --------------------------------------------------------------------------------

_NET_CLASS = "/sys/class/net"


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


def read_network(host: Host) -> Network:
    """Read the network namespace of this process."""
    local = tuple(_read_ipv4_addresses(host))
    routes = tuple(_read_connected_routes(host, local))
    ipv6_addresses = tuple(_read_ipv6_addresses(host))
    interfaces = {}
    for name in host.list_names(_NET_CLASS):
        base = f"{_NET_CLASS}/{name}"
        ipv4 = [
            address for address in local if any(device == name and address in network for device, network in routes)
        ]
        interfaces[name] = Interface(
            name=name,
            mtu=parse_number(host.read_text(f"{base}/mtu")),
            addresses=(*ipv4, *(address for device, address in ipv6_addresses if device == name)),
            devices=tuple(host.list_names(f"{base}/device/infiniband")),
            enabled=_is_enabled(host.read_text(f"{base}/flags")),
            state=host.read_text(f"{base}/operstate") or "",
        )
    return Network(interfaces, frozenset({*local, *(address for _, address in ipv6_addresses)}))


def _is_enabled(flags: str | None) -> bool:
    """Return True if the kernel's flags, such as 0x1003, have IFF_UP (include/uapi/linux/if.h) or are unknown."""
    number = parse_number((flags or "").removeprefix("0x"), 16)
    return number is None or bool(number & 1)


def _read_ipv4_addresses(host: Host) -> Iterator[ipaddress.IPv4Address]:
    """Yield the IPv4 addresses of the namespace: fib_trie lists each above a line `/32 host LOCAL`."""
    last, addresses = "", set()
    for line in host.read_lines("/proc/net/fib_trie"):
        words = line.split()
        if words[:1] == ["|--"] and len(words) == 2:
            last = words[1]
        elif words == ["/32", "host", "LOCAL"] and last and last not in addresses:
            addresses.add(last)
            with contextlib.suppress(ValueError):
                address = ipaddress.IPv4Address(last)
                if not address.is_loopback:
                    yield address


def _read_connected_routes(
    host: Host, local: Collection[ipaddress.IPv4Address]
) -> Iterator[tuple[str, ipaddress.IPv4Network]]:
    """Yield interface and prefix of each route without a gateway that covers a local address.

    /proc/net/route uses little-endian hexadecimal. On the host network it has a route for each pod of the node.
    """
    for line in host.read_lines("/proc/net/route"):
        words = line.split()
        if len(words) > 7 and words[2] == "00000000" and words[7] != "00000000":
            with contextlib.suppress(ValueError):
                prefix, mask = (ipaddress.IPv4Address(bytes.fromhex(words[at])[::-1]) for at in (1, 7))
                network = ipaddress.IPv4Network(f"{prefix}/{mask}", strict=False)
                if any(address in network for address in local):
                    yield words[0], network


def _read_ipv6_addresses(host: Host) -> Iterator[tuple[str, ipaddress.IPv6Address]]:
    """Yield interface and address of each IPv6 address that other hosts can reach."""
    for line in host.read_lines("/proc/net/if_inet6"):
        words = line.split() or [""]
        with contextlib.suppress(ValueError):
            address = ipaddress.IPv6Address(bytes.fromhex(words[0]))
            if not (address.is_link_local or address.is_loopback):
                yield words[-1], address


# --- devices of claims (Dynamic Resource Allocation) -------------------------------------------------------

_METADATA = "/var/run/kubernetes.io/dra-device-attributes"  # k8s.io/dynamic-resource-allocation/api/metadata
_RDMA_DEVICE = "dra.net/rdmaDevice"


class ClaimedDevice(NamedTuple):
    """A device of a claim, from its driver's metadata. A field is "" if the driver does not state it."""

    request: str
    rdma_device: str
    interface: str


def read_claimed_devices(host: Host) -> tuple[ClaimedDevice, ...]:
    """Return the devices in the files of drivers that implement KEP-5304: one for each claim, request and driver."""
    paths = host.find_paths(f"{_METADATA}/resourceclaim*/*/*/*-metadata.json")
    return tuple(
        device for path in paths for device in _parse_metadata(host.read_text(path) or "", request=path.split("/")[-2])
    )


def _parse_metadata(text: str, request: str) -> list[ClaimedDevice]:
    """Return the devices of a request; [] for a file of another form. Only the first of its JSON objects is read.

    Drivers write the same content once for each API version.
    """
    try:
        tree, _ = json.JSONDecoder().raw_decode(text)
        return [
            ClaimedDevice(
                request,
                str(device.get("attributes", {}).get(_RDMA_DEVICE, {}).get("string", "")),
                str(device.get("networkData", {}).get("interfaceName", "")),
            )
            for row in tree["requests"]
            if row["name"].partition("/")[0] == request  # behind the slash is an alternative of the request
            for device in row["devices"]
        ]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return []
