"""Builds the files of /sys, /proc and /dev in a container with RDMA devices, below a folder of a test.

The layout follows the kernel's documentation (ABI/stable/sysfs-class-infiniband) and soft RoCE devices of kernel 6.1.
It was not compared with other hardware.
"""

import ipaddress
import pathlib
from collections.abc import Sequence

V1, V2 = "IB/RoCE v1", "RoCE v2"
UNLIMITED = "unlimited"


class Node:
    """A file tree of a container on a node."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self._local: list[str] = []
        self._routes = ["Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT"]
        self._inet6 = ["00000000000000000000000000000001 01 80 10 80       lo"]
        self.add_interface("lo", flags="0x9", state="unknown", mtu=65536)
        self.set_memlock(UNLIMITED)
        self.write("/dev/termination-log", "")

    def write(self, path: str, text: str) -> pathlib.Path:
        """Write a file as the kernel shows it."""
        place = self.root / path[1:]
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"{text}\n")
        return place

    def link(self, path: str, target: str) -> None:
        """Make a symbolic link that leads to another path of the tree."""
        place = self.root / path[1:]
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(self.root / target[1:])

    def set_memlock(self, limit: str, bounding: str = "0000000000000000") -> None:
        """Limit the memory that may be locked, and grant capabilities."""
        self.write(
            "/proc/self/limits", f"Limit  Soft Limit\nMax locked memory         {limit}            {limit}   bytes"
        )
        self.write("/proc/self/status", f"Name:\tpython\nCapEff:\t0000000000000000\nCapBnd:\t{bounding}")

    def add_interface(
        self, name: str, *addresses: str, mtu: int = 9000, flags: str = "0x1043", state: str = "up", pci: str = ""
    ) -> None:
        """Add an interface of the pod with addresses such as 192.168.2.7/24; `pci` is its PCI function."""
        for file, text in (("mtu", str(mtu)), ("flags", flags), ("operstate", state)):
            self.write(f"/sys/class/net/{name}/{file}", text)
        if pci:
            self.link(f"/sys/class/net/{name}/device", pci)
        for address in map(ipaddress.ip_interface, addresses):
            if isinstance(address, ipaddress.IPv6Interface):
                self._inet6.append(f"{address.ip.packed.hex()} 02 40 00 80     {name}")
            else:
                self._local += [f"     |-- {address.ip}", "        /32 host LOCAL"]
                prefix, mask = (
                    part.packed[::-1].hex().upper() for part in (address.network.network_address, address.netmask)
                )
                self._routes.append(f"{name}\t{prefix}\t00000000\t0001\t0\t0\t0\t{mask}\t0\t0\t0")
        self.write("/proc/net/fib_trie", "\n".join(["Main:", "  +-- 0.0.0.0/0 3 0 5", *self._local]))
        self.write("/proc/net/route", "\n".join(self._routes))
        self.write("/proc/net/if_inet6", "\n".join(self._inet6))

    def add_device(
        self,
        name: str,
        gids: Sequence[tuple[str, str, str]] = (),
        *,
        pci: str = "",
        state: str = "4: ACTIVE",
        link_layer: str = "Ethernet",
        rate: str = "400 Gb/sec (4X NDR)",
        visible: bool = True,
        ports: int = 1,
    ) -> str:
        """Add an RDMA device with a GID table of (address, type, interface), "" for an empty entry; return its folder.

        `pci` is the path of its function below /sys/devices; without it the device is a virtual one.
        """
        base = f"/sys/devices/{pci or 'virtual'}"
        number = len(list((self.root / "sys/class/infiniband").glob("*")))
        for port in range(1, ports + 1):
            folder = f"{base}/infiniband/{name}/ports/{port}"
            for file, text in (("state", state), ("link_layer", link_layer), ("rate", rate)):
                self.write(f"{folder}/{file}", text)
            for index, (address, kind, interface) in enumerate(gids):
                self.write_gid(f"{folder}", index, address, kind, interface)
        self.write(f"{base}/infiniband_verbs/uverbs{number}/ibdev", name)
        self.link(f"/sys/class/infiniband/{name}", f"{base}/infiniband/{name}")
        self.link(f"/sys/class/infiniband_verbs/uverbs{number}", f"{base}/infiniband_verbs/uverbs{number}")
        if pci:
            self.link(f"{base}/infiniband/{name}/device", base)
        if visible:
            self.write(f"/dev/infiniband/uverbs{number}", "")
        return f"{base}/infiniband/{name}"

    def write_gid(self, port: str, index: int, address: str, kind: str, interface: str) -> None:
        """Write an entry of a GID table. An empty one has no type and no interface: the kernel answers EINVAL."""
        value = ipaddress.ip_address(address or "::")
        mapped = ipaddress.IPv6Address(f"::ffff:{value}") if value.version == 4 else value
        self.write(f"{port}/gids/{index}", mapped.exploded)
        if address:
            self.write(f"{port}/gid_attrs/types/{index}", kind)
            self.write(f"{port}/gid_attrs/ndevs/{index}", interface)


def list_gids(*entries: tuple[str, str]) -> list[tuple[str, str, str]]:
    """Return a GID table in which each address has an entry of RoCE v1 and one of v2, as drivers make them."""
    return [(address, kind, interface) for address, interface in entries for kind in (V1, V2)]


def build_roce(root: pathlib.Path, rails: int = 4, *, offsets: Sequence[int] = ()) -> Node:
    """Return a pod with macvlan interfaces net1, ... on mlx5_0, ..., whose GIDs have index 7.

    The tables also have the node's GIDs, those of a pod beside it under the same interface names, and, as mlx5 shows
    GIDs of other namespaces, empty entries. mlx5_N behind the rails is storage and not given to the pod. `offsets` are
    numbers of additional empty entries before the pod's.
    """
    node = Node(root)
    node.add_interface("eth0", "10.244.1.20/24", mtu=1500)
    for rail in range(rails):
        subnet, interface = f"192.168.{rail + 2}", f"net{rail + 1}"
        node.add_interface(interface, f"{subnet}.7/24")
        empty = [("", "", "")] * (offsets[rail] if offsets else 0)
        others = list_gids(("fe80::1", f"ens{rail}"), (f"{subnet}.101", f"ens{rail}"), (f"{subnet}.9", interface))
        gids = [*others, *empty, *list_gids((f"{subnet}.7", interface)), ("", "", "")]
        node.add_device(f"mlx5_{rail}", gids, pci=name_function(rail))
    node.add_device(f"mlx5_{rails}", list_gids(("fe80::2", "ens9")), pci=name_function(rails), visible=False)
    return node


def build_infiniband(root: pathlib.Path, rails: int = 8, *, interfaces: bool = True) -> Node:
    """Return a pod with a virtual function of each of eight NICs, and IPoIB interfaces; mlx5_0 is the host's."""
    node = Node(root)
    node.add_interface("eth0", "10.244.1.20/24", mtu=1500)
    node.add_device("mlx5_0", pci=name_function(0), link_layer="InfiniBand", visible=False)
    for rail in range(rails):
        function = name_function(rail, function=1)
        node.add_device(f"mlx5_{9 * rail + 2}", pci=function, link_layer="InfiniBand")
        if interfaces:
            node.add_interface(f"net{rail + 1}", f"10.{rail + 10}.0.5/16", mtu=4092, pci=f"/sys/devices/{function}")
    return node


def name_function(rail: int, *, function: int = 0) -> str:
    """Return the path of a NIC's PCI function: below a switch of its own."""
    return f"pci0000:{rail // 4:02x}/0000:{rail:02x}:01.0/0000:{0x10 + rail:02x}:00.{function}"
