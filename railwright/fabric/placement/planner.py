"""Which leaves the rest of a gang should take: the most modelled bandwidth, then the fewest and tightest leaves.

Owns the plan. The gang runs at its worst member, so bandwidth is a threshold: the highest one at which the nodes that
reach it, in domains whose uplinks reach it, still hold the gang. At that threshold: one node shape if possible, that of
the mates where some are placed, the fewest leaves, the fewest spines, the tightest leaves. It sees what each leaf could
hold and how good (`Supply`) and knows nothing of pods, nodes or scores. Solved anew for every pod, so that it needs no
memory.
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
_RAIL_SETS = 32  # sets of common rails looked at; more only where many nodes lack different rails


class Grade(msgspec.Struct, frozen=True):
    """How good nodes of one kind are for members of this gang."""

    shape: str
    rails: int  # bit mask of the wanted rails that give anything
    shares: tuple[float, ...]  # what each wanted rail gives one more member, of the whole of all wanted rails
    alignments: tuple[float, ...]  # for each further member that fits, best first: 1 beside its NICs, less where split
    untouched: bool  # no accelerator or rail of the node is in use
    compact: int = 1 << 30  # of those members, how many take no more NUMA nodes than they need
    crowded: tuple[tuple[float, ...], ...] = ()  # `shares` of each of 2, 3, ... more members; () where NICs suffice

    def share(self, rails: int, more: int = 1) -> Value:
        """What these rails give each of so many more members together, if aligned; all where the gang uses none."""
        shares = self.crowded[more - 2] if self.crowded and more > 1 else self.shares
        return sum(share for bit, share in enumerate(shares) if rails >> bit & 1) if shares else 1.0

    @property
    def reserve(self) -> int:
        """Which nodes of a leaf are taken first, the lower: splits over NUMA nodes last, nodes in use before whole."""
        return 2 * (self.compact <= 0) + self.untouched


class Supply(msgspec.Struct, frozen=True):
    """What the cluster has for this gang."""

    grades: Sequence[Grade]
    leaves: Mapping[topology.Domain, Mapping[int, int]]  # leaf -> index of grade -> nodes
    sizes: Mapping[topology.Domain, int]  # nodes of every domain, free or not
    oversubscription: Sequence[float]  # of the uplinks that leave a leaf, its parent, and so on
    links: float = 1.0  # of a node's links upwards, how many there are for each that the gang uses (`bandwidth`)


class Plan(msgspec.Struct, frozen=True):
    """Leaves to fill, in order, and what that is worth."""

    leaves: tuple[topology.Domain, ...]
    rooms: Mapping[topology.Domain, int]  # members each planned leaf can hold at this bandwidth
    bandwidth: Value  # modelled, of the worst member or crossing
    bound: Value  # no placement of the whole remainder on these free devices could be better
    exact: bool  # False: leaves or rails were too many to look at every choice
    complete: bool  # False: the cluster has no room for all that remain
    least: int  # the fewest leaves that could hold the remainder, whatever the bandwidth
    rails: int  # bit mask of the rails that every member has
    least_with_mates: int = 0  # as `least`, of the whole gang, where the mates are on theirs already
    shape: str | None = None  # the one node shape that is counted on; None where there is but one, or one is too few

    def is_of_shape(self, grade: Grade) -> bool:
        """True where a node of this grade is of a shape that the plan counts on."""
        return self.shape is None or grade.shape == self.shape

    def holds(self, grade: Grade) -> int:
        """How many further members the plan counts on a node of this grade for."""
        return members(grade, self.rails, self.bandwidth) if self.is_of_shape(grade) else 0

    def worth(self, grade: Grade) -> bool:
        """True where a node of this grade is as good as the plan counts on."""
        return self.holds(grade) > 0


NOTHING = Plan(leaves=(), rooms={}, bandwidth=0.0, bound=0.0, exact=True, complete=False, least=0, rails=0)


def members(grade: Grade, rails: int, least: Value) -> int:
    """How many further members a node holds at no less than that bandwidth, over these rails."""
    if grade.rails & rails != rails:
        return 0
    if grade.crowded:
        return next(
            (more for more, value in enumerate(_each(grade, rails)) if value < least - _CLOSE), len(grade.alignments)
        )
    whole = grade.share(rails)
    return sum(1 for alignment in grade.alignments if alignment * whole >= least - _CLOSE)


def _each(grade: Grade, rails: int) -> Iterator[Value]:
    """What each of 1, 2, ... further members of a node has: the worst of them, as all share its NICs."""
    for more, alignment in enumerate(grade.alignments, 1):
        yield alignment * grade.share(rails, more)


class Mates(msgspec.Struct, frozen=True):
    """What of the members placed already decides where the others are best."""

    leaves: Sequence[topology.Domain] = ()  # the nearest in rank first
    ahead: topology.Domain | None = None  # of the one that follows the members to be placed; None: nobody does
    reached: Value = 1.0  # what they can have where they are: better nodes than that gain the gang nothing
    shapes: Collection[str] = ()  # of their nodes: a gang on one is kept on it, one on several is not gathered on any
    rails: int = ALL_RAILS  # bit mask of those that every one of them has: the gang has no others


NOBODY = Mates()


def solve(remaining: int, supply: Supply, mates: Mates = NOBODY) -> Plan:
    """The plan for `remaining` more members beside those that are placed already."""
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
    """What the uplinks carry that the mates' own ring edges have to pass, wherever the others go."""
    worst = 1.0
    for level in range(max(map(len, used), default=0)):
        domains = {leaf[level:] for leaf in used}
        if len(domains) > 1:
            worst = min(worst, *(uplink(supply, domain, level) for domain in domains if domain and domain[0]), 1.0)
    return worst


def uplink(supply: Supply, domain: topology.Domain, level: int) -> Value:
    """What the uplinks of a domain at this level (0: a leaf) carry for one crossing."""
    ratios = supply.oversubscription
    ratio = ratios[level] if level < len(ratios) else 1.0
    return 1.0 if ratio <= 1 else bandwidth.uplink(supply.sizes.get(domain, 1), ratio, links=supply.links)


def _incomplete(remaining: int, supply: Supply, used: Sequence[topology.Domain]) -> Plan:
    """No room for all, or only on nodes without a leaf label: everything in order, the mates' leaves first."""
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
    """The fewest leaves for what remains, and for the whole gang with its mates where they are."""
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
    """The sets of rails, of these, that a gang may have in common, the most first, and whether those are all of them.

    Where there are too many, those of the most rails, and those that more and more nodes have in common: one of them
    is what all nodes have, so that no gang is left without a set that the cluster could hold it on.
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
    """The sets of rails of the nodes with room -> members they hold; grades of nodes that were do not count."""
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
    """What each leaf holds where a node of each grade holds so many; leaves that hold something."""
    rooms = {}
    for leaf, kinds in supply.leaves.items():
        room = 0
        for kind, nodes in kinds.items():
            room += counts[kind] * nodes
        if room:
            rooms[leaf] = room
    return rooms


class _Problem:
    """One set of common rails: the bandwidth that can be had, and the leaves for it."""

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
        """The most bandwidth at which the gang fits into labelled leaves; None where it does not fit at all."""
        values = sorted({*self._values, *self._caps()}, reverse=True)
        values = [value for value in values if 0.0 < value <= self.ceiling + _CLOSE] or [0.0]
        if self._fits(values[0]):
            return values[0]
        if not self._fits(values[-1]):
            return None
        low, high = 0, len(values) - 1  # the answer is in values[low..high]; feasibility only grows downwards
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
        """The leaves, what each can hold, and the one node shape they are counted for, where that is possible.

        `mates` are the shapes that placed mates are on.
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
        """Leaves by what they hold at this bandwidth; of that, unless only counted, what is on nodes in use."""
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
        """What the uplinks of any domain carry for one crossing; only where a fabric is oversubscribed."""
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
