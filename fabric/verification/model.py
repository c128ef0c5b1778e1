"""What a log of NCCL tells of the network a job ran over, as values: events, pods, the verdict.

Owns the form, which is also the JSON of `railwright verify log`. Knows no text and no policy.
"""

import msgspec

RDMA, PARTIAL, FAILED, TCP, UNKNOWN = "rdma", "partial", "failed", "tcp", "unknown"
"""Every rail carried RDMA; RDMA, but not on every rail; RDMA that broke or gave wrong results; sockets; cannot tell."""


class Hca(msgspec.Struct, frozen=True, order=True):
    """One port of an RDMA device, as NCCL lists it."""

    name: str
    port: int
    link: str  # IB or RoCE


# --- events: one line each --------------------------------------------------------------------------------


class Network(msgspec.Struct, frozen=True):
    """`Using network NAME`: what a process chose for all traffic between nodes."""

    name: str


class Devices(msgspec.Struct, frozen=True):
    """`NET/IB : Using ...`: position is NCCL's device number; more than one where ports are merged."""

    devices: tuple[tuple[Hca, ...], ...]


class Virtual(msgspec.Struct, frozen=True):
    """`Made virtual device [N] name=A+B`: a device that stands for several."""

    number: int
    names: tuple[str, ...]


class Provider(msgspec.Struct, frozen=True):
    """`NET/OFI Selected provider is efa ... (found N nics)`: libfabric's choice; 0 where it does not count."""

    name: str
    nics: int


class Channel(msgspec.Struct, frozen=True):
    """`Channel ... via NET/NAME/DEVICE`: a connection to another node. `rank` is the speaker's, -1 unknown."""

    network: str
    device: int
    direct: bool  # GPUDirect RDMA
    collective: bool  # by the switches: COLLNET, whose name is that of the plugin
    rank: int = -1


class Member(msgspec.Struct, frozen=True):
    """A process is a rank of a communicator."""

    rank: int
    ranks: int


class Sockets(msgspec.Struct, frozen=True):
    """`NET/Socket : Using ...`: the interfaces TCP would take. Told also where TCP is not used."""

    interfaces: tuple[str, ...]


class Reason(msgspec.Struct, frozen=True):
    """Why RDMA could not be had, in our words."""

    words: str


class Failure(msgspec.Struct, frozen=True):
    """RDMA was set up and broke: NCCL's warning."""

    words: str


class Release(msgspec.Struct, frozen=True):
    """`NCCL version X`."""

    version: str


Event = Network | Devices | Virtual | Provider | Channel | Member | Sockets | Reason | Failure | Release


# --- what is answered -------------------------------------------------------------------------------------


class Expected(msgspec.Struct, frozen=True):
    """What should be seen. `rails` None: as many as the pod that opened the most."""

    rails: int | None = None
    transport: str = ""  # of the policy; "" where nobody said
    devices: tuple[tuple[str, ...], ...] = ()  # of each rail, what it is called on the node types


class Pod(msgspec.Struct, frozen=True):
    """What one pod used. Names are those of the pods where the log tells them, else of the hosts."""

    name: str
    state: str
    ranks: tuple[int, ...]
    network: tuple[str, ...]  # as NCCL calls it
    transport: str  # as people call it
    opened: tuple[str, ...]  # devices that NCCL found
    used: tuple[str, ...]  # devices that a channel went over
    rails: int | None  # how many rails carried RDMA
    missing: tuple[str, ...]  # rails or devices that did not, where they can be named
    channels: int
    channels_direct: int
    interfaces: tuple[str, ...]  # that TCP would take, or took
    why: tuple[str, ...]


class Verdict(msgspec.Struct, frozen=True):
    """The answer."""

    state: str
    line: str
    rails: int | None  # that each pod should have used
    pods: tuple[Pod, ...]
    ranks: int | None
    ranks_seen: int
    version: tuple[str, ...]
    busbw_average: float | None  # GB/s, as nccl-tests prints it
    busbw_peak: float | None
    why: tuple[str, ...]
