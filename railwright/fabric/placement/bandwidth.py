"""Models the bus bandwidth of a gang, as a share (0..1) of its bandwidth in the best placement on an empty cluster.

The constants are documented with their sources. Results are always labelled as modelled, because none is measured.
"""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from railwright.fabric import topology

FULL = 0.995
"""A higher bandwidth is reported as full, because two decimals round it to 1.00."""

MISALIGNED = 0.63
"""Bandwidth of a rail on another NUMA node than its GPU, relative to one on the same node: 29.68 of 46.93 GB/s,
all-reduce of 8 GB between two a4-highgpu-8g (google/dranet, "Kubernetes Network Driver Model"). GB300 has 0.45; this is
the more optimistic value."""

DEGRADED = 0.5
"""Bandwidth of a rail of which some devices are unhealthy (allocatable below capacity), relative to a healthy rail.
No measurement is known: this is the mean of a healthy and an absent rail."""


class Uplinks(msgspec.Struct, frozen=True):
    """The uplinks of a fabric's domains, as a gang uses them."""

    domain_sizes: Mapping[topology.Domain, int]  # number of nodes of each domain, free or not
    oversubscription: Sequence[float]  # of the uplinks of a leaf, of its parent, and so on
    links_per_rail: float = 1.0  # uplinks for each rail that the gang uses

    def get_oversubscription(self, level: int) -> float:
        """Return the oversubscription of the uplinks of domains at a level (0: leaves); 1 if the policy has none."""
        return self.oversubscription[level] if level < len(self.oversubscription) else 1.0

    def compute_bandwidth(self, domain: topology.Domain, level: int, crossings: int = 1) -> float:
        """Return the bandwidth, 0..1, of each of `crossings` ring edges out of a domain; 1 if it has no label.

        A domain of n nodes has n/oversubscription uplinks for each rail. At 7:1 a leaf of eight nodes carries one
        crossing at full bandwidth, a leaf of one node at a seventh.
        """
        ratio = self.get_oversubscription(level)
        if ratio <= 1 or not domain or not domain[0]:
            return 1.0
        return min(1.0, self.domain_sizes.get(domain, 1) * self.links_per_rail / (ratio * max(1, crossings)))

    def select_fast_domains(
        self, domains: Collection[topology.Domain], level: int, *, least: float
    ) -> Collection[topology.Domain]:
        """Return the domains whose uplinks give one ring edge a bandwidth of at least `least`."""
        if self.get_oversubscription(level) <= 1:
            return domains
        return {domain for domain in domains if self.compute_bandwidth(domain, level) >= least}
