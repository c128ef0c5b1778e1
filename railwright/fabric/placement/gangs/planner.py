"""Chooses the leaves for the unplaced pods of a gang: most modelled bandwidth first, then fewest and tightest leaves.

A gang is as fast as its slowest pod, so bandwidth is a threshold. The planner takes the highest threshold at which the
nodes that reach it, in domains with uplinks that reach it, can hold the gang. At that threshold it prefers, in this
order: one node shape (that of the placed peers, if any), the fewest leaves, the fewest spines, the tightest leaves. The
input is the capacity of each leaf (`GangCapacity`); pods, node names and scores do not occur here. The planner is a
pure function and runs for each pod.
"""

import itertools
import operator
from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

from railwright.fabric import topology
from railwright.fabric.placement import bandwidth
from railwright.fabric.placement.gangs import leaf_selection

Bandwidth = float
"""Modelled bandwidth, 0..1."""

ALL_RAILS = -1  # as a bit mask

_TOLERANCE = 1e-9  # two sums of the same shares may differ in the last bit
_MAX_RAIL_SETS = 32  # sets of common rails that are tried; more exist only if many nodes lack different rails


class NodeCapacity(msgspec.Struct, frozen=True):
    """Capacity and quality of the nodes of one class, for pods of this gang."""

    shape: str
    rails: int  # bit mask of the requested rails that have bandwidth left
    shares: tuple[float, ...]  # bandwidth of each requested rail for one more pod, as a share of all requested rails
    slot_numa_factors: tuple[
        float, ...
    ]  # one item per slot, best first: 1 if GPUs and NICs share a NUMA node, else less
    is_idle: bool  # no accelerator or rail of the node is in use
    unsplit_slots: int = 1 << 30  # number of slots that use no more NUMA nodes than necessary
    crowded_shares: tuple[
        tuple[float, ...], ...
    ] = ()  # `shares` with 2, 3, ... more pods; () if each pod has its own NICs

    def compute_bandwidth(self, rails: int, pods: int = 1) -> Bandwidth:
        """Return the bandwidth of each of `pods` further pods over these rails, if aligned; 1 without rails."""
        shares = self.crowded_shares[pods - 2] if self.crowded_shares and pods > 1 else self.shares
        return sum(share for bit, share in enumerate(shares) if rails >> bit & 1) if shares else 1.0

    @property
    def fill_priority(self) -> int:
        """Return the fill order in a leaf, lower first: partly used nodes, idle nodes, nodes that would split NUMA."""
        return 2 * (self.unsplit_slots <= 0) + self.is_idle


class GangCapacity(msgspec.Struct, frozen=True):
    """The capacity of the cluster for one gang."""

    node_capacities: Sequence[NodeCapacity]
    class_counts: Mapping[topology.Domain, Mapping[int, int]]  # leaf -> index of grade -> number of nodes
    domain_sizes: Mapping[topology.Domain, int]  # number of nodes of each domain, free or not
    oversubscription: Sequence[float]  # of the uplinks of a leaf, of its parent, and so on
    links_per_rail: float = 1.0  # uplinks available to each rail that the gang uses (`bandwidth.links_each`)


class Plan(msgspec.Struct, frozen=True):
    """The leaves to fill, in order, with the modelled bandwidth."""

    leaves: tuple[topology.Domain, ...]
    slots_by_leaf: Mapping[topology.Domain, int]  # slots of each planned leaf at this bandwidth
    bandwidth: Bandwidth  # modelled, of the slowest pod or uplink crossing
    upper_bound: Bandwidth  # upper bound for any placement of the unplaced pods on the free devices
    is_exact: bool  # False: there were too many leaves or rail sets to try every choice
    is_complete: bool  # False: the cluster has too few slots for the unplaced pods
    min_leaves: int  # minimum number of leaves for the unplaced pods, at any bandwidth
    rails: int  # bit mask of the rails that every pod has
    min_leaves_with_placed: int = 0  # minimum number of leaves for the whole gang, placed peers included
    shape: str | None = None  # the only node shape used; None if all nodes have one shape, or one shape cannot hold all

    def uses_shape_of(self, node_capacity: NodeCapacity) -> bool:
        """True if the plan uses nodes of this shape."""
        return self.shape is None or node_capacity.shape == self.shape

    def count_slots(self, node_capacity: NodeCapacity) -> int:
        """Return the number of slots on a node of this grade at the plan's bandwidth."""
        return count_slots(node_capacity, self.rails, self.bandwidth) if self.uses_shape_of(node_capacity) else 0

    def is_met_by(self, node_capacity: NodeCapacity) -> bool:
        """True if a node of this grade reaches the plan's bandwidth."""
        return self.count_slots(node_capacity) > 0


NO_PLAN = Plan(
    leaves=(), slots_by_leaf={}, bandwidth=0.0, upper_bound=0.0, is_exact=True, is_complete=False, min_leaves=0, rails=0
)


def count_slots(node_capacity: NodeCapacity, rails: int, min_bandwidth: Bandwidth) -> int:
    """Return the number of slots on a node at this bandwidth or more, over these rails."""
    if node_capacity.rails & rails != rails:
        return 0
    if node_capacity.crowded_shares:
        return next(
            (
                slot
                for slot, value in enumerate(_list_slot_bandwidths(node_capacity, rails))
                if value < min_bandwidth - _TOLERANCE
            ),
            len(node_capacity.slot_numa_factors),
        )
    bandwidth_if_aligned = node_capacity.compute_bandwidth(rails)
    return sum(
        1
        for alignment in node_capacity.slot_numa_factors
        if alignment * bandwidth_if_aligned >= min_bandwidth - _TOLERANCE
    )


def _list_slot_bandwidths(node_capacity: NodeCapacity, rails: int) -> Iterator[Bandwidth]:
    """Yield the bandwidth per pod with 1, 2, ... further pods on a node. They share its NICs, so the slowest counts."""
    for more, alignment in enumerate(node_capacity.slot_numa_factors, 1):
        yield alignment * node_capacity.compute_bandwidth(rails, more)


class PlacedPeers(msgspec.Struct, frozen=True):
    """Summary of the placed peers."""

    leaves: Sequence[topology.Domain] = ()  # nearest in rank first
    next_leaf: topology.Domain | None = None  # leaf of the next peer in rank order; None if there is none
    bandwidth: Bandwidth = 1.0  # their bandwidth; better nodes than that do not make the gang faster
    shapes: Collection[str] = ()  # of their nodes; one shape is preferred for the rest, several shapes are ignored
    rails: int = ALL_RAILS  # bit mask of the rails that all of them have; the gang cannot use others


NO_PEERS = PlacedPeers()


def solve(remaining: int, capacity: GangCapacity, peers: PlacedPeers = NO_PEERS) -> Plan:
    """Return the plan for `remaining` unplaced pods."""
    best: tuple[Bandwidth, int] | None = None
    peer_leaves = tuple(leaf for leaf in dict.fromkeys(peers.leaves) if leaf != topology.NOWHERE)
    bandwidth_limit = min(peers.bandwidth, _limit_by_crossings(peer_leaves, capacity))
    rail_sets, is_exact = _list_rail_sets(capacity, peers.rails)
    for common in rail_sets:
        problem = _PlanProblem(remaining, capacity, peer_leaves, common, bandwidth_limit, peers.next_leaf)
        if best is not None and problem.max_bandwidth <= best[0] + _TOLERANCE:
            continue
        highest = problem.find_highest_bandwidth()
        if highest is not None and (best is None or highest > best[0] + _TOLERANCE):
            best = (highest, common)
    if best is None:
        return _build_incomplete_plan(remaining, capacity, peer_leaves)
    highest_bandwidth, common = best
    min_leaves, min_leaves_with_placed = _count_min_leaves(remaining, capacity, peer_leaves)
    problem = _PlanProblem(remaining, capacity, peer_leaves, common, bandwidth_limit, peers.next_leaf)
    choice, slots_by_leaf, shape = problem.choose(highest_bandwidth, peers.shapes)
    return Plan(
        leaves=choice.leaves,
        slots_by_leaf=slots_by_leaf,
        bandwidth=highest_bandwidth,
        upper_bound=highest_bandwidth if is_exact else max(highest_bandwidth, problem.max_bandwidth),
        is_exact=is_exact and choice.is_exact,
        is_complete=True,
        min_leaves=min_leaves,
        rails=common,
        min_leaves_with_placed=min_leaves_with_placed,
        shape=shape,
    )


def _limit_by_crossings(peer_leaves: Sequence[topology.Domain], capacity: GangCapacity) -> Bandwidth:
    """Return the bandwidth of the uplinks that the ring edges between placed peers cross in any case."""
    worst = 1.0
    for level in range(max(map(len, peer_leaves), default=0)):
        domains = {leaf[level:] for leaf in peer_leaves}
        if len(domains) > 1:
            worst = min(
                worst,
                *(get_uplink_bandwidth(capacity, domain, level) for domain in domains if domain and domain[0]),
                1.0,
            )
    return worst


def get_uplink_bandwidth(capacity: GangCapacity, domain: topology.Domain, level: int) -> Bandwidth:
    """Return the bandwidth, 0..1, that the uplinks of a domain carry for one crossing. Level 0 is a leaf."""
    ratios = capacity.oversubscription
    ratio = ratios[level] if level < len(ratios) else 1.0
    return (
        1.0
        if ratio <= 1
        else bandwidth.uplink(capacity.domain_sizes.get(domain, 1), ratio, links=capacity.links_per_rail)
    )


def _build_incomplete_plan(remaining: int, capacity: GangCapacity, peer_leaves: Sequence[topology.Domain]) -> Plan:
    """Return a plan with all leaves, the peers' leaves first.

    Used if there are too few slots, or only on nodes without a leaf label.
    """
    slots_by_leaf = _count_all_slots(capacity)
    fresh = sorted(
        slots_by_leaf.keys() - set(peer_leaves), key=lambda leaf: (leaf == topology.NOWHERE, -slots_by_leaf[leaf], leaf)
    )
    order = [leaf for leaf in (*peer_leaves, *fresh) if slots_by_leaf.get(leaf)]
    total_slots = sum(slots_by_leaf.values())
    min_leaves, min_leaves_with_placed = _count_min_leaves(remaining, capacity, peer_leaves)
    return msgspec.structs.replace(
        NO_PLAN,
        leaves=tuple(order),
        slots_by_leaf=slots_by_leaf,
        is_complete=total_slots >= remaining,
        min_leaves=min_leaves,
        min_leaves_with_placed=min_leaves_with_placed,
    )


def _count_min_leaves(
    remaining: int, capacity: GangCapacity, peer_leaves: Sequence[topology.Domain]
) -> tuple[int, int]:
    """Return the minimum number of leaves for the unplaced pods, and for the whole gang with its placed peers."""
    slots_by_leaf = _count_all_slots(capacity)
    min_leaves = _count_largest(remaining, list(slots_by_leaf.values()))
    if not peer_leaves:
        return min_leaves, min_leaves
    peer_slots = sum(slots_by_leaf.get(leaf, 0) for leaf in peer_leaves)
    fresh = _count_largest(
        remaining - peer_slots, [slots for leaf, slots in slots_by_leaf.items() if leaf not in peer_leaves]
    )
    return min_leaves, len(peer_leaves) + fresh


def _count_largest(remaining: int, slot_counts: list[int]) -> int:
    if remaining <= 0:
        return 0
    slot_counts.sort(reverse=True)
    for count, slots in enumerate(slot_counts, 1):
        remaining -= slots
        if remaining <= 0:
            return count
    return len(slot_counts)


def _list_rail_sets(capacity: GangCapacity, rails: int) -> tuple[Sequence[int], bool]:
    """Return the subsets of `rails` that a gang may have in common, largest first, and True if the list is complete.

    If there are too many, return the largest ones, and the intersections over more and more nodes. The last of these is
    the set that all nodes have, so every gang that fits has a feasible set.
    """
    masks: dict[int, int] = {}
    for mask, slots in _count_slots_by_rails(capacity).items():
        masks[mask & rails] = masks.get(mask & rails, 0) + slots
    closed = set(masks)
    for mask in sorted(masks, key=int.bit_count, reverse=True):
        closed |= {mask & other for other in closed}
        if len(closed) > _MAX_RAIL_SETS:
            common = itertools.accumulate(
                sorted(masks, key=lambda rail_mask: (-masks[rail_mask], -rail_mask)), operator.and_
            )
            most = sorted({*masks, *closed}, key=int.bit_count, reverse=True)[:_MAX_RAIL_SETS]
            return sorted({*most, *common}, key=int.bit_count, reverse=True), False
    return sorted(closed, key=int.bit_count, reverse=True), True


def _count_slots_by_rails(capacity: GangCapacity) -> Mapping[int, int]:
    """Map rail bit masks to the slots on nodes that have these rails. Grades without current nodes are ignored."""
    all_masks = {node_capacity.rails for node_capacity in capacity.node_capacities if node_capacity.slot_numa_factors}
    if len(all_masks) <= 1:
        return dict.fromkeys(all_masks, 1)
    masks: dict[int, int] = {}
    for kinds in capacity.class_counts.values():
        for kind, nodes in kinds.items():
            node_capacity = capacity.node_capacities[kind]
            if nodes and node_capacity.slot_numa_factors:
                masks[node_capacity.rails] = masks.get(node_capacity.rails, 0) + nodes * len(
                    node_capacity.slot_numa_factors
                )
    return masks


def _count_all_slots(capacity: GangCapacity) -> dict[topology.Domain, int]:
    return _count_slots_by_leaf(
        capacity, [len(node_capacity.slot_numa_factors) for node_capacity in capacity.node_capacities]
    )


def _count_slots_by_leaf(capacity: GangCapacity, counts: Sequence[int]) -> dict[topology.Domain, int]:
    """Return the slots of each leaf with at least one slot. `counts` are the slots of one node, by index of grade."""
    slots_by_leaf = {}
    for leaf, kinds in capacity.class_counts.items():
        slots = 0
        for kind, nodes in kinds.items():
            slots += counts[kind] * nodes
        if slots:
            slots_by_leaf[leaf] = slots
    return slots_by_leaf


class _PlanProblem:
    """The planning problem for one set of common rails."""

    def __init__(  # noqa: PLR0913, PLR0917 - one argument a fact
        self,
        remaining: int,
        capacity: GangCapacity,
        peer_leaves: tuple[topology.Domain, ...],
        rails: int,
        bandwidth_limit: Bandwidth,
        next_leaf: topology.Domain | None,
    ) -> None:
        self._next_leaf = next_leaf
        self._remaining = remaining
        self._capacity = capacity
        self._peer_leaves = peer_leaves
        self._rails = rails
        self._oversubscribed = any(ratio > 1 for ratio in capacity.oversubscription)
        self._values = {min(value, bandwidth_limit) for value in _list_bandwidths(capacity.node_capacities, rails)}
        self.max_bandwidth = max(self._values, default=0.0)

    def find_highest_bandwidth(self) -> Bandwidth | None:
        """Return the highest bandwidth at which the gang fits on labelled leaves, or None if it does not fit."""
        values = sorted({*self._values, *self._list_uplink_bandwidths()}, reverse=True)
        values = [value for value in values if 0.0 < value <= self.max_bandwidth + _TOLERANCE] or [0.0]
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

    def choose(
        self, min_bandwidth: Bandwidth, peer_shapes: Collection[str]
    ) -> tuple[leaf_selection.LeafChoice, Mapping[topology.Domain, int], str | None]:
        """Return the leaves, the slots of each, and the node shape if one shape can hold the gang, else None.

        `peer_shapes` are the node shapes of the placed peers.
        """
        shapes = sorted(
            {node_capacity.shape for node_capacity in self._capacity.node_capacities if node_capacity.slot_numa_factors}
        )
        if len(peer_shapes) > 1 or len({*shapes, *peer_shapes}) == 1:
            shapes = []
        choices = [
            (*choice, shape)
            for shape in peer_shapes or shapes
            if shapes and (choice := self._choose_for_shape(min_bandwidth, shape))
        ]
        if choices:
            return min(choices, key=lambda each: (each[0].cost, each[0].leaves))
        mixed = self._choose_for_shape(min_bandwidth, None)
        assert mixed is not None, "`find_highest_bandwidth` has shown that it fits"  # noqa: S101 - for the type checker
        return *mixed, None

    def _choose_for_shape(
        self, min_bandwidth: Bandwidth, shape: str | None
    ) -> tuple[leaf_selection.LeafChoice, Mapping[topology.Domain, int]] | None:
        problem = self._build_leaf_problem(min_bandwidth, shape)
        choice = leaf_selection.choose_leaves(problem)
        if choice is None:
            return None
        return choice, {leaf: problem.slots[leaf] for leaf in choice.leaves}

    def _fits(self, min_bandwidth: Bandwidth) -> bool:
        return leaf_selection.fits(self._build_leaf_problem(min_bandwidth, None, counting_only=True))

    def _build_leaf_problem(
        self, min_bandwidth: Bandwidth, shape: str | None, *, counting_only: bool = False
    ) -> leaf_selection.LeafProblem:
        """Build the leaf problem at `min_bandwidth`. With `counting_only`, leave out what only ranks the choices."""
        counts = [
            count_slots(node_capacity, self._rails, min_bandwidth)
            if shape is None or node_capacity.shape == shape
            else 0
            for node_capacity in self._capacity.node_capacities
        ]
        slots_by_leaf = _count_slots_by_leaf(self._capacity, counts)
        slots_by_leaf.pop(topology.NOWHERE, None)
        unsplit_counts = [
            min(node_capacity.unsplit_slots, count)
            for node_capacity, count in zip(self._capacity.node_capacities, counts, strict=True)
        ]
        used_node_counts = [
            0 if node_capacity.is_idle else count
            for node_capacity, count in zip(self._capacity.node_capacities, unsplit_counts, strict=True)
        ]
        return leaf_selection.LeafProblem(
            remaining=self._remaining,
            slots=slots_by_leaf,
            unsplit_slots=slots_by_leaf
            if unsplit_counts == counts or counting_only
            else _count_slots_by_leaf(self._capacity, unsplit_counts),
            slots_on_used_nodes=_count_slots_by_leaf(self._capacity, used_node_counts)
            if any(used_node_counts) and not counting_only
            else {},
            peer_leaves=self._peer_leaves,
            next_leaf=self._next_leaf,
            uplink_carries=(
                lambda domain, level: get_uplink_bandwidth(self._capacity, domain, level) >= min_bandwidth - _TOLERANCE
            )
            if self._oversubscribed
            else None,
        )

    def _list_uplink_bandwidths(self) -> set[Bandwidth]:
        """Return the possible bandwidths of single uplink crossings; empty if the fabric is not oversubscribed."""
        if not self._oversubscribed:
            return set()
        depth = max((len(leaf) for leaf in self._capacity.class_counts), default=0)
        return {
            get_uplink_bandwidth(self._capacity, leaf[level:], level)
            for leaf in (*self._capacity.class_counts, *self._peer_leaves)
            if leaf != topology.NOWHERE
            for level in range(depth)
        }


def _list_bandwidths(grades: Sequence[NodeCapacity], rails: int) -> set[Bandwidth]:
    values = set()
    for node_capacity in grades:
        if node_capacity.rails & rails == rails and node_capacity.slot_numa_factors:
            values |= set(_list_slot_bandwidths(node_capacity, rails))
    return values
