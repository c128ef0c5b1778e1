"""Keeps a gang in one domain of `placement.boundary`, because only the nodes of one reach each other over the rails.

The planner crosses a boundary only if no domain can hold the gang, because it models no uplinks there. The filter then
refuses every node, so that the gang waits as a whole.
"""

from collections import Counter
from collections.abc import Callable, Mapping

import msgspec

from railwright.fabric import topology
from railwright.fabric.placement import scheduling_request
from railwright.fabric.placement.state import gang_status
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import Code


class Boundary(msgspec.Struct, frozen=True):
    """The domains of the boundary, as one pod of a gang sees them."""

    level: int
    home: topology.Domain  # of the placed pods; NO_DOMAIN if there are none
    pods: int  # that are not placed, as slots
    slots: Mapping[topology.Domain, int]

    def find_refusal(self, leaf: topology.Domain) -> reason.Reason | None:
        """Return why the requesting pod may not go to a leaf; None if it may."""
        domain = topology.get_domain(leaf, self.level)
        name = topology.format_domain(domain)
        if self.home:
            if domain == self.home:
                return None
            return reason.make(Code.BOUNDARY_ELSEWHERE, home=topology.format_domain(self.home), domain=name)
        free = self.slots.get(domain, 0) if domain else 0
        if free >= self.pods:
            return None
        return reason.make(Code.BOUNDARY_TOO_SMALL, pods=self.pods, free=free, domain=name)


def find_boundary(
    request: scheduling_request.SchedulingRequest,
    gang: gang_status.GangStatus,
    slots_by_leaf: Mapping[topology.Domain, int],
    get_leaf: Callable[[str], topology.Domain],
) -> Boundary | None:
    """Return the boundary for a pod of a gang; None without one, for a single pod, and for one without devices."""
    key = request.fabric.placement.boundary
    if key is None or gang.size == 1 or request.devices.isdisjoint(request.requests):
        return None
    level = request.domains.index(key)
    slots: Counter[topology.Domain] = Counter()
    for leaf, count in slots_by_leaf.items():
        slots[topology.get_domain(leaf, level)] += count
    homes = [topology.get_domain(get_leaf(peer.node), level) for peer in gang.placed_workers]
    return Boundary(level, next(filter(None, homes), topology.NO_DOMAIN), gang.remaining_slots, slots)
