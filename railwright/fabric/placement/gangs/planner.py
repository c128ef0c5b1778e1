"""Chooses the leaves for the unplaced pods of a gang: most modelled bandwidth first, then fewest and tightest leaves.

A gang is as fast as its slowest pod, so bandwidth is a threshold. The planner takes the highest threshold at which the
nodes that reach it, in domains with uplinks that reach it, can hold the gang. At that threshold it prefers, in this
order: one node shape (that of the placed peers, if any), the fewest leaves, the fewest spines, closest to the peers,
the tightest leaves. The input is the capacity of each leaf (`GangCapacity`); pods, node names and scores do not occur
here. The planner is a pure function and runs for each pod.

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
from railwright.fabric.placement import bandwidth
from railwright.fabric.placement.gangs import leaf_selection
from railwright.fabric.placement.nodes import node_evaluation, node_index

# --- the capacity of the cluster for one gang -----------------------------------------------------------------

# nodes; an offer of fewer has all feasible ones, a longer one may be a sample (minFeasibleNodesToFind)
MAX_FULL_OFFER = 100


class GangCapacity(msgspec.Struct, frozen=True):
    """The slots that the cluster has for one gang: leaves with classes of nodes."""

    classes: Collection[node_evaluation.NodeClass]
    nodes: Mapping[topology.Domain, Mapping[node_evaluation.NodeClass, int]]  # leaf -> class -> number of nodes
    uplinks: bandwidth.Uplinks
    segment: int = 1  # pods that must share a leaf; slots of a leaf that hold only a part of one do not count
    peers: Mapping[topology.Domain, int] = {}  # leaf -> placed peers, which the first slots of a segment belong to
    rest: int = 0  # unplaced pods of the last segment if it has fewer pods than the others; no other is in `peers`
    rest_leaf: topology.Domain | None = None  # of the placed pods of that segment

    def count_slots(
        self,
        min_bandwidth: node_evaluation.Bandwidth = 0.0,
        shape: str | None = None,
        *,
        only_used: bool = False,
    ) -> dict[topology.Domain, int]:
        """Return the number of slots of each leaf at this bandwidth, on nodes of one shape if given.

        With `only_used`, count only partly used nodes that hold the pod without a split over NUMA nodes.
        """
        slots = {
            node_class: node_class.count_slots(min_bandwidth)
            if (shape is None or node_class.facts.shape == shape) and not (only_used and node_class.fill_priority)
            else 0
            for node_class in self.classes
        }
        return self.sum_slots_by_leaf(slots) if any(slots.values()) else {}

    def sum_slots_by_leaf(self, slots: Mapping[node_evaluation.NodeClass, int]) -> dict[topology.Domain, int]:
        """Return leaf -> number of slots, of leaves with slots, given class -> slots of one node."""
        slots_by_leaf = {}
        for leaf, counts in self.nodes.items():
            total = 0
            for node_class, nodes in counts.items():  # hot path: a loop is faster than a generator
                total += slots[node_class] * nodes
            if total:
                slots_by_leaf[leaf] = total
        return slots_by_leaf if self.segment == 1 else self._limit_to_segments(slots_by_leaf)

    def _limit_to_segments(self, slots_by_leaf: Mapping[topology.Domain, int]) -> dict[topology.Domain, int]:
        """Return leaf -> number of slots that whole segments can use; placed peers in the leaf count to their segment.

        One leaf also holds the last, shorter segment.
        """
        usable = {leaf: self._count_segment_slots(leaf, slots) for leaf, slots in slots_by_leaf.items() if leaf}
        homes = usable if self.rest_leaf is None else usable.keys() & {self.rest_leaf}
        rows = [
            (self.rest + others, leaf)
            for leaf in homes
            if (others := self._count_segment_slots(leaf, slots_by_leaf[leaf] - self.rest)) >= 0
        ]
        slots, home = max((row for row in rows if row[0] > usable[row[1]]), default=(0, topology.NO_DOMAIN))
        if home:
            usable[home] = slots
        return {leaf: slots for leaf, slots in usable.items() if slots > 0}

    def _count_segment_slots(self, leaf: topology.Domain, slots: int) -> int:
        """Return how many slots of a leaf full segments can use; below 0 if partly placed segments do not fit."""
        peers = self.peers.get(leaf, 0)
        return (slots + peers) // self.segment * self.segment - peers


def build_capacity(view: node_index.RequestView, *, on_all_leaves: bool = False) -> GangCapacity:
    """Return the capacity that the planner may use for the gang of a request.

    An offer of 100 nodes (MAX_FULL_OFFER) or more may be a sample, so all leaves count, or those of the offered nodes
    if the gang is confined to a HyperNode. With `on_all_leaves`, they count in any case. Of a smaller offer, Volcano's
    nodes count: it may leave out others for reasons that are unknown here. From kube-scheduler, which announces no
    placements, all nodes of the offered leaves count: a peer whose binding has not been observed may be on another, and
    until then it counts as unplaced (docs/interface.md 7.7).
    """
    index, request = view.index, view.request
    is_sample = len(request.nodes) >= MAX_FULL_OFFER
    if on_all_leaves or (is_sample and not request.is_confined):
        return build_capacity_on(index, index.count_classes(), view.overrides)
    if is_sample or not request.is_announced:
        return build_capacity_on(index, index.count_classes(sorted(view.offered_leaves)), view.overrides)
    leaves: dict[topology.Domain, node_evaluation.Counts] = {}
    for name, node_class in zip(request.nodes, view.find_classes(request.nodes), strict=True):
        if node_class is not None:
            counts = leaves.setdefault(index.leaf_by_node[name], {})
            counts[node_class] = counts.get(node_class, 0) + 1
    return build_capacity_on(index, leaves)


def build_capacity_on(
    index: node_index.NodeIndex,
    leaves: dict[topology.Domain, node_evaluation.Counts],
    overrides: Mapping[str, node_evaluation.NodeClass] = {},
) -> GangCapacity:
    """Return the capacity of these nodes of an index: leaf -> class -> number of nodes.

    Nodes in `overrides` are counted by their class there instead of the index's; this changes `leaves`.
    """
    for (name, new), old in zip(overrides.items(), index.find_classes(overrides), strict=True):
        if old is not None and (counts := leaves.get(index.leaf_by_node[name])) is not None:
            counts[old] -= 1
            if not counts[old]:
                del counts[old]
            counts[new] = counts.get(new, 0) + 1
    classes = dict.fromkeys([node_class for counts in leaves.values() for node_class in counts])
    return GangCapacity(classes.keys(), leaves, index.uplinks)


# --- the plan -------------------------------------------------------------------------------------------------


class Plan(msgspec.Struct, frozen=True):
    """The leaves to fill, in order, with the modelled bandwidth."""

    slots_by_leaf: Mapping[topology.Domain, int]  # slots of each planned leaf at this bandwidth, in the order to fill
    bandwidth: node_evaluation.Bandwidth  # modelled, of the slowest pod or uplink crossing
    is_complete: bool  # False: the cluster has too few slots for the unplaced pods
    shape: str | None = None  # the only node shape used; None if all nodes have one shape, or one shape cannot hold all

    @property
    def leaves(self) -> tuple[topology.Domain, ...]:
        """Return the planned leaves, in the order to fill them."""
        return tuple(self.slots_by_leaf)

    @property
    def node_type(self) -> str:
        """Return the name of the node shape for messages."""
        return f"type {self.shape}" if self.shape else "unknown type"

    def uses_shape_of(self, node_class: node_evaluation.NodeClass) -> bool:
        """True if the plan may use nodes with the shape of this class."""
        return self.shape is None or node_class.facts.shape == self.shape

    def is_met_by(self, node_class: node_evaluation.NodeClass) -> bool:
        """True if a node of this class has a shape of the plan, and reaches its bandwidth."""
        return self.uses_shape_of(node_class) and node_class.count_slots(self.bandwidth) > 0


NO_PLAN = Plan(slots_by_leaf={}, bandwidth=0.0, is_complete=False)


class PlacedPeers(msgspec.Struct, frozen=True):
    """The leaves, bandwidth and node shapes of the gang's placed pods."""

    leaves: Sequence[topology.Domain] = ()  # nearest in rank first
    bandwidth: node_evaluation.Bandwidth = 1.0  # of the slowest; better nodes than that do not make the gang faster
    shapes: Collection[str] = ()  # of their nodes; one shape is preferred for the rest, several shapes are ignored


NO_PEERS = PlacedPeers()


def plan_gang(remaining: int, capacity: GangCapacity, peers: PlacedPeers = NO_PEERS) -> Plan:
    """Return the plan for `remaining` unplaced pods."""
    peer_leaves = tuple(leaf for leaf in dict.fromkeys(peers.leaves) if leaf != topology.NO_DOMAIN)
    # What the placed peers cannot exceed is no reason to take better nodes for the rest, which other gangs could use.
    limit = min(peers.bandwidth, _find_slowest_crossing(peer_leaves, capacity))

    @functools.cache  # what is asked for to find the bandwidth is asked for again to choose leaves
    def build_request(least: node_evaluation.Bandwidth, shape: str | None) -> leaf_selection.LeafRequest:
        slots_by_leaf = capacity.count_slots(least, shape)
        slots_by_leaf.pop(topology.NO_DOMAIN, None)
        carrying = functools.partial(capacity.uplinks.select_fast_domains, least=least - node_evaluation.TOLERANCE)
        return leaf_selection.LeafRequest(remaining, slots_by_leaf, peer_leaves, carrying)

    def choose_leaves(shape: str | None) -> leaf_selection.LeafChoice | None:
        used = capacity.count_slots(highest, shape, only_used=True)
        return leaf_selection.choose_leaves(build_request(highest, shape), used)

    of_slots = {min(value, limit) for node_class in capacity.classes for value in node_class.bandwidths}
    highest = max(of_slots, default=0.0)
    if not build_request(highest, None).fits:  # most gangs fit: no uplink limits them
        of_uplinks = _list_uplink_bandwidths(capacity, peer_leaves)
        values = sorted({value for value in of_slots | of_uplinks if value < highest}, reverse=True)
        # what fits at a value fits at lower ones
        at = bisect.bisect_left(values, x=True, key=lambda value: build_request(value, None).fits)
        if at == len(values):
            return _build_incomplete_plan(remaining, capacity, peer_leaves)
        highest = values[at]
    shapes = sorted({node_class.facts.shape for node_class in capacity.classes if node_class.slot_numa_factors})
    is_divided = len(peers.shapes) <= 1 and len({*shapes, *peers.shapes}) > 1
    options: list[tuple[leaf_selection.LeafChoice | None, str | None]]  # one shape outweighs fewer leaves
    options = [(choose_leaves(shape), shape) for shape in (peers.shapes or shapes if is_divided else ())]
    if not any(choice for choice, _ in options):
        options = [(choose_leaves(None), None)]
    possible = [(choice, shape) for choice, shape in options if choice is not None]
    chosen, shape = min(possible, key=lambda row: (row[0].cost, row[0].leaves))
    return Plan(chosen.slots_by_leaf, highest, is_complete=True, shape=shape)


def _list_uplink_bandwidths(
    capacity: GangCapacity, peer_leaves: Sequence[topology.Domain]
) -> set[node_evaluation.Bandwidth]:
    """Return the possible bandwidths of single uplink crossings."""
    leaves = [leaf for leaf in (*capacity.nodes, *peer_leaves) if leaf != topology.NO_DOMAIN]
    return {
        capacity.uplinks.compute_bandwidth(leaf[level:], level)
        for level in range(len(capacity.uplinks.oversubscription))
        for leaf in leaves
    }


def _find_slowest_crossing(peer_leaves: Sequence[topology.Domain], capacity: GangCapacity) -> node_evaluation.Bandwidth:
    """Return the bandwidth of the slowest uplink between the leaves of placed peers: each plan's ring crosses it."""
    worst = 1.0
    for level in range(max(map(len, peer_leaves), default=0)):
        domains = {leaf[level:] for leaf in peer_leaves}
        if len(domains) > 1:
            worst = min(worst, *(capacity.uplinks.compute_bandwidth(domain, level) for domain in domains))
    return worst


def _build_incomplete_plan(remaining: int, capacity: GangCapacity, peer_leaves: Sequence[topology.Domain]) -> Plan:
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


def count_min_leaves(remaining: int, capacity: GangCapacity, peer_leaves: Collection[topology.Domain] = ()) -> int:
    """Return how many leaves the unplaced pods need at least, at any bandwidth; with `peer_leaves`, the whole gang."""
    slots_by_leaf, labelled = capacity.count_slots(), set(peer_leaves) - {topology.NO_DOMAIN}
    remaining -= sum(slots_by_leaf.pop(leaf, 0) for leaf in labelled)
    left = itertools.accumulate(sorted(slots_by_leaf.values(), reverse=True), operator.sub, initial=remaining)
    return len(labelled) + min(sum(1 for pods in left if pods > 0), len(slots_by_leaf))
