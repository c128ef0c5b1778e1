"""Chooses the leaves for the unplaced pods of a gang: most modelled bandwidth first, then fewest and tightest leaves.

A gang is as fast as its slowest pod, so bandwidth is a threshold. The planner takes the highest threshold at which the
nodes that reach it, in domains with uplinks that reach it, can hold the gang. At that threshold it prefers, in this
order: one node shape (that of the placed peers, if any), the fewest leaves, the fewest spines, the tightest leaves.
The input is the capacity of each leaf (`Supply`); pods, node names and scores do not occur here. The planner is a pure
function and runs for each pod.
"""

import itertools
import operator
from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

from railwright.fabric import topology
from railwright.fabric.placement import bandwidth, leaves

Value = float
"""Modelled bandwidth, 0..1."""

ALL_RAILS = -1  # as a bit mask

_CLOSE = 1e-9  # two sums of the same shares may differ in the last bit
_RAIL_SETS = 32  # sets of common rails that are tried; more exist only if many nodes lack different rails


class Grade(msgspec.Struct, frozen=True):
    """Capacity and quality of the nodes of one class, for pods of this gang."""

    shape: str
    rails: int  # bit mask of the requested rails that have bandwidth left
    shares: tuple[float, ...]  # bandwidth of each requested rail for one more pod, as a share of all requested rails
    alignments: tuple[float, ...]  # one item per slot, best first: 1 if GPUs and NICs share a NUMA node, else less
    untouched: bool  # no accelerator or rail of the node is in use
    compact: int = 1 << 30  # number of slots that use no more NUMA nodes than necessary
    crowded: tuple[tuple[float, ...], ...] = ()  # `shares` with 2, 3, ... more pods; () if each pod has its own NICs

    def share(self, rails: int, more: int = 1) -> Value:
        """Return the bandwidth of each of `more` further pods over these rails, if aligned; 1 without rails."""
        shares = self.crowded[more - 2] if self.crowded and more > 1 else self.shares
        return sum(share for bit, share in enumerate(shares) if rails >> bit & 1) if shares else 1.0

    @property
    def reserve(self) -> int:
        """Return the fill order in a leaf, lower first: partly used nodes, idle nodes, nodes that would split NUMA."""
        return 2 * (self.compact <= 0) + self.untouched


class Supply(msgspec.Struct, frozen=True):
    """The capacity of the cluster for one gang."""

    grades: Sequence[Grade]
    leaves: Mapping[topology.Domain, Mapping[int, int]]  # leaf -> index of grade -> number of nodes
    sizes: Mapping[topology.Domain, int]  # number of nodes of each domain, free or not
    oversubscription: Sequence[float]  # of the uplinks of a leaf, of its parent, and so on
    links: float = 1.0  # uplinks available to each rail that the gang uses (`bandwidth.links_each`)


class Plan(msgspec.Struct, frozen=True):
    """The leaves to fill, in order, with the modelled bandwidth."""

    leaves: tuple[topology.Domain, ...]
    rooms: Mapping[topology.Domain, int]  # slots of each planned leaf at this bandwidth
    bandwidth: Value  # modelled, of the slowest pod or uplink crossing
    bound: Value  # upper bound for any placement of the unplaced pods on the free devices
    exact: bool  # False: there were too many leaves or rail sets to try every choice
    complete: bool  # False: the cluster has too few slots for the unplaced pods
    least: int  # minimum number of leaves for the unplaced pods, at any bandwidth
    rails: int  # bit mask of the rails that every pod has
    least_with_mates: int = 0  # minimum number of leaves for the whole gang, placed peers included
    shape: str | None = None  # the only node shape used; None if all nodes have one shape, or one shape cannot hold all

    def is_of_shape(self, grade: Grade) -> bool:
        """True if the plan uses nodes of this shape."""
        return self.shape is None or grade.shape == self.shape

    def holds(self, grade: Grade) -> int:
        """Return the number of slots on a node of this grade at the plan's bandwidth."""
        return members(grade, self.rails, self.bandwidth) if self.is_of_shape(grade) else 0

    def worth(self, grade: Grade) -> bool:
        """True if a node of this grade reaches the plan's bandwidth."""
        return self.holds(grade) > 0


NOTHING = Plan(leaves=(), rooms={}, bandwidth=0.0, bound=0.0, exact=True, complete=False, least=0, rails=0)


def members(grade: Grade, rails: int, least: Value) -> int:
    """Return the number of slots on a node at this bandwidth or more, over these rails."""
    if grade.rails & rails != rails:
        return 0
    if grade.crowded:
        return next(
            (more for more, value in enumerate(_each(grade, rails)) if value < least - _CLOSE), len(grade.alignments)
        )
    whole = grade.share(rails)
    return sum(1 for alignment in grade.alignments if alignment * whole >= least - _CLOSE)


def _each(grade: Grade, rails: int) -> Iterator[Value]:
    """Yield the bandwidth per pod with 1, 2, ... further pods on a node. They share its NICs, so the slowest counts."""
    for more, alignment in enumerate(grade.alignments, 1):
        yield alignment * grade.share(rails, more)


class Mates(msgspec.Struct, frozen=True):
    """Summary of the placed peers."""

    leaves: Sequence[topology.Domain] = ()  # nearest in rank first
    ahead: topology.Domain | None = None  # leaf of the next peer in rank order; None if there is none
    reached: Value = 1.0  # their bandwidth; better nodes than that do not make the gang faster
    shapes: Collection[str] = ()  # of their nodes; one shape is preferred for the rest, several shapes are ignored
    rails: int = ALL_RAILS  # bit mask of the rails that all of them have; the gang cannot use others


NOBODY = Mates()


def solve(remaining: int, supply: Supply, mates: Mates = NOBODY) -> Plan:
    """Return the plan for `remaining` unplaced pods."""
    best: tuple[Value, int] | None = None
    used = tuple(leaf for leaf in dict.fromkeys(mates.leaves) if leaf != topology.NOWHERE)
    reached = min(mates.reached, _crossed(used, supply))
    sets, exact = _rail_sets(supply, mates.rails)
    for common in sets:
        problem = _Problem(remaining, supply, used, common, reached, mates.ahead)
        if best is not None and problem.ceiling <= best[0] + _CLOSE:
            continue
        found = problem.highest()
        if found is not None and (best is None or found > best[0] + _CLOSE):
            best = (found, common)
    if best is None:
        return _incomplete(remaining, supply, used)
    value, common = best
    least, least_with_mates = _least(remaining, supply, used)
    problem = _Problem(remaining, supply, used, common, reached, mates.ahead)
    choice, rooms, shape = problem.choose(value, mates.shapes)
    return Plan(
        leaves=choice.leaves,
        rooms=rooms,
        bandwidth=value,
        bound=value if exact else max(value, problem.ceiling),
        exact=exact and choice.exact,
        complete=True,
        least=least,
        rails=common,
        least_with_mates=least_with_mates,
        shape=shape,
    )


def _crossed(used: Sequence[topology.Domain], supply: Supply) -> Value:
    """Return the bandwidth of the uplinks that the ring edges between placed peers cross in any case."""
    worst = 1.0
    for level in range(max(map(len, used), default=0)):
        domains = {leaf[level:] for leaf in used}
        if len(domains) > 1:
            worst = min(worst, *(uplink(supply, domain, level) for domain in domains if domain and domain[0]), 1.0)
    return worst


def uplink(supply: Supply, domain: topology.Domain, level: int) -> Value:
    """Return the bandwidth, 0..1, that the uplinks of a domain carry for one crossing. Level 0 is a leaf."""
    ratios = supply.oversubscription
    ratio = ratios[level] if level < len(ratios) else 1.0
    return 1.0 if ratio <= 1 else bandwidth.uplink(supply.sizes.get(domain, 1), ratio, links=supply.links)


def _incomplete(remaining: int, supply: Supply, used: Sequence[topology.Domain]) -> Plan:
    """Return a plan with all leaves, the peers' leaves first.

    Used if there are too few slots, or only on nodes without a leaf label.
    """
    rooms = _all_held(supply)
    fresh = sorted(rooms.keys() - set(used), key=lambda leaf: (leaf == topology.NOWHERE, -rooms[leaf], leaf))
    order = [leaf for leaf in (*used, *fresh) if rooms.get(leaf)]
    held = sum(rooms.values())
    least, least_with_mates = _least(remaining, supply, used)
    return msgspec.structs.replace(
        NOTHING,
        leaves=tuple(order),
        rooms=rooms,
        complete=held >= remaining,
        least=least,
        least_with_mates=least_with_mates,
    )


def _least(remaining: int, supply: Supply, used: Sequence[topology.Domain]) -> tuple[int, int]:
    """Return the minimum number of leaves for the unplaced pods, and for the whole gang with its placed peers."""
    held = _all_held(supply)
    alone = _fewest(remaining, list(held.values()))
    if not used:
        return alone, alone
    beside = sum(held.get(leaf, 0) for leaf in used)
    fresh = _fewest(remaining - beside, [room for leaf, room in held.items() if leaf not in used])
    return alone, len(used) + fresh


def _fewest(remaining: int, rooms: list[int]) -> int:
    if remaining <= 0:
        return 0
    rooms.sort(reverse=True)
    for count, room in enumerate(rooms, 1):
        remaining -= room
        if remaining <= 0:
            return count
    return len(rooms)


def _rail_sets(supply: Supply, rails: int) -> tuple[Sequence[int], bool]:
    """Return the subsets of `rails` that a gang may have in common, largest first, and True if the list is complete.

    If there are too many, return the largest ones, and the intersections over more and more nodes. The last of these is
    the set that all nodes have, so every gang that fits has a feasible set.
    """
    masks: dict[int, int] = {}
    for mask, held in _masks(supply).items():
        masks[mask & rails] = masks.get(mask & rails, 0) + held
    closed = set(masks)
    for mask in sorted(masks, key=int.bit_count, reverse=True):
        closed |= {mask & other for other in closed}
        if len(closed) > _RAIL_SETS:
            common = itertools.accumulate(sorted(masks, key=lambda each: (-masks[each], -each)), operator.and_)
            most = sorted({*masks, *closed}, key=int.bit_count, reverse=True)[:_RAIL_SETS]
            return sorted({*most, *common}, key=int.bit_count, reverse=True), False
    return sorted(closed, key=int.bit_count, reverse=True), True


def _masks(supply: Supply) -> Mapping[int, int]:
    """Map rail bit masks to the slots on nodes that have these rails. Grades without current nodes are ignored."""
    all_masks = {grade.rails for grade in supply.grades if grade.alignments}
    if len(all_masks) <= 1:
        return dict.fromkeys(all_masks, 1)
    masks: dict[int, int] = {}
    for kinds in supply.leaves.values():
        for kind, nodes in kinds.items():
            grade = supply.grades[kind]
            if nodes and grade.alignments:
                masks[grade.rails] = masks.get(grade.rails, 0) + nodes * len(grade.alignments)
    return masks


def _all_held(supply: Supply) -> dict[topology.Domain, int]:
    return _held(supply, [len(grade.alignments) for grade in supply.grades])


def _held(supply: Supply, counts: Sequence[int]) -> dict[topology.Domain, int]:
    """Return the slots of each leaf with at least one slot. `counts` are the slots of one node, by index of grade."""
    rooms = {}
    for leaf, kinds in supply.leaves.items():
        room = 0
        for kind, nodes in kinds.items():
            room += counts[kind] * nodes
        if room:
            rooms[leaf] = room
    return rooms


class _Problem:
    """The planning problem for one set of common rails."""

    def __init__(  # noqa: PLR0913, PLR0917 - one argument a fact
        self,
        remaining: int,
        supply: Supply,
        used: tuple[topology.Domain, ...],
        rails: int,
        reached: Value,
        ahead: topology.Domain | None,
    ) -> None:
        self._ahead = ahead
        self._remaining = remaining
        self._supply = supply
        self._used = used
        self._rails = rails
        self._oversubscribed = any(ratio > 1 for ratio in supply.oversubscription)
        self._values = {min(value, reached) for value in _values(supply.grades, rails)}
        self.ceiling = max(self._values, default=0.0)

    def highest(self) -> Value | None:
        """Return the highest bandwidth at which the gang fits on labelled leaves, or None if it does not fit."""
        values = sorted({*self._values, *self._caps()}, reverse=True)
        values = [value for value in values if 0.0 < value <= self.ceiling + _CLOSE] or [0.0]
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
        self, least: Value, mates: Collection[str]
    ) -> tuple[leaves.Choice, Mapping[topology.Domain, int], str | None]:
        """Return the leaves, the slots of each, and the node shape if one shape can hold the gang, else None.

        `mates` are the node shapes of the placed peers.
        """
        shapes = sorted({grade.shape for grade in self._supply.grades if grade.alignments})
        if len(mates) > 1 or len({*shapes, *mates}) == 1:
            shapes = []
        found = [(*choice, shape) for shape in mates or shapes if shapes and (choice := self._chosen(least, shape))]
        if found:
            return min(found, key=lambda each: (each[0].cost, each[0].leaves))
        mixed = self._chosen(least, None)
        assert mixed is not None, "`highest` has shown that it fits"  # noqa: S101 - for the type checker
        return *mixed, None

    def _chosen(self, least: Value, shape: str | None) -> tuple[leaves.Choice, Mapping[topology.Domain, int]] | None:
        question = self._question(least, shape)
        choice = leaves.choose(question)
        if choice is None:
            return None
        return choice, {leaf: question.rooms[leaf] for leaf in choice.leaves}

    def _fits(self, least: Value) -> bool:
        return leaves.fits(self._question(least, None, counting_only=True))

    def _question(self, least: Value, shape: str | None, *, counting_only: bool = False) -> leaves.Question:
        """Build the leaf problem at bandwidth `least`. With `counting_only`, leave out what only ranks the choices."""
        counts = [
            members(grade, self._rails, least) if shape is None or grade.shape == shape else 0
            for grade in self._supply.grades
        ]
        rooms = _held(self._supply, counts)
        rooms.pop(topology.NOWHERE, None)
        whole = [min(grade.compact, count) for grade, count in zip(self._supply.grades, counts, strict=True)]
        begun = [0 if grade.untouched else count for grade, count in zip(self._supply.grades, whole, strict=True)]
        return leaves.Question(
            remaining=self._remaining,
            rooms=rooms,
            compact=rooms if whole == counts or counting_only else _held(self._supply, whole),
            started=_held(self._supply, begun) if any(begun) and not counting_only else {},
            used=self._used,
            ahead=self._ahead,
            carries=(lambda domain, level: uplink(self._supply, domain, level) >= least - _CLOSE)
            if self._oversubscribed
            else None,
        )

    def _caps(self) -> set[Value]:
        """Return the possible bandwidths of single uplink crossings; empty if the fabric is not oversubscribed."""
        if not self._oversubscribed:
            return set()
        depth = max((len(leaf) for leaf in self._supply.leaves), default=0)
        return {
            uplink(self._supply, leaf[level:], level)
            for leaf in (*self._supply.leaves, *self._used)
            if leaf != topology.NOWHERE
            for level in range(depth)
        }


def _values(grades: Sequence[Grade], rails: int) -> set[Value]:
    values = set()
    for grade in grades:
        if grade.rails & rails == rails and grade.alignments:
            values |= set(_each(grade, rails))
    return values
