"""Memory of gangs between decisions: an immutable value that goes into a decision and comes out changed.

Everything else in a decision follows from the request, the cluster state and the assumed pods. The memory is small and
not persisted. Without it, after a restart, a gang that is being placed may get a plan with more bandwidth than its
placed peers can use, and two gangs that are placed at the same time may share a leaf that one could have had alone.
"""

from collections.abc import Mapping, Sequence

import msgspec

from railwright.fabric import topology
from railwright.fabric.placement.nodes import node_slots
from railwright.fabric.placement.state import gang_status
from railwright.fabric.workloads import membership

_MAX_GANGS = 64  # most recently planned gangs; schedulers place one gang after the other
_MAX_DECISIONS = 256  # on other pods, after which a gang that has begun loses its prior right: it cannot grow now

ReservedNodes = Mapping[topology.Domain, int]
"""Leaf -> number of its nodes that are reserved for a gang."""


class GangMemory(msgspec.Struct, frozen=True):
    """Memory of one gang after the last decision on it."""

    placed: int  # number of peers placed when the last plan was made
    bandwidth_of_placed: node_slots.Bandwidth  # planned bandwidth of these peers
    planned_bandwidth: node_slots.Bandwidth  # planned bandwidth of the others
    reserved: ReservedNodes = {}  # for its unplaced pods; the leaf of the pod of the last decision comes last
    devices: frozenset[str] = frozenset()  # resources of the rails, or else accelerators, that its pods take
    decision: int = 0  # number of this decision

    def get_bandwidth_of_placed(self, gang: gang_status.GangStatus) -> node_slots.Bandwidth:
        """Return the planned bandwidth of the placed peers; 1 if none is placed.

        A plan's bandwidth limits the gang only after a pod has been placed by this plan.
        """
        if not gang.placed:
            return 1.0
        if len(gang.placed) > self.placed:
            return min(self.bandwidth_of_placed, self.planned_bandwidth)
        return self.bandwidth_of_placed


_UNKNOWN = GangMemory(placed=0, bandwidth_of_placed=1.0, planned_bandwidth=1.0)


class PlacementMemory(msgspec.Struct, frozen=True):
    """Memory of the most recently planned gangs."""

    gangs: Mapping[membership.GangKey, GangMemory] = {}  # least recently planned first
    decisions: int = 0

    def get(self, gang: membership.GangKey) -> GangMemory:
        """Return the memory of a gang."""
        return self.gangs.get(gang, _UNKNOWN)

    def record(self, key: membership.GangKey, planned: GangMemory | None) -> "PlacementMemory":
        """Return the memory after a decision on a gang. None: it has no complete plan, and its reservation ends."""
        number = self.decisions + 1
        if not key or planned is None:
            return msgspec.structs.replace(self.drop_reservations([key]), decisions=number)
        gangs = {other: memory for other, memory in self.gangs.items() if other != key}
        if len(gangs) >= _MAX_GANGS:
            del gangs[next(iter(gangs))]
        return PlacementMemory({**gangs, key: msgspec.structs.replace(planned, decision=number)}, number)

    def is_recent(self, gang: GangMemory) -> bool:
        """True if a gang was decided on lately."""
        return self.decisions - gang.decision <= _MAX_DECISIONS

    def drop_reservations(self, keys: Sequence[membership.GangKey]) -> "PlacementMemory":
        """Return the memory without the reservations of these gangs."""
        dropped = {
            key: msgspec.structs.replace(self.gangs[key], reserved={})
            for key in keys
            if key in self.gangs and self.gangs[key].reserved
        }
        return msgspec.structs.replace(self, gangs={**self.gangs, **dropped}) if dropped else self


EMPTY = PlacementMemory()
