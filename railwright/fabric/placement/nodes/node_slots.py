"""The slots of a node for pods of one gang: how many there are, and the modelled bandwidth of each."""

import functools
from collections.abc import Sequence

import msgspec

Bandwidth = float
"""Modelled bandwidth, 0..1."""

ALL_RAILS = -1  # as a bit mask
TOLERANCE = 1e-9  # two sums of the same shares may differ in the last bit


class NodeCapacity(msgspec.Struct, frozen=True, cache_hash=True):
    """Capacity and quality of the nodes of one class, for pods of this gang."""

    shape: str
    rails: int  # bit mask of the requested rails that have bandwidth left
    shares: tuple[float, ...]  # bandwidth of each requested rail for one more pod, as a share of all requested rails
    # one item per slot, best first: 1 if GPUs and NICs share a NUMA node, else less
    slot_numa_factors: tuple[float, ...]
    is_idle: bool  # no accelerator or rail of the node is in use
    unsplit_slots: int = 1 << 30  # number of slots that use no more NUMA nodes than necessary
    # `shares` with 2, 3, ... more pods; () if each pod has its own NICs
    crowded_shares: tuple[tuple[float, ...], ...] = ()

    def compute_bandwidth(self, rails: int, pods: int = 1) -> Bandwidth:
        """Return the bandwidth of each of `pods` further pods over these rails, if aligned; 1 without rails."""
        shares = self.crowded_shares[pods - 2] if self.crowded_shares and pods > 1 else self.shares
        return sum_shares(shares, rails)

    @property
    def fill_priority(self) -> int:
        """Return the fill order in a leaf, lower first: partly used nodes, idle nodes, nodes that would split NUMA."""
        return 2 * (self.unsplit_slots <= 0) + self.is_idle


def sum_shares(shares: Sequence[Bandwidth], rails: int) -> Bandwidth:
    """Return the bandwidth over these rails, given the share of each requested rail; 1 without rails."""
    return sum(share for bit, share in enumerate(shares) if rails >> bit & 1) if shares else 1.0


def count(node_capacity: NodeCapacity, rails: int, min_bandwidth: Bandwidth) -> int:
    """Return the number of slots on a node at this bandwidth or more, over these rails."""
    if node_capacity.rails & rails != rails:
        return 0
    least = min_bandwidth - TOLERANCE
    bandwidths = list_bandwidths(node_capacity, rails)
    for slot, value in enumerate(bandwidths):  # best first
        if value < least:
            return slot
    return len(bandwidths)


@functools.lru_cache(maxsize=4096)  # a plan asks some twenty times for those of a few classes
def list_bandwidths(node_capacity: NodeCapacity, rails: int) -> Sequence[Bandwidth]:
    """Return the bandwidth per pod with 1, 2, ... further pods on a node. They share its NICs: the slowest counts."""
    factors = enumerate(node_capacity.slot_numa_factors, 1)
    return tuple([factor * node_capacity.compute_bandwidth(rails, pods) for pods, factor in factors])
