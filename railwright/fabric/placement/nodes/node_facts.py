"""The state of a node that determines its evaluation for one scheduling signature."""

from typing import NamedTuple

import msgspec

from railwright.fabric import intent
from railwright.fabric.claims import pair_counts
from railwright.fabric.placement.nodes import numa
from railwright.fabric.reasons import reason

MAX_SLOTS_PER_NODE = 64  # upper limit for the slots of one node; a larger number counts as this


class NodeFacts(NamedTuple):
    """Node state that determines its evaluation. Amounts in milli-units, in the order of the signature's `devices`."""

    eligible: bool
    shape: str
    fits_by_other_resources: int  # pods that fit by CPU, memory and number of pods, at most MAX_SLOTS_PER_NODE
    free: tuple[int, ...]
    allocatable: tuple[int, ...]
    capacity: tuple[int, ...]
    # used by peers of the requesting pod, which share its NICs; includes rails they use without requesting them
    peer_usage: tuple[int, ...]
    zones: numa.Zones
    allocatable_zones: numa.Zones  # allocatable, as if no pod ran on the node
    admission_error: reason.Reason | None  # kubelet's admission error for such a pod
    is_never_admissible: bool  # kubelet would reject the pod even on the empty node
    used_elsewhere: tuple[
        int, ...
    ] = ()  # taken by assumed pods of other schedulers, not in `free`; () if there are none
    pairs: pair_counts.FreePairs = pair_counts.UNLIMITED  # of the pod's claims; UNLIMITED if other amounts say more


class PoolAvailability(msgspec.Struct, frozen=True):
    """Availability of one device pool on a node. Amounts in milli-units."""

    need: intent.Need
    free: int
    allocatable: int
    capacity: int

    @property
    def is_sufficient(self) -> bool:
        """True if enough devices are free."""
        return self.free >= self.need.amount

    @property
    def is_possible(self) -> bool:
        """True if the node has enough allocatable devices; otherwise waiting does not help."""
        return self.allocatable >= self.need.amount > 0

    @property
    def is_healthy(self) -> bool:
        """True if all devices of the plugin are allocatable."""
        return self.allocatable >= self.capacity
