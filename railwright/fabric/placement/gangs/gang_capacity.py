"""The capacity of the cluster for one gang, by leaf and class of nodes."""

from collections.abc import Collection, Mapping

import msgspec

from railwright.fabric import topology
from railwright.fabric.placement import bandwidth
from railwright.fabric.placement.nodes import node_evaluation, node_index

# nodes; an offer of fewer has all feasible ones, a longer one may be a sample (minFeasibleNodesToFind)
MAX_FULL_OFFER = 100


class GangCapacity(msgspec.Struct, frozen=True):
    """The capacity of the cluster for one gang."""

    classes: Collection[node_evaluation.NodeClass]
    nodes: Mapping[topology.Domain, Mapping[node_evaluation.NodeClass, int]]  # leaf -> class -> number of nodes
    uplinks: bandwidth.Uplinks
    segment: int = 1  # pods that must share a leaf; slots of a leaf that hold only a part of one do not count
    peers: Mapping[topology.Domain, int] = {}  # leaf -> placed peers, which the first slots of a segment belong to
    rest: int = 0  # unplaced pods of the last segment if it has fewer pods than the others; no other is in `peers`
    rest_leaf: topology.Domain | None = None  # of the placed pods of that segment

    def count_slots(
        self,
        rails: int = 0,
        min_bandwidth: node_evaluation.Bandwidth = 0.0,
        shape: str | None = None,
        *,
        only_used: bool = False,
    ) -> dict[topology.Domain, int]:
        """Return the number of slots of each leaf on these rails at this bandwidth, on nodes of one shape if given.

        With `only_used`, count only partly used nodes that hold the pod without a split over NUMA nodes.
        """
        slots = {
            node_class: node_class.count_slots(rails, min_bandwidth)
            if (shape is None or node_class.facts.shape == shape) and not (only_used and node_class.fill_priority)
            else 0
            for node_class in self.classes
        }
        return self.add_up(slots) if any(slots.values()) else {}

    def add_up(self, slots: Mapping[node_evaluation.NodeClass, int]) -> dict[topology.Domain, int]:
        """Return the slots of each leaf with at least one slot. `slots` are those of one node of each class."""
        slots_by_leaf = {}
        for leaf, counts in self.nodes.items():
            total = 0
            for node_class, nodes in counts.items():  # hot path: a loop is faster than a generator
                total += slots[node_class] * nodes
            if total:
                slots_by_leaf[leaf] = total
        return slots_by_leaf if self.segment == 1 else self.limit_to_segments(slots_by_leaf)

    def limit_to_segments(self, slots_by_leaf: Mapping[topology.Domain, int]) -> dict[topology.Domain, int]:
        """Return the slots that whole segments can use, including placed peers'. One leaf also holds the remainder."""
        if self.segment == 1:
            return dict(slots_by_leaf)
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


def build(view: node_index.RequestView, *, on_all_leaves: bool = False) -> GangCapacity:
    """Return the capacity that the planner may use for the gang of a request.

    Below 100 nodes (MAX_FULL_OFFER) the scheduler offers every feasible node. Above that it offers a sample, so
    capacity also counts eligible nodes that were not offered: of all leaves, or of the offered ones if the gang is
    confined to a HyperNode. If the scheduler announces no allocations (kube-scheduler), nodes of the offered leaves
    that were not offered count too: a peer whose binding has not been observed may be there, and until then it counts
    as unplaced (docs/interface.md 7.7). With `on_all_leaves`, all eligible nodes count, offered or not.
    """
    index, request = view.index, view.request
    is_sample = len(request.nodes) >= MAX_FULL_OFFER
    if on_all_leaves or (is_sample and not request.is_confined):
        return build_on(index, index.count_classes(), view.overrides)
    if is_sample or not request.is_announced:
        return build_on(index, index.count_classes(sorted(view.offered_leaves)), view.overrides)
    leaves: dict[topology.Domain, node_evaluation.Counts] = {}
    for name in request.nodes:
        if (node_class := view.get_class(name)) is not None:
            counts = leaves.setdefault(index.leaf_by_node[name], {})
            counts[node_class] = counts.get(node_class, 0) + 1
    return build_on(index, leaves)


def build_on(
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
