"""What a score term may look at: how one node and the gang stand, worked out once for all terms."""

from collections.abc import Mapping, Sequence

import msgspec

from fabric import resources, topology
from fabric.placement import rails

HOLDERS_NAMED = 5  # of a shared pool's holders, of whom a node may have a hundred


class RailStanding(msgspec.Struct, frozen=True):
    """One pool the pod needs, on one node. Amounts in milli-units."""

    need: rails.Need
    free: int
    allocatable: int
    capacity: int
    holders: tuple[str, ...]  # pods that hold devices of the pool, namespace/name; one more than named: there are more

    @property
    def sufficient(self) -> bool:
        """True when the devices are free now."""
        return self.free >= self.need.amount

    @property
    def possible(self) -> bool:
        """True when the node could ever give them: otherwise waiting does not help."""
        return self.allocatable >= self.need.amount > 0

    @property
    def healthy(self) -> bool:
        """True when the device plugin offers all it has."""
        return self.allocatable >= self.capacity


class Standing(msgspec.Struct, frozen=True):
    """One node, for one ask."""

    name: str
    place: topology.Place
    free: resources.Amounts
    allocatable: resources.Amounts
    packed: resources.Amounts  # the accelerators and pool devices the pod takes
    rails: tuple[RailStanding, ...]


class GangStanding(msgspec.Struct, frozen=True):
    """The gang, for one ask."""

    remaining: int  # pods still to place that the plan counts
    mates: Sequence[topology.Domain]  # leaves of the placed mates, the nearest in rank first
    rooms: Mapping[topology.Domain, int]
    plan: tuple[topology.Domain, ...]  # leaves to fill, in order
