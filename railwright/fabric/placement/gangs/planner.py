"""Chooses the leaves for the unplaced pods of a gang: most modelled bandwidth first, then fewest and tightest leaves.

A gang is as fast as its slowest pod, so bandwidth is a threshold. The planner takes the highest threshold at which the
nodes that reach it, in domains with uplinks that reach it, can hold the gang. At that threshold it prefers, in this
order: one node shape (that of the placed peers, if any), the fewest leaves, the fewest spines, closest to the peers,
the most rails, the tightest leaves. A gang uses the rails that all its nodes have, so each set of rails is planned
on its own; the placed peers have less bandwidth if the gang gives up a rail. The input is the capacity of each
leaf (`GangCapacity`); pods, node names and scores do not occur here. The planner is a pure function and runs for each
pod.

For example, a gang of 7 pods that each take a node with 4 rails. Uplinks are oversubscribed 4:1, so a leaf of n nodes
carries n/4 of a pod's bandwidth to other leaves. Leaf a has 6 nodes, 4 of them free, and one rail of one of these is
degraded: 3.5 of 4 rails. Leaf b has 4 nodes, 3 free. Leaf c has 2 nodes, both free:

| step | a | b | c | result |
|---|---|---|---|---|
| bandwidths of free nodes | 1, 1, 1, 0.875 | 1, 1, 1 | 1, 1 | thresholds 1 and 0.875 |
| bandwidth of the uplinks | 6/4: all of it | 4/4: all of it | 2/4 = 0.5 | another threshold: 0.5 |
| slots at 1 (the highest) | 3 | 3 | none: its uplinks carry less | 6 of 7: does not fit |
| slots at 0.5 (the lowest) | 4 | 3 | 2 | 9: fits, so a higher one is searched for |
| slots at 0.875 (between) | 4 | 3 | none | 7: fits. This is the gang's bandwidth |
| fewest leaves at 0.875 | first | second | | the largest have 4 and 3 slots: both are needed |
| ranks (`rank_order`) | 0 to 3 | 4 to 6 | | neighbours on one leaf, one ring edge out of each |
"""

import bisect
import functools
import itertools
import operator
from collections.abc import Collection, Mapping, Sequence

import msgspec

from railwright.fabric import topology
from railwright.fabric.placement.gangs import gang_capacity, leaf_selection
from railwright.fabric.placement.nodes import node_evaluation

# --- one set of common rails ----------------------------------------------------------------------------------


class RailSetPlanner:
    """Finds bandwidth and leaves for a gang that uses one set of common rails."""

    def __init__(  # noqa: PLR0913, PLR0917 - one argument a fact
        self,
        remaining: int,
        capacity: gang_capacity.GangCapacity,
        peer_leaves: tuple[topology.Domain, ...],
        rails: int,
        bandwidth_limit: node_evaluation.Bandwidth,
        next_leaf: topology.Domain | None,
    ) -> None:
        self._next_leaf = next_leaf
        self._remaining = remaining
        self._capacity = capacity
        self._peer_leaves = peer_leaves
        self.rails = rails
        self._leaf_requests: dict[tuple[node_evaluation.Bandwidth, str | None], leaf_selection.LeafRequest] = {}
        self._oversubscribed = any(ratio > 1 for ratio in capacity.uplinks.oversubscription)
        nodes = [node_class.capacity for node_class in capacity.classes]
        self._values = {  # bandwidths of the slots of all nodes that have these rails
            min(value, bandwidth_limit)
            for node in nodes
            if node.rails & rails == rails and node.slot_numa_factors
            for value in node_evaluation.list_bandwidths(node, rails)
        }
        self.max_bandwidth = max(self._values, default=0.0)

    def find_highest_bandwidth(self) -> node_evaluation.Bandwidth | None:
        """Return the highest bandwidth at which the gang fits on labelled leaves, or None if it does not fit."""
        if self.max_bandwidth > 0.0 and self._fits(self.max_bandwidth):  # most gangs: no uplink limits them
            return self.max_bandwidth
        values = sorted({*self._values, *self._list_uplink_bandwidths()}, reverse=True)
        values = [value for value in values if 0.0 < value <= self.max_bandwidth + node_evaluation.TOLERANCE] or [0.0]
        if not self._fits(values[-1]):
            return None
        return values[bisect.bisect_left(values, x=True, key=self._fits)]  # what fits at a value fits at lower ones

    def reaches(self, min_bandwidth: node_evaluation.Bandwidth) -> bool:
        """True if the gang fits on labelled leaves at `min_bandwidth`."""
        return self.max_bandwidth >= min_bandwidth - node_evaluation.TOLERANCE and self._fits(min_bandwidth)

    def choose(
        self, min_bandwidth: node_evaluation.Bandwidth, peer_shapes: Collection[str]
    ) -> tuple[leaf_selection.LeafChoice, str | None]:
        """Return leaves and node shape at a bandwidth at which the gang fits.

        The shape is None if all nodes have one, or one shape cannot hold the unplaced pods. `peer_shapes` are the node
        shapes of the placed peers.
        """
        capacities = [node_class.capacity for node_class in self._capacity.classes]
        shapes = sorted({capacity.shape for capacity in capacities if capacity.slot_numa_factors})
        if shapes and len(peer_shapes) <= 1 and len({*shapes, *peer_shapes}) > 1:
            choices = [(self._choose_for_shape(min_bandwidth, shape), shape) for shape in peer_shapes or shapes]
            if possible := [(choice, shape) for choice, shape in choices if choice is not None]:
                return min(possible, key=lambda row: (row[0].cost, row[0].leaves))
        mixed = self._choose_for_shape(min_bandwidth, None)
        assert mixed is not None, "`find_highest_bandwidth` has shown that it fits"  # noqa: S101 - for the type checker
        return mixed, None

    def _choose_for_shape(
        self, min_bandwidth: node_evaluation.Bandwidth, shape: str | None
    ) -> leaf_selection.LeafChoice | None:
        used = self._capacity.count_slots(self.rails, min_bandwidth, shape, only_used=True)
        return leaf_selection.choose_leaves(self._get_leaf_request(min_bandwidth, shape), used)

    def _fits(self, min_bandwidth: node_evaluation.Bandwidth) -> bool:
        return self._get_leaf_request(min_bandwidth, None).fits

    def _get_leaf_request(
        self, min_bandwidth: node_evaluation.Bandwidth, shape: str | None
    ) -> leaf_selection.LeafRequest:
        """Return the leaf request at `min_bandwidth`. It is cached, because the final one is read twice."""
        if (request := self._leaf_requests.get((min_bandwidth, shape))) is not None:
            return request
        least = min_bandwidth - node_evaluation.TOLERANCE
        slots_by_leaf = self._capacity.count_slots(self.rails, min_bandwidth, shape)
        slots_by_leaf.pop(topology.NO_DOMAIN, None)
        select_carrying = functools.partial(self._capacity.uplinks.select_carrying, least=least)
        request = self._leaf_requests[min_bandwidth, shape] = leaf_selection.LeafRequest(
            remaining=self._remaining,
            slots=slots_by_leaf,
            peer_leaves=self._peer_leaves,
            next_leaf=self._next_leaf,
            select_carrying=select_carrying if self._oversubscribed else None,
        )
        return request

    def _list_uplink_bandwidths(self) -> set[node_evaluation.Bandwidth]:
        """Return the possible bandwidths of single uplink crossings; empty if the fabric is not oversubscribed."""
        if not self._oversubscribed:
            return set()
        depth = max((len(leaf) for leaf in self._capacity.nodes), default=0)
        return {
            self._capacity.uplinks.compute_bandwidth(leaf[level:], level)
            for leaf in (*self._capacity.nodes, *self._peer_leaves)
            if leaf != topology.NO_DOMAIN
            for level in range(depth)
        }


# --- all sets -------------------------------------------------------------------------------------------------

_MAX_RAIL_SETS = 32  # sets of common rails that are tried; more exist only if many nodes lack different rails


class Plan(msgspec.Struct, frozen=True):
    """The leaves to fill, in order, with the modelled bandwidth."""

    slots_by_leaf: Mapping[topology.Domain, int]  # slots of each planned leaf at this bandwidth, in the order to fill
    bandwidth: node_evaluation.Bandwidth  # modelled, of the slowest pod or uplink crossing
    is_complete: bool  # False: the cluster has too few slots for the unplaced pods
    rails: int  # bit mask of the rails that every pod has
    shape: str | None = None  # the only node shape used; None if all nodes have one shape, or one shape cannot hold all

    @property
    def leaves(self) -> tuple[topology.Domain, ...]:
        """Return the leaves, in the order to fill them."""
        return tuple(self.slots_by_leaf)

    @property
    def node_type(self) -> str:
        """Return the name of the node shape for messages."""
        return f"type {self.shape}" if self.shape else "unknown type"

    def uses_shape_of(self, node_capacity: node_evaluation.NodeCapacity) -> bool:
        """True if the plan uses nodes of this shape."""
        return self.shape is None or node_capacity.shape == self.shape

    def is_met_by(self, node_capacity: node_evaluation.NodeCapacity) -> bool:
        """True if a node with this capacity reaches the plan's bandwidth."""
        return self.uses_shape_of(node_capacity) and node_capacity.count_slots(self.rails, self.bandwidth) > 0


NO_PLAN = Plan(slots_by_leaf={}, bandwidth=0.0, is_complete=False, rails=0)


class PlacedPeers(msgspec.Struct, frozen=True):
    """Summary of the placed peers."""

    leaves: Sequence[topology.Domain] = ()  # nearest in rank first
    ring: Sequence[topology.Domain] = ()  # one for each peer, by rank
    next_leaf: topology.Domain | None = None  # leaf of the next peer in rank order; None if there is none
    bandwidth: node_evaluation.Bandwidth = 1.0  # planned for them; better nodes than that do not make the gang faster
    shapes: Collection[str] = ()  # of their nodes; one shape is preferred for the rest, several shapes are ignored
    rails: int = node_evaluation.ALL_RAILS  # bit mask of the rails that all of them have; the gang cannot use others
    # their bandwidth by rail, as a share of all requested rails; one item for each different node
    rail_shares: Collection[tuple[node_evaluation.Bandwidth, ...]] = ()

    def limit_bandwidth(self, rails: int) -> node_evaluation.Bandwidth:
        """Return the bandwidth of the slowest placed peer, if the gang uses these rails only."""
        return min([self.bandwidth, *(node_evaluation.sum_shares(shares, rails) for shares in self.rail_shares)])


NO_PEERS = PlacedPeers()


def solve(remaining: int, capacity: gang_capacity.GangCapacity, peers: PlacedPeers = NO_PEERS) -> Plan:
    """Return the plan for `remaining` unplaced pods."""
    peer_leaves = tuple(leaf for leaf in dict.fromkeys(peers.leaves) if leaf != topology.NO_DOMAIN)
    # What the placed peers cannot exceed is no reason to take better nodes for the rest, which other gangs could use.
    crossing_limit = _limit_by_crossings(peer_leaves, capacity)
    planners = [
        RailSetPlanner(
            remaining,
            capacity,
            peer_leaves,
            common,
            min(crossing_limit, peers.limit_bandwidth(common)),
            peers.next_leaf,
        )
        for common in _list_rail_sets(capacity, peers.rails)
    ]
    highest = _find_highest_bandwidth(planners)
    if highest is None:
        return _build_incomplete_plan(remaining, capacity, peer_leaves)
    candidates = planners if len(planners) == 1 else [planner for planner in planners if planner.reaches(highest)]
    # Leaves are chosen for each set of rails that reaches this bandwidth: with fewer rails more nodes qualify.
    choices = [(planner, *planner.choose(highest, peers.shapes)) for planner in candidates]
    # One shape outweighs fewer leaves. Slots are left out: a node has other slots with other rails. On ties the first,
    # which has the most rails.
    planner, chosen, shape = min(choices, key=lambda row: (row[2] is None, row[1].cost.domains))
    return Plan(
        slots_by_leaf=chosen.slots_by_leaf,
        bandwidth=highest,
        is_complete=True,
        rails=planner.rails,
        shape=shape,
    )


def _find_highest_bandwidth(planners: Sequence[RailSetPlanner]) -> node_evaluation.Bandwidth | None:
    """Return the highest bandwidth at which the gang fits with any of these rail sets, or None if it does not fit."""
    highest: node_evaluation.Bandwidth | None = None
    for planner in planners:
        if highest is not None and planner.max_bandwidth <= highest + node_evaluation.TOLERANCE:
            continue
        reached = planner.find_highest_bandwidth()
        if reached is not None and (highest is None or reached > highest + node_evaluation.TOLERANCE):
            highest = reached
    return highest


def _limit_by_crossings(
    peer_leaves: Sequence[topology.Domain], capacity: gang_capacity.GangCapacity
) -> node_evaluation.Bandwidth:
    """Return the bandwidth of the uplinks between the leaves of placed peers. The ring of every plan crosses them."""
    worst = 1.0
    for level in range(max(map(len, peer_leaves), default=0)):
        domains = {leaf[level:] for leaf in peer_leaves}
        if len(domains) > 1:
            worst = min(worst, *(capacity.uplinks.compute_bandwidth(domain, level) for domain in domains))
    return worst


def _build_incomplete_plan(
    remaining: int, capacity: gang_capacity.GangCapacity, peer_leaves: Sequence[topology.Domain]
) -> Plan:
    """Return a plan with all leaves, the peers' leaves first.

    Used if there are too few slots, or only on nodes without a leaf label.
    """
    slots_by_leaf = capacity.count_slots()
    fresh = sorted(
        slots_by_leaf.keys() - set(peer_leaves),
        key=lambda leaf: (leaf == topology.NO_DOMAIN, -slots_by_leaf[leaf], leaf),
    )
    ordered = {leaf: slots_by_leaf[leaf] for leaf in (*peer_leaves, *fresh) if leaf in slots_by_leaf}
    is_complete = sum(slots_by_leaf.values()) >= remaining
    return msgspec.structs.replace(NO_PLAN, slots_by_leaf=ordered, is_complete=is_complete)


def count_min_leaves(
    remaining: int, capacity: gang_capacity.GangCapacity, peer_leaves: Collection[topology.Domain] = ()
) -> int:
    """Return how many leaves the unplaced pods need at least, at any bandwidth; with `peer_leaves`, the whole gang."""
    slots_by_leaf, labelled = capacity.count_slots(), set(peer_leaves) - {topology.NO_DOMAIN}
    remaining -= sum(slots_by_leaf.pop(leaf, 0) for leaf in labelled)
    left = itertools.accumulate(sorted(slots_by_leaf.values(), reverse=True), operator.sub, initial=remaining)
    return len(labelled) + min(sum(1 for pods in left if pods > 0), len(slots_by_leaf))


def _list_rail_sets(capacity: gang_capacity.GangCapacity, rails: int) -> Sequence[int]:
    """Return the subsets of `rails` that a gang may have in common, as bit masks, the largest first.

    If there are too many, return the largest ones, and the common rails of more and more nodes. The last one is the set
    of rails that all nodes have, so every gang that fits has a feasible set.
    """
    of_classes = {
        node_class.capacity.rails & rails for node_class in capacity.classes if node_class.capacity.slot_numa_factors
    }
    if len(of_classes) <= 1:
        return list(of_classes)
    masks: dict[int, int] = {}  # rails of nodes -> their slots; classes without current nodes are ignored
    for counts in capacity.nodes.values():
        for node_class, nodes in counts.items():
            if slots := nodes * len(node_class.capacity.slot_numa_factors):
                mask = node_class.capacity.rails & rails
                masks[mask] = masks.get(mask, 0) + slots
    closed = set(masks)
    for mask in sorted(masks, key=int.bit_count, reverse=True):
        closed |= {mask & other for other in closed}
        if len(closed) > _MAX_RAIL_SETS:
            common = itertools.accumulate(
                sorted(masks, key=lambda rail_mask: (-masks[rail_mask], -rail_mask)), operator.and_
            )
            most = sorted({*masks, *closed}, key=int.bit_count, reverse=True)[:_MAX_RAIL_SETS]
            return sorted({*most, *common}, key=int.bit_count, reverse=True)
    return sorted(closed, key=int.bit_count, reverse=True)
