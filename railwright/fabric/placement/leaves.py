"""Fewest and tightest leaves for the rest of a gang, under the closest domain that can hold it.

Owns the combinatorics of leaves and nothing of what makes a leaf good: rooms, and which domains may be left by a
gang that is spread, are given. The number of leaves is always least; of equal numbers the fewest spines and the
tightest fit are looked for, exactly where that is affordable (`Choice.exact`). Of equally tight leaves those win whose
spines, and the domains above those, have the least room: the next large gang finds a whole one.
"""

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from railwright.fabric import topology

_SPINE_CHOICES = 256  # combinations of spines looked at; 2 ms, what one task may cost. Beyond: the promising ones
_PRICES = 4  # a leaf costs in the search for spines; 1 ms at a thousand leaves
_TIGHT_CELLS = 4096  # leaves x leaves to choose of the exact fit; 2 ms likewise

Rooms = Mapping[topology.Domain, int]


class Question(msgspec.Struct, frozen=True):
    """What is to be held and what may be used."""

    remaining: int
    rooms: Rooms  # labelled leaves with room
    compact: Rooms  # of that room, what takes no more NUMA nodes than needed; a leaf not named has none
    started: Rooms  # of that in turn, what is on nodes already in use; likewise
    used: tuple[topology.Domain, ...]  # leaves of placed mates, the nearest in rank first
    carries: Callable[[topology.Domain, int], bool] | None  # (domain, level): its uplinks bear a crossing; None: all do
    ahead: topology.Domain | None = None  # leaf of the mate that follows those to be placed; None: nobody does


class Choice(msgspec.Struct, frozen=True):
    """The leaves, in the order to fill them."""

    leaves: tuple[topology.Domain, ...]
    cost: tuple[int, ...]  # comparable between choices for one gang
    exact: bool


def fits(question: Question) -> bool:
    """Whether the remainder fits at all."""
    left = _left(question)
    if left <= 0:
        return True
    return any(sum(pool.values()) >= left for pool in _pools(question))


def choose(question: Question) -> Choice | None:
    """The best leaves; None where the remainder does not fit."""
    left = _left(question)
    mates = [leaf for leaf in question.used if question.rooms.get(leaf)]
    if left <= 0:
        needed = []
        missing = question.remaining
        for leaf in mates:
            if missing > 0:
                needed.append(leaf)
                missing -= question.rooms[leaf]
        return Choice(leaves=tuple(needed), cost=(), exact=True)
    best: Choice | None = None
    above = _above(question.rooms)
    for pool in _pools(question):
        if sum(pool.values()) < left:
            continue
        found = _fewest(left, pool, question, above)
        if best is None or (found.cost, found.leaves) < (best.cost, best.leaves):
            best = found
    if best is None:
        return None
    return msgspec.structs.replace(best, leaves=(*mates, *_in_order(best.leaves, question)))


def _left(question: Question) -> int:
    """What the mates' own leaves cannot hold."""
    return question.remaining - sum(question.rooms.get(leaf, 0) for leaf in question.used)


def _above(rooms: Rooms) -> Rooms:
    """The room of every domain above the leaves."""
    above: dict[topology.Domain, int] = {}
    for leaf, room in rooms.items():
        for level in range(1, len(leaf)):
            domain = leaf[level:]
            above[domain] = above.get(domain, 0) + room
    return above


def _pools(question: Question) -> Iterator[Rooms]:
    """The fresh leaves to choose from, for every domain that may enclose the whole gang, closest first.

    A domain strictly inside the enclosing one is left by ring edges, so its uplinks have to bear that: those of the
    domains that mates are in as well.
    """
    depth = max(map(len, question.rooms), default=0)
    fresh = {leaf: room for leaf, room in question.rooms.items() if leaf not in question.used}
    for level in range(depth + 1):
        groups: dict[topology.Domain, dict[topology.Domain, int]] = {}
        for leaf, room in fresh.items():
            groups.setdefault(leaf[level:], {})[leaf] = room
        inside = {leaf[level:] for leaf in question.used}
        if len(inside) <= 1:
            for domain, group in groups.items():
                if domain and not domain[0]:
                    continue  # no label, no common domain
                if not inside or domain in inside:
                    yield group
        # one level up these domains are crossed
        if question.carries is not None and level < depth:
            if not all(question.carries(domain, level) for domain in inside if domain and domain[0]):
                return
            bearing = {domain for domain in groups if not domain[0] or question.carries(domain, level)}
            fresh = {leaf: room for leaf, room in fresh.items() if leaf[level:] in bearing}


def _fewest(left: int, pool: Rooms, question: Question, above: Rooms) -> Choice:
    order = sorted(pool.values(), reverse=True)
    count = next(index for index, held in enumerate(itertools.accumulate(order), 1) if held >= left)
    if count == 1:
        return _one(left, pool, question, above)
    chosen, exact = _of_fewest_spines(left, count, pool, question, above)
    return Choice(leaves=chosen, cost=_cost(chosen, pool, question, left, above), exact=exact)


def _one(left: int, pool: Rooms, question: Question, above: Rooms) -> Choice:
    """The one leaf: first the one that needs the fewest untouched nodes, then the tightest."""
    enough = [leaf for leaf, room in pool.items() if room >= left]
    best = min(enough, key=lambda leaf: (_cost((leaf,), pool, question, left, above), leaf))
    return Choice(leaves=(best,), cost=_cost((best,), pool, question, left, above), exact=True)


def _cost(
    chosen: Sequence[topology.Domain], pool: Rooms, question: Question, left: int, above: Rooms
) -> tuple[int, ...]:
    """Fewest leaves and spines, closest to the mates, fewest members split or on whole nodes, least room left over.

    Room left over counts in the leaves first, then in the spines, then in the domains above those.
    """
    split = 0
    if question.compact is not question.rooms:
        split = max(0, left - sum(question.compact.get(leaf, 0) for leaf in chosen))
    fresh = max(0, left - sum(question.started.get(leaf, 0) for leaf in chosen)) if question.started else 0
    return (
        len(chosen),
        len({_spine(leaf) for leaf in (*chosen, *question.used)}),
        _away(chosen, question),
        split,
        fresh,
        *_held(chosen, pool, above),
    )


def _away(chosen: Sequence[topology.Domain], question: Question) -> int:
    """How far the leaves are from the mates before and after those to be placed: the ring passes what is between."""
    beside = [leaf for leaf in (*question.used[:1], question.ahead) if leaf]
    return sum(min(topology.distance(mate, leaf) for mate in beside) for leaf in chosen) if beside else 0


def _held(chosen: Sequence[topology.Domain], pool: Rooms, above: Rooms) -> tuple[int, ...]:
    """The room of the leaves, and of the domains of each level above them."""
    depth = max(map(len, chosen))
    higher = [sum(above[domain] for domain in {leaf[level:] for leaf in chosen}) for level in range(1, depth)]
    return (sum(pool[leaf] for leaf in chosen), *higher)


def _spine(leaf: topology.Domain) -> topology.Domain:
    """The leaf's parent; the leaf itself where the parent has no label, as nothing is known to be beside it."""
    return leaf[1:] if not leaf[1:] or leaf[1] else leaf


def _of_fewest_spines(
    left: int, count: int, pool: Rooms, question: Question, above: Rooms
) -> tuple[tuple[topology.Domain, ...], bool]:
    """`count` leaves that hold `left` below the fewest spines besides those of the mates, which cost nothing more."""
    spines: dict[topology.Domain, list[topology.Domain]] = {}
    for leaf in sorted(pool, key=lambda leaf: (-pool[leaf], leaf)):
        spines.setdefault(_spine(leaf), []).append(leaf)
    if len(spines) == 1:
        return _tightest(left, count, pool)
    mates = {_spine(leaf) for leaf in question.used}
    most = {spine: sum(pool[leaf] for leaf in own[:count]) for spine, own in spines.items()}
    free = [spine for spine in spines if spine in mates]
    others = sorted(spine for spine in spines if spine not in mates)
    order = sorted((most[spine] for spine in others), reverse=True)
    held_free = sum(most[spine] for spine in free)
    prices: Sequence[_Price] = ()
    for size in range(min(count, len(others)) + 1):
        if held_free + sum(order[:size]) < left:
            continue
        few = math.comb(len(others), size) <= _SPINE_CHOICES
        if not few and not prices:
            prices = [_priced(price, spines, pool, count) for price in _prices(pool, count)]
        sets = itertools.combinations(others, size) if few else _promising(free, others, size, prices, left)
        fitting = (
            choice
            for more in sets
            if sum(most[spine] for spine in (*free, *more)) >= left
            and (choice := _below(left, count, [leaf for spine in (*free, *more) for leaf in spines[spine]], pool))
        )
        if few:
            best = min(
                fitting,
                key=lambda choice: (_away(choice[0], question), *_held(choice[0], pool, above)),
                default=None,
            )
        else:
            best = next(fitting, None)
        if best is not None:
            return best[0], best[1] and few
    return _tightest(left, count, pool)[0], False


class _Price(NamedTuple):
    """What spines are worth where each leaf taken costs so many members: its room counts beyond that only."""

    price: int
    leaves: int  # that are taken
    worth: Mapping[topology.Domain, int]  # spine -> the room of its leaves beyond the price
    order: Sequence[topology.Domain]  # spines, the best first

    def bound(self, free: Sequence[topology.Domain], more: Sequence[topology.Domain]) -> int:
        """No choice of so many leaves below as many spines holds more than this, if `more` are the best."""
        return sum(self.worth[spine] for spine in (*free, *more)) + self.price * self.leaves


def _prices(pool: Rooms, count: int) -> Sequence[int]:
    """The prices worth trying: none, and the rooms of leaves up to that of the smallest that may have to be taken."""
    marginal = sorted(pool.values(), reverse=True)[count - 1]
    return [0, *sorted({room for room in pool.values() if room <= marginal}, reverse=True)[:_PRICES]]


def _priced(price: int, spines: Mapping[topology.Domain, Sequence[topology.Domain]], pool: Rooms, count: int) -> _Price:
    worth = {spine: sum([max(0, pool[leaf] - price) for leaf in own[:count]]) for spine, own in spines.items()}
    return _Price(price, count, worth, sorted(worth, key=lambda spine: (-worth[spine], spine)))


def _promising(
    free: Sequence[topology.Domain],
    others: Collection[topology.Domain],
    size: int,
    prices: Sequence[_Price],
    left: int,
) -> Iterator[Sequence[topology.Domain]]:
    """Sets of so many spines, of too many to look at all: by each price the best ones, the last as small as may be.

    None where a price shows that no such set holds what is left (Lagrangian relaxation of the number of leaves).
    """
    allowed = frozenset(others)
    best = [(price, [spine for spine in price.order if spine in allowed]) for price in prices]
    if any(price.bound(free, order[:size]) < left for price, order in best):
        return
    for _, order in best:
        for last in reversed(order[size - 1 :]):
            yield (*order[: size - 1], last)


def _below(
    left: int, count: int, inside: Sequence[topology.Domain], pool: Rooms
) -> tuple[tuple[topology.Domain, ...], bool] | None:
    """`count` of these leaves that hold `left`; None where so few do not."""
    rooms = {leaf: pool[leaf] for leaf in inside}
    if sum(sorted(rooms.values(), reverse=True)[:count]) < left:
        return None
    return _tightest(left, count, rooms)


def _tightest(left: int, count: int, pool: Rooms) -> tuple[tuple[topology.Domain, ...], bool]:
    """`count` leaves that hold `left` with the least room left over, large leaves spared where equal."""
    order = sorted(pool, key=lambda leaf: (pool[leaf], leaf))
    if len(order) * count > _TIGHT_CELLS:
        taken = order[:-count:-1] if count > 1 else []
        missing = left - sum(pool[leaf] for leaf in taken)
        rest = order[: len(order) - len(taken)]
        return (*taken, next(leaf for leaf in rest if pool[leaf] >= missing)), False
    # reach[i][k]: bit s is set where k of the first i leaves hold s together
    limit = (1 << (left + pool[order[-1]] + 1)) - 1
    reach = [[1] + [0] * count]
    for leaf in order:
        room, last = pool[leaf], reach[-1]
        reach.append([1, *(last[k] | (last[k - 1] << room & limit) for k in range(1, count + 1))])
    sums = reach[-1][count] >> left
    if not sums:  # the bits beyond the limit: only the largest leaves together hold it
        return tuple(order[-count:]), True
    total, chosen, k = left + (sums & -sums).bit_length() - 1, [], count
    for index in range(len(order) - 1, -1, -1):
        if k and not reach[index][k] >> total & 1:
            chosen.append(order[index])
            total -= pool[order[index]]
            k -= 1
    return tuple(chosen), True


def _in_order(chosen: Sequence[topology.Domain], question: Question) -> Sequence[topology.Domain]:
    """Leaves of one spine together, large ones first; those nearer the mate that follows than the one before, last."""
    rooms, ahead = question.rooms, question.ahead
    anchor = question.used[0] if question.used else None

    def side(leaf: topology.Domain) -> tuple[bool, int]:
        near = topology.distance(anchor, leaf) if anchor else 0
        if anchor and ahead and (far := topology.distance(ahead, leaf)) < near:
            return True, -far
        return False, near

    held: dict[topology.Domain, int] = {}
    for leaf in chosen:
        held[_spine(leaf)] = held.get(_spine(leaf), 0) + rooms[leaf]
    return sorted(
        chosen,
        key=lambda leaf: (
            side(leaf),
            -held[_spine(leaf)],
            _spine(leaf),
            -rooms[leaf],
            leaf,
        ),
    )
