"""The expected state of a fabric: rails from the command line, required ports of each transport, NCCL's variables.

A variable is read as NCCL would: from the environment, otherwise /etc/nccl.conf (NVIDIA/nccl src/misc/param.cc). A file
in a user's home or one named by NCCL_CONF_FILE is part of the image and not visible here.

NCCL_IB_HCA selects ports by the grammar of NVIDIA/nccl src/misc/utils.cc and src/transport/net_ib/init.cc: `^`
excludes, `=` is exact, otherwise each entry is a prefix; name[:port]; a port that is not a number matches nothing.
"""

from collections.abc import Mapping
from typing import NamedTuple

from railwright.preflight import host as hosts


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

    `mtu` 0 means any. `gid_index` None means that NCCL chooses the entry, among addresses of `ip_version`. `root` is
    True if the ranks run as root, so that IPC_LOCK takes effect.
    """

    transport: str
    rails: tuple[Rail, ...] = ()
    hca: str | None = None
    mtu: int = 0
    root: bool = True
    gid_index: int | None = None
    ip_version: int = 4

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


HCA, GID_INDEX, ADDRESS_FAMILY = "NCCL_IB_HCA", "NCCL_IB_GID_INDEX", "NCCL_IB_ADDR_FAMILY"
_FILE = "/etc/nccl.conf"


def get_value(name: str, environment: Mapping[str, str], host: hosts.Host) -> str | None:
    """Return the value, or None if it is set nowhere."""
    if name in environment:
        return environment[name]
    for line in (host.read_text(_FILE) or "").splitlines():
        key, mark, text = line.partition("=")
        if mark and key == name:
            return text
    return None


def get_gid_index(environment: Mapping[str, str], host: hosts.Host) -> int | None:
    """Return the fixed GID index, or None if NCCL chooses (-1, or a value that is no number)."""
    return hosts.parse_number(get_value(GID_INDEX, environment, host))


def get_ip_version(environment: Mapping[str, str], host: hosts.Host) -> int:
    """Return the version of the addresses whose GIDs NCCL uses: 6, or 4, also for a word that NCCL does not know."""
    return 6 if get_value(ADDRESS_FAMILY, environment, host) == "AF_INET6" else 4


def parse_exact_list(value: str) -> tuple[str, ...]:
    """Return the devices of an exact list in its order; () for any other value."""
    if not value.startswith("=") or value.startswith("=^"):
        return ()
    return tuple(dict.fromkeys(entry.partition(":")[0] for entry in value[1:].split(",") if entry))


def selects_device(value: str | None, device: hosts.Device) -> bool:
    """True if NCCL would use a port of the device. Without a value it uses every device."""
    return not value or any(selects(value, device.name, port.number) for port in device.ports)


def selects(value: str, device: str, port: int) -> bool:
    """True if NCCL would use this port."""
    exclude, pattern = value.startswith("^"), value.removeprefix("^")
    exact_names, names = pattern.startswith("="), pattern.removeprefix("=")
    entries = [entry for entry in names.split(",") if entry]
    if not entries:
        return not exclude
    return exclude != any(_matches(entry, device, port, exact_names=exact_names) for entry in entries)


def _matches(entry: str, device: str, port: int, *, exact_names: bool) -> bool:
    name, mark, number = entry.partition(":")
    number = number.partition(":")[0]
    if mark and number != "-1" and number != str(port):
        return False
    return device == name if exact_names else device.startswith(name)
