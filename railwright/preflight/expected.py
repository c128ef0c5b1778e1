"""The expected state of a fabric: the rails from the command line, and the required ports of each transport.

Contains the table of transports and the grammar of `--rail`.
"""

from collections.abc import Mapping
from typing import NamedTuple


class Rail(NamedTuple):
    """A rail. `device` and `interface` are "" if they are not known before the pod runs.

    `source` is the claim that holds the device, for messages.
    """

    name: str
    device: str = ""
    interface: str = ""
    source: str = ""


class Rule(NamedTuple):
    """Requirements of a transport's ports (NCCL's user guide; link layers as the kernel drivers report them)."""

    link_layer: str  # as sysfs writes it
    gid_kinds: tuple[str, ...] = ()  # allowed types of the entry with the rail's address; () if no entry is required
    needs_address: bool = False  # True if a rail without an interface also needs a GID of this network namespace
    prefixes: tuple[str, ...] = ("",)  # of device names; "" allows any
    by_hca: bool = True  # True if NCCL_IB_HCA selects among the devices


_V2, _V1 = "RoCE v2", "IB/RoCE v1"

RULES: Mapping[str, Rule] = {
    "roce": Rule("Ethernet", (_V2,), needs_address=True),
    "infiniband": Rule("InfiniBand"),  # GIDs there come from the subnet manager, not from addresses
    "erdma": Rule("Ethernet", (_V2,)),
    "pvrdma": Rule("Ethernet", (_V2, _V1)),  # the hypervisor's version decides, and may be v1
    "efa": Rule("Unspecified", prefixes=("efa_", "rdmap"), by_hca=False),  # drivers/infiniband/hw/efa
}


class Expected(NamedTuple):
    """The expectations of one run.

    `mtu` 0 means any. `gid_index` None means that NCCL chooses the entry. `root` is True if the ranks run as root, so
    that IPC_LOCK takes effect.
    """

    transport: str
    rails: tuple[Rail, ...] = ()
    hca: str | None = None
    mtu: int = 0
    root: bool = True
    gid_index: int | None = None

    @property
    def rule(self) -> Rule:
        """The requirements of the transport."""
        return RULES[self.transport]


def parse_rail(text: str) -> Rail:
    """Parse NAME[,device=DEVICE][,interface=INTERFACE]. Raises ValueError with the expected form.

    An interface's name may contain a comma, so it comes last and takes the rest.
    """
    head, mark, interface = text.partition(",interface=")
    name, *parts = head.split(",")
    options = {key: value for key, _, value in (part.partition("=") for part in parts)}
    if not name or (mark and not interface) or options.keys() - {"device"} or not all(options.values()):
        raise ValueError(f"{text!r} is not NAME[,device=DEVICE][,interface=INTERFACE]")
    return Rail(name, options.get("device", ""), interface)
