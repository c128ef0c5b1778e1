"""Selects the fewest and tightest leaves for the unplaced pods of a gang, in the lowest domain that can hold it.

The slots of each leaf and the uplink check are input. The number of leaves is always minimal. Among equal numbers the
module minimizes spines, then unused slots; exactly if that is affordable (`Choice.exact`). Among equally tight
leaves it prefers those in spines and higher domains with the fewest slots, so that large domains stay free for large
gangs.
"""

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from railwright.fabric import topology

_SPINE_CHOICES = 256  # combinations of spines that are tried, about 2 ms; above that only the promising ones
_PRICES = 4  # prices of a leaf that the spine search tries; 1 ms at a thousand leaves
_TIGHT_CELLS = 4096  # number of leaves x leaves to choose, for which the fit is exact; about 2 ms

Rooms = Mapping[topology.Domain, int]


class Question(msgspec.Struct, frozen=True):
    """The input of the leaf selection. A leaf that a mapping does not contain has no such slots."""

    remaining: int  # pods to place
    rooms: Rooms  # slots of the labelled leaves
    compact: Rooms  # slots that use no more NUMA nodes than necessary
    started: Rooms  # such slots on partly used nodes
    used: tuple[topology.Domain, ...]  # leaves of placed peers, nearest in rank first
    carries: Callable[[topology.Domain, int], bool] | None  # (domain, level): uplinks carry a crossing; None: all do
    ahead: topology.Domain | None = None  # leaf of the next peer in rank order; None if there is none


class Choice(msgspec.Struct, frozen=True):
    """The selected leaves, in the order to fill them."""

    leaves: tuple[topology.Domain, ...]
    cost: tuple[int, ...]  # lower is better; comparable for one gang only
    exact: bool


def fits(question: Question) -> bool:
    """True if the unplaced pods fit."""
    left = _left(question)
    if left <= 0:
        return True
    return any(sum(pool.values()) >= left for pool in _pools(question))


def choose(question: Question) -> Choice | None:
    """Return the best leaves, or None if the unplaced pods do not fit."""
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
    """Return the number of pods that do not fit on the peers' leaves."""
    return question.remaining - sum(question.rooms.get(leaf, 0) for leaf in question.used)


def _above(rooms: Rooms) -> Rooms:
    """Return the slots of every domain above the leaves."""
    above: dict[topology.Domain, int] = {}
    for leaf, room in rooms.items():
        for level in range(1, len(leaf)):
            domain = leaf[level:]
            above[domain] = above.get(domain, 0) + room
    return above


def _pools(question: Question) -> Iterator[Rooms]:
    """Yield the candidate leaves without peers, for each domain that may enclose the whole gang, lowest level first.

    Ring edges leave every domain strictly inside the enclosing one. The uplinks of these domains must carry that,
    including the domains of the peers.
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
        # at the next level ring edges cross the uplinks of these domains
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
    """Select one leaf: the one that uses the fewest idle nodes, then the tightest."""
    enough = [leaf for leaf, room in pool.items() if room >= left]
    best = min(enough, key=lambda leaf: (_cost((leaf,), pool, question, left, above), leaf))
    return Choice(leaves=(best,), cost=_cost((best,), pool, question, left, above), exact=True)


def _cost(
    chosen: Sequence[topology.Domain], pool: Rooms, question: Question, left: int, above: Rooms
) -> tuple[int, ...]:
    """Return the cost, lower is better.

    Order: leaves, spines, distance to the peers, pods split over NUMA nodes, pods on idle nodes, slots of the leaves,
    slots of their spines, slots of the domains above.
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
    """Return the distance of the leaves to the previous and next peer in rank order, because the ring crosses it."""
    beside = [leaf for leaf in (*question.used[:1], question.ahead) if leaf]
    return sum(min(topology.distance(mate, leaf) for mate in beside) for leaf in chosen) if beside else 0


def _held(chosen: Sequence[topology.Domain], pool: Rooms, above: Rooms) -> tuple[int, ...]:
    """Return the slots of the leaves, and of the domains of each level above them."""
    depth = max(map(len, chosen))
    higher = [sum(above[domain] for domain in {leaf[level:] for leaf in chosen}) for level in range(1, depth)]
    return (sum(pool[leaf] for leaf in chosen), *higher)


def _spine(leaf: topology.Domain) -> topology.Domain:
    """Return the parent of a leaf, or the leaf itself if the parent has no label."""
    return leaf[1:] if not leaf[1:] or leaf[1] else leaf


def _of_fewest_spines(
    left: int, count: int, pool: Rooms, question: Question, above: Rooms
) -> tuple[tuple[topology.Domain, ...], bool]:
    """Return `count` leaves with at least `left` slots in the fewest spines, and True if the search was exact.

    Spines of placed peers are free.
    """
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
    """The value of each spine if each leaf costs `price` slots (Lagrangian relaxation of the number of leaves)."""

    price: int
    leaves: int  # number of leaves to choose
    worth: Mapping[topology.Domain, int]  # spine -> slots of its leaves above the price
    order: Sequence[topology.Domain]  # spines, best first

    def bound(self, free: Sequence[topology.Domain], more: Sequence[topology.Domain]) -> int:
        """Return an upper bound for the slots of `leaves` leaves in these spines, if `more` are the best spines."""
        return sum(self.worth[spine] for spine in (*free, *more)) + self.price * self.leaves


def _prices(pool: Rooms, count: int) -> Sequence[int]:
    """Return the prices to try: 0, and leaf sizes up to the `count`-th largest leaf."""
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
    """Yield promising sets of `size` spines: for each price the best ones, with the last one as small as possible.

    Yield nothing if the upper bound of a price shows that no such set has `left` slots.
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
    """Return `count` of these leaves with at least `left` slots, or None if there are none."""
    rooms = {leaf: pool[leaf] for leaf in inside}
    if sum(sorted(rooms.values(), reverse=True)[:count]) < left:
        return None
    return _tightest(left, count, rooms)


def _tightest(left: int, count: int, pool: Rooms) -> tuple[tuple[topology.Domain, ...], bool]:
    """Return `count` leaves with at least `left` slots and the fewest unused ones; on ties prefer small leaves."""
    order = sorted(pool, key=lambda leaf: (pool[leaf], leaf))
    if len(order) * count > _TIGHT_CELLS:
        taken = order[:-count:-1] if count > 1 else []
        missing = left - sum(pool[leaf] for leaf in taken)
        rest = order[: len(order) - len(taken)]
        return (*taken, next(leaf for leaf in rest if pool[leaf] >= missing)), False
    # reach[i][k]: bit s is set if k of the first i leaves have s slots in total
    limit = (1 << (left + pool[order[-1]] + 1)) - 1
    reach = [[1] + [0] * count]
    for leaf in order:
        room, last = pool[leaf], reach[-1]
        reach.append([1, *(last[k] | (last[k - 1] << room & limit) for k in range(1, count + 1))])
    sums = reach[-1][count] >> left
    if not sums:  # the sum is above the limit: only the largest leaves have enough slots
        return tuple(order[-count:]), True
    total, chosen, k = left + (sums & -sums).bit_length() - 1, [], count
    for index in range(len(order) - 1, -1, -1):
        if k and not reach[index][k] >> total & 1:
            chosen.append(order[index])
            total -= pool[order[index]]
            k -= 1
    return tuple(chosen), True


def _in_order(chosen: Sequence[topology.Domain], question: Question) -> Sequence[topology.Domain]:
    """Sort the leaves by spine, large ones first. Leaves closer to the next peer than to the previous one come last."""
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
