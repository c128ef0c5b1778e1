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
    others: int  # pods that use the same NIC besides this one, of its own gang too
    healthy: bool = True


def rail(use: RailUse) -> float:
    """What one rail gives, 0..1, of a NIC to itself beside its GPUs.

    A NIC between g pods gives each 1/g (measured pair: 0.62 of two NICs, llm-d blog 2026-08-20). Pods of one gang are
    no exception: NCCL takes pods with host names of their own for different hosts, so what they send each other passes
    the NIC as well.
    """
    return (1.0 if use.aligned else MISALIGNED) * (1.0 if use.healthy else DEGRADED) / (1 + use.others)


def uplink(nodes: int, oversubscription: float, crossings: int = 1, links: float = 1.0) -> float:
    """What a ring edge that leaves a domain of so many nodes can carry, of what the gang's rails give (0..1).

    A domain of n nodes has n/oversubscription links upwards for each rail; `crossings` of the gang's ring edges share
    them. At 7:1 a leaf of eight carries one crossing whole, a leaf of one node a seventh of it. `links` is how many
    links of a node there are for each one that the gang uses (`links_each`).
    """
    return min(1.0, nodes * links / (max(1.0, oversubscription) * max(1, crossings)))


def links_each(rails: int, used: int, *, bundled: bool) -> float:
    """How many of a node's links upwards each rail of a gang may use, where it uses so many of the fabric's rails.

    Where all rails of a node share the uplinks of one switch, a gang of four rails has those of the other four as well.
    Where each rail has uplinks of its own, it has no others.
    """
    return rails / used if bundled and 0 < used < rails else 1.0
