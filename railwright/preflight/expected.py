"""What is expected of a fabric: the rails as the command line gives them, and what each transport's ports must be.

Owns the table of transports and the grammar of `--rail`. Knows no host.
"""

from collections.abc import Mapping
from typing import NamedTuple


class Rail(NamedTuple):
    """A rail; `device` and `interface` "" where they are not known before the pod runs."""

    name: str
    device: str = ""
    interface: str = ""


class Rule(NamedTuple):
    """What NCCL needs of a transport's ports (knowledge of NCCL's user guide and the drivers' own link layers)."""

    link_layer: str  # as sysfs writes it
    gid_kinds: tuple[str, ...] = ()  # of the entry that holds the rail's address; () = no entry is looked for
    needs_address: bool = False  # also a rail without an interface of its own needs a GID of this namespace
    prefixes: tuple[str, ...] = ("",)  # of its devices' names; "" = any
    by_hca: bool = True  # NCCL_IB_HCA chooses among its devices


_V2, _V1 = "RoCE v2", "IB/RoCE v1"

RULES: Mapping[str, Rule] = {
    "roce": Rule("Ethernet", (_V2,), needs_address=True),
    "infiniband": Rule("InfiniBand"),  # GIDs there come from the subnet manager, not from addresses
    "erdma": Rule("Ethernet", (_V2,)),
    "pvrdma": Rule("Ethernet", (_V2, _V1)),  # the host's version decides, and it may be 1
    "efa": Rule("Unspecified", prefixes=("efa_", "rdmap"), by_hca=False),  # drivers/infiniband/hw/efa
}


class Expected(NamedTuple):
    """All that is checked. `mtu` 0: none is asked for. `gid_index` None: NCCL chooses the entry.

    `root`: the ranks run as root, so IPC_LOCK is theirs.
    """

    transport: str
    rails: tuple[Rail, ...] = ()
    hca: str | None = None
    mtu: int = 0
    root: bool = True
    gid_index: int | None = None

    @property
    def rule(self) -> Rule:
        """What its transport needs."""
        return RULES[self.transport]


def rail(written: str) -> Rail:
    """A rail from NAME[,device=DEVICE][,interface=INTERFACE]. Raises ValueError that says what is wrong.

    An interface's name may hold a comma, so it comes last and takes the rest.
    """
    head, mark, interface = written.partition(",interface=")
    name, *parts = head.split(",")
    found = {key: value for key, _, value in (part.partition("=") for part in parts)}
    if not name or (mark and not interface) or found.keys() - {"device"} or not all(found.values()):
        raise ValueError(f"{written!r} is not NAME[,device=DEVICE][,interface=INTERFACE]")
    return Rail(name, found.get("device", ""), interface)
