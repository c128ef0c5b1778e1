"""The names and addresses of a site, and the settings of a node.

Standard library only: the first process of a node reads it.
"""

import dataclasses
import json
import pathlib
from typing import Any

GATEWAY = "10.90.0.1"  # the site's own address: API server and DNS
SERVICES = "10.0.0.0/24"  # addresses of Services
KUBERNETES_SERVICE, DNS_SERVICE = "10.0.0.1", "10.0.0.10"
BRIDGE = "lan"
COMMAND_PORT = 7000  # of a virtual node
RAILS = 4
MTU = 9000  # of the rails
SUBNETS = [f"192.168.{rail + 2}" for rail in range(RAILS)]  # of 360 Smart Cloud's networks
DEVICES = [f"mlx5_{rail}" for rail in range(RAILS)]  # RDMA devices of the rails
FUNCTIONS = 8  # virtual functions of each node, two on a rail's bridge
NODES = ("node-a", "node-b")
VIRTUAL_NODES = ("node-c", "node-d")  # virtual machines with RDMA devices, which join for single tests
NRI_NODE = NODES[1]  # its containerd is of a release that has NRI, the other node's is Debian's


@dataclasses.dataclass(frozen=True)
class Node:
    """Describes a node of the test site. Numbers start at 1. No two nodes share a `folder` or a `cgroup`."""

    name: str
    number: int
    folder: str  # on a real disk: kubelet's files
    logs: str
    cgroup: str  # its name below each hierarchy
    credentials: str  # folder of kubeconfigs and the CA
    programs: str
    kubelet: str
    containerd: str  # folder of containerd and its shim
    debian: str
    binds: tuple[str, ...]  # folders of the machine that keep their path in the node
    libraries: str  # LD_LIBRARY_PATH of Debian's programs
    # of a virtual node:
    kernel: str = ""  # folder of the kernel's packages
    busybox: str = ""
    rail_addresses: tuple[int, ...] = ()  # last numbers of the node's own addresses on each rail

    @property
    def address(self) -> str:
        """Address of eth0."""
        return f"10.90.0.{10 + self.number}"

    @property
    def pods(self) -> str:
        """Network of the node's pods."""
        return f"10.244.{self.number}.0/24"

    @property
    def device_file(self) -> pathlib.Path:
        """File with the devices that the device plugin offers; read again when it changes."""
        return pathlib.Path(self.folder) / "devices.json"

    @property
    def plugins(self) -> str:
        """Folder of containerd's NRI plugins; empty in a virtual machine, which is too slow for their time limit."""
        return "" if self.kernel else f"{self.programs}/nri"

    def write(self, path: pathlib.Path) -> None:
        """Write the settings for the first process of the node."""
        path.write_text(json.dumps(dataclasses.asdict(self)))


def read_node(path: pathlib.Path) -> Node:
    """Read the settings from a file of `Node.write`."""
    document: dict[str, Any] = json.loads(path.read_text())
    return Node(**{**document, "binds": tuple(document["binds"])})


def name_mac(number: int, index: int) -> str:
    """Return the MAC address of an interface of a virtual node: eth0, then those of the rails."""
    return f"52:54:00:00:{number:02x}:{index:02x}"


def name_interface(rail: int) -> str:
    """Return the name of a rail's interface on every node: 360 Smart Cloud's lan2 to lan5."""
    return f"lan{rail + 2}"


def name_device(rail: int) -> str:
    """Return the name of a rail's RDMA device."""
    return DEVICES[rail]


def name_function(index: int) -> str:
    """Return the name of a virtual function's interface on every node."""
    return f"vf{index}"


def name_pci_function(index: int) -> str:
    """Return the PCI address of a virtual function, its name for the device plugin and Multus."""
    return f"0000:{index + 0x10:02x}:00.1"


def name_function_device(index: int) -> str:
    """Return the name of a virtual function's RDMA device; the first ones are those of the rails."""
    return f"mlx5_{RAILS + index}"


def name_function_verbs(index: int) -> str:
    """Return the name of the verbs device file of a virtual function."""
    return f"uverbs{RAILS + index}"
