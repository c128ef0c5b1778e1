"""Defines what the pods of a job should use, and the report, which is the JSON of `railwright verify log`."""

import msgspec

RDMA, PARTIAL, FAILED, TCP, UNKNOWN = "rdma", "partial", "failed", "tcp", "unknown"
"""RDMA on every rail; RDMA on some rails; RDMA that failed or gave wrong results; sockets; unknown."""


class Expected(msgspec.Struct, frozen=True):
    """The expected content of the logs of a pod. `rails` is None if it is not known how many rails the pod has."""

    rails: int | None = None
    transport: str = ""  # of the policy; "" if there is no policy
    devices: tuple[tuple[str, ...], ...] = ()  # of each rail: its device name on each node shape
    names: tuple[str, ...] = ()  # of the rails
    own_list: str = ""  # the author's own list of devices, as NAME 'VALUE'


class Pod(msgspec.Struct, frozen=True, kw_only=True):
    """The rails and devices that one pod used. `name` is the pod's where the log contains it, otherwise the host's."""

    name: str
    state: str
    ranks: tuple[int, ...]
    network: tuple[str, ...]  # NCCL's name
    transport: str  # common name
    opened: tuple[str, ...]  # ports that NCCL found
    used: tuple[str, ...]  # ports with at least one channel
    rails: int | None  # number of rails that carried RDMA
    missing: tuple[str, ...] = ()  # rails or ports that carried no RDMA; () if their names are unknown
    channels: int
    channels_direct: int
    interfaces: tuple[str, ...]  # that TCP used or would use
    why: tuple[str, ...] = ()


class Rail(msgspec.Struct, frozen=True):
    """The verdict for a rail of the job: `rdma`, `tcp` if a pod did not use it, or `unknown`."""

    name: str
    state: str
    devices: tuple[str, ...]  # its names in the pods, as far as they are known
    used: tuple[str, ...]  # pods
    unused: tuple[str, ...]
    unknown: tuple[str, ...]


class Report(msgspec.Struct, frozen=True):
    """The assessment of a whole job."""

    state: str
    line: str
    rails: int | None  # number that each pod should have used; None if unknown
    pods: tuple[Pod, ...]
    ranks: int | None
    ranks_seen: int
    version: tuple[str, ...]
    busbw_average: float | None  # GB/s, as nccl-tests prints it
    busbw_peak: float | None
    why: tuple[str, ...]
    by_rail: tuple[Rail, ...] = ()  # rails that the policy or the pods' records name
