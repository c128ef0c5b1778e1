"""The planning problem of a gang for one set of common rails: the highest bandwidth, and the leaves at a bandwidth."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from railwright.fabric import topology
from railwright.fabric.placement import bandwidth
from railwright.fabric.placement.gangs import gang_capacity, leaf_selection
from railwright.fabric.placement.nodes import node_slots


class NodeChoice(NamedTuple):
    """The chosen leaves, and the node shape to use there."""

    leaf_choice: leaf_selection.LeafChoice
    slots_by_leaf: Mapping[topology.Domain, int]
    shape: str | None  # None if all nodes have one shape, or one shape cannot hold the unplaced pods

    @property
    def cost_with_other_rails(self) -> tuple[bool, tuple[int, int, int]]:
        """Return the cost, lower is better, to compare choices of equal bandwidth with different rails.

        One shape outweighs fewer leaves. Slots are left out: a node has other slots with other rails.
        """
        return self.shape is None, self.leaf_choice.cost.domains


class PlanProblem:
    """The planning problem for one set of common rails."""

    def __init__(  # noqa: PLR0913, PLR0917 - one argument a fact
        self,
        remaining: int,
        capacity: gang_capacity.GangCapacity,
        peer_leaves: tuple[topology.Domain, ...],
        rails: int,
        bandwidth_limit: node_slots.Bandwidth,
        next_leaf: topology.Domain | None,
    ) -> None:
        self._next_leaf = next_leaf
        self._remaining = remaining
        self._capacity = capacity
        self._peer_leaves = peer_leaves
        self.rails = rails
        self._oversubscribed = any(ratio > 1 for ratio in capacity.oversubscription)
        self._values = {min(value, bandwidth_limit) for value in _list_bandwidths(capacity, rails)}
        self.max_bandwidth = max(self._values, default=0.0)

    def find_highest_bandwidth(self) -> node_slots.Bandwidth | None:
        """Return the highest bandwidth at which the gang fits on labelled leaves, or None if it does not fit."""
        values = sorted({*self._values, *self._list_uplink_bandwidths()}, reverse=True)
        values = [value for value in values if 0.0 < value <= self.max_bandwidth + node_slots.TOLERANCE] or [0.0]
        if self._fits(values[0]):
            return values[0]
        if not self._fits(values[-1]):
            return None
        low, high = 0, len(values) - 1  # the result is in values[low..high]: what fits at a value fits at lower ones
        while low < high:
            middle = (low + high) // 2
            if self._fits(values[middle]):
                high = middle
            else:
                low = middle + 1
        return values[low]

    def reaches(self, min_bandwidth: node_slots.Bandwidth) -> bool:
        """True if the gang fits on labelled leaves at `min_bandwidth`."""
        return self.max_bandwidth >= min_bandwidth - node_slots.TOLERANCE and self._fits(min_bandwidth)

    def choose(self, min_bandwidth: node_slots.Bandwidth, peer_shapes: Collection[str]) -> NodeChoice:
        """Choose leaves and node shape at a bandwidth at which the gang fits.

        `peer_shapes` are the node shapes of the placed peers.
        """
        shapes = sorted(
            {
                node_class.capacity.shape
                for node_class in self._capacity.classes
                if node_class.capacity.slot_numa_factors
            }
        )
        if len(peer_shapes) > 1 or len({*shapes, *peer_shapes}) == 1:
            shapes = []
        choices = [
            choice
            for shape in peer_shapes or shapes
            if shapes and (choice := self._choose_for_shape(min_bandwidth, shape))
        ]
        if choices:
            return min(choices, key=lambda choice: (choice.leaf_choice.cost, choice.leaf_choice.leaves))
        mixed = self._choose_for_shape(min_bandwidth, None)
        assert mixed is not None, "`find_highest_bandwidth` has shown that it fits"  # noqa: S101 - for the type checker
        return mixed

    def _choose_for_shape(self, min_bandwidth: node_slots.Bandwidth, shape: str | None) -> NodeChoice | None:
        problem = self._build_leaf_problem(min_bandwidth, shape)
        choice = leaf_selection.choose_leaves(problem)
        if choice is None:
            return None
        return NodeChoice(choice, {leaf: problem.slots[leaf] for leaf in choice.leaves}, shape)

    def _fits(self, min_bandwidth: node_slots.Bandwidth) -> bool:
        return leaf_selection.fits(self._build_leaf_problem(min_bandwidth, None, counting_only=True))

    def _build_leaf_problem(
        self, min_bandwidth: node_slots.Bandwidth, shape: str | None, *, counting_only: bool = False
    ) -> leaf_selection.LeafProblem:
        """Build the leaf problem at `min_bandwidth`. With `counting_only`, leave out what only ranks the choices."""
        slots = {
            node_class: node_slots.count(node_class.capacity, self.rails, min_bandwidth)
            if shape is None or node_class.capacity.shape == shape
            else 0
            for node_class in self._capacity.classes
        }
        slots_by_leaf = self._capacity.count_slots(slots)
        slots_by_leaf.pop(topology.NO_DOMAIN, None)
        unsplit_slots = {
            node_class: min(node_class.capacity.unsplit_slots, count) for node_class, count in slots.items()
        }
        slots_on_used_nodes = {
            node_class: 0 if node_class.capacity.is_idle else count for node_class, count in unsplit_slots.items()
        }
        has_splits = not counting_only and unsplit_slots != slots
        has_used_nodes = not counting_only and any(slots_on_used_nodes.values())
        return leaf_selection.LeafProblem(
            remaining=self._remaining,
            slots=slots_by_leaf,
            unsplit_slots=self._capacity.count_slots(unsplit_slots) if has_splits else None,
            slots_on_used_nodes=self._capacity.count_slots(slots_on_used_nodes) if has_used_nodes else {},
            peer_leaves=self._peer_leaves,
            next_leaf=self._next_leaf,
            uplink_carries=(
                lambda domain, level: (
                    get_uplink_bandwidth(self._capacity, domain, level) >= min_bandwidth - node_slots.TOLERANCE
                )
            )
            if self._oversubscribed
            else None,
        )

    def _list_uplink_bandwidths(self) -> set[node_slots.Bandwidth]:
        """Return the possible bandwidths of single uplink crossings; empty if the fabric is not oversubscribed."""
        if not self._oversubscribed:
            return set()
        depth = max((len(leaf) for leaf in self._capacity.nodes), default=0)
        return {
            get_uplink_bandwidth(self._capacity, leaf[level:], level)
            for leaf in (*self._capacity.nodes, *self._peer_leaves)
            if leaf != topology.NO_DOMAIN
            for level in range(depth)
        }


def _list_bandwidths(capacity: gang_capacity.GangCapacity, rails: int) -> set[node_slots.Bandwidth]:
    """Return the bandwidths of all slots of nodes that have these rails."""
    values = set()
    for node_class in capacity.classes:
        node = node_class.capacity
        if node.rails & rails == rails and node.slot_numa_factors:
            values |= set(node_slots.list_bandwidths(node, rails))
    return values


def get_uplink_bandwidth(
    capacity: gang_capacity.GangCapacity, domain: topology.Domain, level: int
) -> node_slots.Bandwidth:
    """Return the bandwidth, 0..1, that the uplinks of a domain carry for one crossing. Level 0 is a leaf."""
    ratios = capacity.oversubscription
    ratio = ratios[level] if level < len(ratios) else 1.0
    return (
        1.0
        if ratio <= 1
        else bandwidth.compute_uplink_bandwidth(
            capacity.domain_sizes.get(domain, 1), ratio, links=capacity.links_per_rail
        )
    )
