"""Options of the preflight: what the policy states about the rails of a container, and what a transport requires.

A rail has an interface if the policy gives it a network, a resource if a device plugin provides it, both, or neither
(PVRDMA, host network, claims). Missing values are found in the container. The container's environment has NODE_NAME and
the variables that the pod's author set. The author's variables cause warnings only and are never replaced.
"""

import argparse
import ipaddress
from collections.abc import Mapping
from typing import NamedTuple

from railwright.preflight import host as hosts

AddressRange = ipaddress.IPv4Network | ipaddress.IPv6Network


class Rail(NamedTuple):
    """A rail as the policy states it. `device`, `interface` and `resource` are "" if not stated."""

    name: str
    device: str = ""
    interface: str = ""
    resource: str = ""


class TransportRule(NamedTuple):
    """Requirements of a transport (NCCL's user guide; link layers as the kernel drivers report them)."""

    link_layer: str  # as sysfs writes it
    gid_kinds: tuple[str, ...] = ()  # allowed types of the entry with the rail's address; () if no entry is required
    needs_gid: bool = False  # True if a rail without an interface needs such an entry too
    prefixes: tuple[str, ...] = ("",)  # of device names; "" allows any
    by_hca: bool = True  # True if NCCL_IB_HCA selects among the devices


_V2, _V1 = "RoCE v2", "IB/RoCE v1"
RULES: Mapping[str, TransportRule] = {
    "roce": TransportRule("Ethernet", (_V2,), needs_gid=True),
    "infiniband": TransportRule("InfiniBand"),  # GIDs there come from the subnet manager, not from addresses
    "erdma": TransportRule("Ethernet", (_V2,)),
    "pvrdma": TransportRule("Ethernet", (_V2, _V1)),  # the hypervisor's version decides, and may be v1
    "efa": TransportRule("Unspecified", prefixes=("efa_", "rdmap"), by_hca=False),  # drivers/infiniband/hw/efa
}


class Expectations(argparse.Namespace):
    """The options of a run, as argparse sets them, and the variables of the pod's author."""

    transport: str
    rails: list[Rail]
    mtu: int = 0  # 0: any
    gid_index: int | None = None  # of the policy; -1 leaves the choice to NCCL
    address_range: AddressRange | None = None
    isolated: bool = False
    several_containers: bool = False  # several containers of the pod request devices of the rails
    non_root: bool = False  # the ranks do not run as root, so that IPC_LOCK has no effect
    settings: list[tuple[str, str]]  # names and values of the policy's variables
    vendor_variables: list[str]  # names, or beginnings with `*`, that a vendor's plugin or script sets
    environment: Mapping[str, str] = {}  # of the author
    root: str = "/"  # of the file tree that is read
    write: str = ""  # the folder for the files; "" writes none
    wait: float = 0  # seconds
    warn: bool = False

    @property
    def variables(self) -> Mapping[str, str]:
        """The variables of NCCL and other libraries that the policy sets."""
        return dict(self.settings)

    @property
    def rule(self) -> TransportRule:
        """The requirements of the fabric's transport."""
        return RULES[self.transport]

    @property
    def stated_index(self) -> int | None:
        """The GID index that the policy states, None without one."""
        index = hosts.parse_number(self.variables.get(GID_INDEX)) if self.gid_index is None else self.gid_index
        return None if index is None or index < 0 else index

    def get_variable(self, name: str) -> str:
        """Return the author's value of a variable, otherwise the policy's, otherwise ""."""
        return self.environment.get(name) or self.variables.get(name, "")

    def is_set_by_vendor(self, name: str) -> bool:
        """True if the vendor's plugin or script sets a variable."""
        return any(
            name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern
            for pattern in self.vendor_variables
        )

    def is_candidate(self, device: hosts.Device) -> bool:
        """True if the container can use the device, and NCCL or the transport's plugin would select it.

        The author's NCCL_IB_HCA is ignored, because it must not leave the policy's rails without devices.
        """
        hca = self.variables.get(HCA) if self.rule.by_hca else ""
        return (
            device.visible
            and device.name.startswith(self.rule.prefixes)
            and (not hca or any(selects_port(hca, device.name, port.number) for port in device.ports))
        )


HCA, GID_INDEX, ADDRESS_FAMILY = "NCCL_IB_HCA", "NCCL_IB_GID_INDEX", "NCCL_IB_ADDR_FAMILY"


def selects_port(value: str, device: str, port: int) -> bool:
    """True if NCCL would use a port of a device with this value of NCCL_IB_HCA.

    See NVIDIA/nccl src/misc/utils.cc and src/transport/net_ib/init.cc: `^` excludes, `=` is exact, otherwise each entry
    is a prefix; name[:port]; a port that is not a number matches nothing.
    """
    exclude, pattern = value.startswith("^"), value.removeprefix("^")
    exact_names, names = pattern.startswith("="), pattern.removeprefix("=")
    entries = [entry for entry in names.split(",") if entry]
    if not entries:
        return not exclude
    return exclude != any(_matches_entry(entry, device, port, exact_names=exact_names) for entry in entries)


def _matches_entry(entry: str, device: str, port: int, *, exact_names: bool) -> bool:
    name, mark, number = entry.partition(":")
    number = number.partition(":")[0]
    if mark and number != "-1" and number != str(port):
        return False
    return device == name if exact_names else device.startswith(name)
