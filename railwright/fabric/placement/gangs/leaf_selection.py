"""Selects the fewest and tightest leaves for the unplaced pods of a gang, in the lowest domain that can hold it.

The slots of each leaf and the uplink check are input. The number of leaves is always minimal. Among equal numbers the
module minimizes spines, then unused slots. It finds the exact minimum unless there are too many combinations to try.
Among equally tight leaves it prefers those in spines and higher domains with the fewest slots, so that large domains
stay free for large gangs.
"""

import functools
import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from railwright.fabric import topology

_MAX_SPINE_CHOICES = 256  # sets of spines that are tried, about 2 ms; of more only the spines with the most slots

_MAX_EXACT_CELLS = 4096  # number of leaves x leaves to choose, for which the fit is exact; about 2 ms

Slots = Mapping[topology.Domain, int]


class LeafRequest(msgspec.Struct, frozen=True, dict=True):
    """The pods to place, and the slots of each leaf. Leaves that are not in `slots` have none."""

    remaining: int  # pods to place
    slots: Slots  # slots of the labelled leaves
    peer_leaves: tuple[topology.Domain, ...]  # leaves of placed peers, nearest in rank first
    # (domains, level): those of the domains whose uplinks carry a crossing
    select_fast_domains: Callable[[Collection[topology.Domain], int], Collection[topology.Domain]]

    @functools.cached_property
    def missing(self) -> int:
        """Return the number of pods that do not fit on the peers' leaves."""
        return self.remaining - sum([self.slots.get(leaf, 0) for leaf in self.peer_leaves])

    @functools.cached_property
    def candidates(self) -> Sequence[Slots]:
        """Return the slots of the leaves of each domain with room for the `missing` pods, lowest level first.

        The peers' leaves are left out.
        """
        return [group for group in _group_leaves_by_domain(self) if sum(group.values()) >= self.missing]

    @functools.cached_property
    def near_domains(self) -> frozenset[topology.Domain]:
        """Return the domains of the two nearest peers in rank order, at any level."""
        return frozenset([leaf[level:] for leaf in self.peer_leaves[:2] for level in range(len(leaf))])

    @functools.cached_property
    def slots_above_leaves(self) -> Slots:
        """Return the slots of each domain above the leaves."""
        above: dict[topology.Domain, int] = {}
        for leaf, slots in self.slots.items():
            for level in range(1, len(leaf)):
                above[leaf[level:]] = above.get(leaf[level:], 0) + slots
        return above

    @property
    def fits(self) -> bool:
        """True if the leaves have slots for all unplaced pods."""
        return self.missing <= 0 or bool(self.candidates)


class LeafCost(NamedTuple):
    """The cost of a choice of leaves, compared in the order of these fields; lower is better."""

    leaves: int = 0
    spines: int = 0
    distance: int = 0  # to the two nearest peers in rank order
    pods_on_other_nodes: int = 0  # pods that do not fit on the partly used nodes
    slots: tuple[int, ...] = ()  # of the leaves, of their spines, and of the domains of each level above


class LeafChoice(msgspec.Struct, frozen=True):
    """The selected leaves and their cost."""

    slots_by_leaf: Slots  # in the order to fill them
    cost: LeafCost  # comparable for one gang only

    @property
    def leaves(self) -> tuple[topology.Domain, ...]:
        """Return the selected leaves, in the order to fill them."""
        return tuple(self.slots_by_leaf)


def choose_leaves(request: LeafRequest, used: Mapping[topology.Domain, int] = {}) -> LeafChoice | None:
    """Return the best leaves, or None if the unplaced pods do not fit. `used` has the slots on partly used nodes."""
    peer_leaves = [leaf for leaf in request.peer_leaves if request.slots.get(leaf)]
    if request.missing <= 0:
        before = itertools.accumulate([request.slots[leaf] for leaf in peer_leaves], initial=0)
        needed = [leaf for leaf, held in zip(peer_leaves, before, strict=False) if held < request.remaining]
        return LeafChoice({leaf: request.slots[leaf] for leaf in needed}, LeafCost())
    choices = [_choose_fewest(candidates, request, used) for candidates in request.candidates]
    if not choices:
        return None
    cost, leaves = min(choices)
    return LeafChoice(
        {leaf: request.slots[leaf] for leaf in (*peer_leaves, *_sort_leaves(leaves, request.slots))}, cost
    )


def _group_leaves_by_domain(request: LeafRequest) -> Iterator[Slots]:
    """Yield the leaves of each domain that may enclose the gang, domains of the lowest level first.

    The ring of the gang leaves each domain below the enclosing one. So the uplinks of these domains, and of the
    domains of placed peers, must carry a crossing.
    """
    # Bottom up: a gang inside one leaf crosses no uplinks, inside one spine only those of its leaves, and so on. At
    # each level the domains whose uplinks are too slow drop out: a gang that is spread further could not leave them.
    depth = max(map(len, request.slots), default=0)
    fresh = {leaf: slots for leaf, slots in request.slots.items() if leaf not in request.peer_leaves}
    for level in range(depth + 1):
        peer_domains = {leaf[level:] for leaf in request.peer_leaves}
        if len(peer_domains) <= 1:
            groups: dict[topology.Domain, dict[topology.Domain, int]] = {}
            for leaf, slots in fresh.items():
                if not peer_domains or leaf[level:] in peer_domains:
                    groups.setdefault(leaf[level:], {})[leaf] = slots
            yield from (group for domain, group in groups.items() if not domain or domain[0])  # unlabelled: not common
        # at the next level ring edges cross the uplinks of these domains
        if level < depth:
            carrying = request.select_fast_domains({leaf[level:] for leaf in fresh} | peer_domains, level)
            if not peer_domains.issubset(carrying):
                return
            fresh = {leaf: slots for leaf, slots in fresh.items() if leaf[level:] in carrying}


def _choose_fewest(
    candidates: Slots, request: LeafRequest, used: Slots
) -> tuple[LeafCost, tuple[topology.Domain, ...]]:
    """Return (cost, leaves) of the fewest leaves. If one is enough: the closest to the peers, most used, tightest."""
    order = sorted(candidates.values(), reverse=True)
    count = next(index for index, total in enumerate(itertools.accumulate(order), 1) if total >= request.missing)
    choices: list[tuple[topology.Domain, ...]]
    if count == 1:
        choices = [(leaf,) for leaf, slots in candidates.items() if slots >= request.missing]
    else:
        choices = [_choose_by_spines(count, candidates, request)]
    return min([(_compute_cost(chosen, request, used), chosen) for chosen in choices])


def _compute_cost(chosen: Sequence[topology.Domain], request: LeafRequest, used: Slots) -> LeafCost:
    slots, near_domains, above = request.slots, request.near_domains, request.slots_above_leaves
    distances = [
        next((level for level in range(len(leaf)) if leaf[level] and leaf[level:] in near_domains), len(leaf))
        for leaf in (chosen if near_domains else ())
    ]
    higher_domains = [{leaf[level:] for leaf in chosen} for level in range(1, max(map(len, chosen)))]
    return LeafCost(
        leaves=len(chosen),
        spines=len({*map(_get_spine, chosen), *map(_get_spine, request.peer_leaves)}),
        distance=sum(distances),
        pods_on_other_nodes=max(0, request.missing - sum([used.get(leaf, 0) for leaf in chosen])),
        slots=(
            sum([slots[leaf] for leaf in chosen]),
            *[sum([above[domain] for domain in domains]) for domains in higher_domains],
        ),
    )


def _get_spine(leaf: topology.Domain) -> topology.Domain:
    """Return the parent of a leaf, or the leaf itself if the parent has no label."""
    return leaf[1:] if not leaf[1:] or leaf[1] else leaf


def _choose_by_spines(count: int, candidates: Slots, request: LeafRequest) -> tuple[topology.Domain, ...]:
    """Return `count` leaves with slots for the missing pods in the fewest spines.

    Spines that have placed peers do not count.
    """
    left = request.missing
    ascending = sorted(sorted(candidates), key=candidates.__getitem__)
    spines: dict[topology.Domain, list[topology.Domain]] = {}
    for leaf in ascending:
        spines.setdefault(_get_spine(leaf), []).append(leaf)
    if len(spines) == 1:
        return _choose_tightest(left, count, ascending, candidates)
    positions = {leaf: position for position, leaf in enumerate(ascending)}
    most = {spine: sum([candidates[leaf] for leaf in leaves[-count:]]) for spine, leaves in spines.items()}
    peer_spines = {_get_spine(leaf) for leaf in request.peer_leaves} & spines.keys()
    others = sorted(spines.keys() - peer_spines, key=lambda spine: (-most[spine], spine))
    for size in range(min(count, len(others)) + 1):
        sets: Iterable[Sequence[topology.Domain]] = [others[:size]]
        if math.comb(len(others), size) <= _MAX_SPINE_CHOICES:
            sets = itertools.combinations(others, size)
        fitting = []
        for more in sets:
            chosen = peer_spines.union(more)
            if sum([most[spine] for spine in chosen]) >= left:
                inside = sorted([leaf for spine in chosen for leaf in spines[spine]], key=positions.__getitem__)
                if sum([candidates[leaf] for leaf in inside[-count:]]) >= left:
                    fitting.append(_choose_tightest(left, count, inside, candidates))
        if fitting:
            costs = {chosen: _compute_cost(chosen, request, {}) for chosen in fitting}
            return min(fitting, key=lambda chosen: (costs[chosen].distance, costs[chosen].slots))
    return _choose_tightest(left, count, ascending, candidates)


def _sort_leaves(chosen: Sequence[topology.Domain], slots_by_leaf: Slots) -> Sequence[topology.Domain]:
    """Sort the leaves by spine; spines and leaves with more slots come first."""
    slots_by_spine: dict[topology.Domain, int] = {}
    for leaf in chosen:
        slots_by_spine[_get_spine(leaf)] = slots_by_spine.get(_get_spine(leaf), 0) + slots_by_leaf[leaf]
    return sorted(
        chosen,
        key=lambda leaf: (-slots_by_spine[_get_spine(leaf)], _get_spine(leaf), -slots_by_leaf[leaf], leaf),
    )


def _choose_tightest(
    left: int, count: int, order: Sequence[topology.Domain], candidates: Slots
) -> tuple[topology.Domain, ...]:
    """Return `count` leaves with at least `left` slots and the fewest unused ones; on ties prefer small leaves.

    `order` are the leaves to choose from, small ones first.
    """
    if len(order) * count > _MAX_EXACT_CELLS:
        taken = order[:-count:-1] if count > 1 else []
        missing = left - sum(candidates[leaf] for leaf in taken)
        rest = order[: len(order) - len(taken)]
        last_leaf = next(leaf for leaf in rest if candidates[leaf] >= missing)
        return *taken, last_leaf
    # A knapsack: bit k * width + s of reach[i] is set if k of the first i leaves have s slots in total. The lowest bit
    # of `count` leaves from `left` slots on is the tightest sum; walking back from it shows which leaves it has.
    largest = candidates[order[-1]]
    limit, width = (1 << (left + largest + 1)) - 1, left + 2 * largest + 1
    mask = sum(limit << k * width for k in range(count + 1))
    reach = [1]
    for leaf in order:
        reach.append(reach[-1] | (reach[-1] << width + candidates[leaf] & mask))
    sums = reach[-1] >> count * width + left
    if not sums:  # the sum is above the limit: only the largest leaves have enough slots
        return tuple(order[-count:])
    total, chosen, k = left + (sums & -sums).bit_length() - 1, [], count
    for index in range(len(order) - 1, -1, -1):
        if k and not reach[index] >> k * width + total & 1:
            chosen.append(order[index])
            total -= candidates[order[index]]
            k -= 1
    return tuple(chosen)
