"""Finds the rails of a node that are broken.

A rail is broken if the node has devices of it and none is allocatable: the device plugin found them unhealthy, or its
driver tainted them in the ResourceSlice. It is also broken if the node's annotation `railwright.io/broken-rails` names
it, in any fabric. If some devices are allocatable, the rail is only ranked lower, because it is unknown which of
several rails with one resource lacks its device.
"""

from collections.abc import Iterable
from typing import NamedTuple

from railwright.fabric import names
from railwright.fabric.placement.state import object_info
from railwright.fabric.policy import model
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import PlacementCode


class BrokenRail(NamedTuple):
    """A rail that is broken, and why."""

    rail: str
    is_named: bool  # by the annotation

    def describe(self) -> reason.Reason:
        """Return the reason."""
        if self.is_named:
            message = f"the node's annotation {names.BROKEN_RAILS} names {self.rail}"
            return reason.Reason(PlacementCode.RAIL_BROKEN, message)
        return reason.Reason(PlacementCode.RAIL_BROKEN, f"{self.rail} dead or absent")


def may_have_broken(node: object_info.NodeInfo) -> bool:
    """True if an annotation names rails of the node, or no device of one of its extended resources is allocatable."""
    return bool(node.broken_rails) or any(_is_dead(node, name) for name in node.capacity if "/" in name)


def find_broken(node: object_info.NodeInfo, rails: Iterable[model.Rail]) -> tuple[BrokenRail, ...]:
    """Return the broken rails of a node among `rails`."""
    return tuple(
        [
            BrokenRail(rail.name, rail.name in node.broken_rails)
            for rail in rails
            if rail.name in node.broken_rails or (rail.resource and _is_dead(node, rail.resource))
        ]
    )


def _is_dead(node: object_info.NodeInfo, resource: str) -> bool:
    return node.capacity.get(resource, 0) > 0 and node.allocatable.get(resource, 0) <= 0
