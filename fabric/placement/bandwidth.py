"""The modelled bus bandwidth of a gang, as a share of what its best placement anywhere could give (0..1).

Owns the constants and their sources (the placement study, section 3.4 of the scheduling notes). It is a model: wherever
its result is shown it is called modelled, never measured. Knows nothing of how a placement was found.
"""

import msgspec

MISALIGNED = 0.63
"""A rail on another NUMA node than its GPU, against one beside it: 29.68 of 46.93 GB/s, all-reduce of 8 GB between two
a4-highgpu-8g (google/dranet, "Kubernetes Network Driver Model"); GB300 gives 0.45, so this is the kinder of two."""

DEGRADED = 0.5
"""A rail whose allocatable is below its capacity: between whole and gone; no measurement is known."""


class RailUse(msgspec.Struct, frozen=True):
    """One rail of one member."""

    aligned: bool  # beside the GPUs it serves
    others: int  # pods of other gangs that hold the same NIC
    healthy: bool = True


def rail(use: RailUse) -> float:
    """What one rail gives, 0..1, of a NIC to itself beside its GPUs.

    A NIC between g pods gives each 1/g (measured pair: 0.62 of two NICs, llm-d blog 2026-08-20).
    """
    return (1.0 if use.aligned else MISALIGNED) * (1.0 if use.healthy else DEGRADED) / (1 + use.others)


def uplink(nodes: int, oversubscription: float, crossings: int = 1) -> float:
    """What a ring edge that leaves a domain of so many nodes can carry, of a link (0..1).

    A domain of n nodes has n/oversubscription links upwards on each rail; `crossings` of the gang's ring edges share
    them. At 7:1 a leaf of eight carries one crossing whole, a leaf of one node a seventh of it.
    """
    return min(1.0, nodes / (max(1.0, oversubscription) * max(1, crossings)))
