"""Splits accelerators and rail devices over NUMA nodes so that each rail is local to the accelerators it serves.

Works on numbers only: rows (one per resource) of whole devices over numbered zones (NUMA nodes), the preferred zone
first. Exact, by enumeration, if at most one resource of a side is in several zones: there are few zones (kubelet's
topology manager supports at most 8), and most rails exist in one zone only, so few choices remain.
"""

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import add, le, mul, sub
from typing import NamedTuple

import msgspec

Counts = list[int]
"""Number of devices by NUMA node."""


class DeviceRow(NamedTuple):
    """One resource."""

    requested: int  # number of devices
    caps: tuple[int, ...]  # how many of these each NUMA node could provide


Allocation = tuple[list[Sequence[int]], list[Sequence[int]]]
"""The allocation of each row by zone: accelerators, rails; rows in the given order."""


class Split(msgspec.Struct, frozen=True):
    """The best split."""

    is_aligned: bool
    local: int  # number of rail devices in the zone of the accelerators they serve
    allocation: tuple[Sequence[int], ...]  # devices of each row by zone: accelerators, then rails, in the given order


@functools.lru_cache(maxsize=4096)  # a cluster has few different numbers of free devices
def find_best_split(accelerators: tuple[DeviceRow, ...], rails: tuple[DeviceRow, ...], zone_count: int) -> Split | None:
    """Return the best split, or None if a row does not fit.

    Aligned if possible, otherwise with the most local rails; then the fewest zones, then the first ones. Aligned means
    that the share of rails of each zone differs from its share of accelerators by less than one device. Without rails,
    or without accelerators, any split is aligned.
    """
    gpu_side, rail_side = _Side(accelerators, zone_count), _Side(rails, zone_count)
    if gpu_side.is_short or rail_side.is_short:
        return None
    pairing = _Pairing(gpu_side, rail_side, zone_count)
    rail_devices = rail_side.requested
    attempt = pairing.split_aligned if rail_devices and gpu_side.requested else pairing.split_freely
    if allocation := pairing.find_fewest_zones(attempt):
        return Split(is_aligned=True, local=rail_devices, allocation=(*allocation[0], *allocation[1]))
    for local in range(rail_devices, -1, -1):
        if allocation := pairing.find_fewest_zones(pairing.build_attempt(local)):
            return Split(is_aligned=False, local=local, allocation=(*allocation[0], *allocation[1]))
    return None  # not reached: each row fits, so a split with 0 local rails always exists


class _Side:
    """The rows of accelerators, or of rails. Rows with one possible zone are fixed, the others are flexible."""

    def __init__(self, rows: Sequence[DeviceRow], zone_count: int) -> None:
        self.requested = 0
        self.is_short = False  # a row does not fit
        self.fixed = [0] * zone_count
        self.most = [0] * zone_count
        self.rows: list[Sequence[int]] = []
        self.flexible: list[tuple[int, DeviceRow]] = []  # with the index of each in `rows`
        for index, (requested, caps) in enumerate(rows):
            self.requested += requested
            self.rows.append(caps)
            most, total = max(caps), sum(caps)
            if total < requested:
                self.is_short = True
            elif most == total:
                self.fixed[caps.index(most)] += most
                self.most[caps.index(most)] += most
            else:
                self.most = list(map(add, self.most, caps))
                self.flexible.append((index, DeviceRow(requested, caps)))

    def allocate(self, least: Counts, target: Counts, most: Counts) -> list[Sequence[int]] | None:
        """Allocate all rows within bounds on the sum of each zone; None if that is impossible.

        Places are first filled up to `target`, then up to `most`, in order.
        """
        if not self.flexible:  # the rails of most fabrics
            fits = all(map(le, least, self.fixed)) and all(map(le, self.fixed, most))
            return self.rows if fits else None
        low = [lo - have if lo > have else 0 for lo, have in zip(least, self.fixed, strict=True)]
        high = list(map(sub, most, self.fixed))
        if not all(map(le, low, high)):
            return None
        mid = [max(lo, min(to - have, hi)) for lo, to, have, hi in zip(low, target, self.fixed, high, strict=True)]
        counts_by_row = _allocate_rows([row for _, row in self.flexible], low, mid, high)
        if counts_by_row is None:
            return None
        allocation = list(self.rows)
        for (index, _), counts in zip(self.flexible, counts_by_row, strict=True):
            allocation[index] = counts
        return allocation


class _Pairing:
    """Accelerators and rails together, tried on sets of zones (`allowed`: 1 if a zone may be used, else 0)."""

    def __init__(self, gpus: _Side, rails: _Side, zone_count: int) -> None:
        self.gpus, self.rails, self.zone_count = gpus, rails, zone_count
        self.none_by_zone = [0] * zone_count
        local_by_gpus = [  # upper bound for the local rails of a zone, by the accelerators that it can provide
            _ceil(rails.requested * most, gpus.requested) if gpus.requested else rails.requested for most in gpus.most
        ]
        self.max_local = list(map(min, local_by_gpus, rails.most))

    def find_fewest_zones(self, attempt: Callable[[Counts], Allocation | None]) -> Allocation | None:
        """Return the attempt's allocation on the fewest zones, the first such; None if all zones together fail."""
        on_all_zones = attempt([1] * self.zone_count)
        if on_all_zones is None:
            return None
        needed = list(map(bool, map(add, self.gpus.fixed, self.rails.fixed)))
        optional = [zone for zone, need in enumerate(needed) if not need]
        least = max(_count_min_zones(self.gpus), _count_min_zones(self.rails)) - (self.zone_count - len(optional))
        for more in range(max(0, least), len(optional)):
            for chosen in itertools.combinations(optional, more):
                if allocation := attempt([int(need or zone in chosen) for zone, need in enumerate(needed)]):
                    return allocation
        return on_all_zones

    def split_freely(self, allowed: Counts) -> Allocation | None:
        """Return any split over the open zones."""
        return self._allocate_both(
            self.none_by_zone, self.gpus.most, allowed, self.none_by_zone, _limit_to(self.rails.most, allowed)
        )

    def split_aligned(self, allowed: Counts) -> Allocation | None:
        """Return an aligned split or None: |rails of zone x A - accelerators of zone x R| < A for each zone."""
        gpus, rails = self.gpus.requested, self.rails.requested
        # `least` and `most` are the condition solved for the accelerators: (r - 1) x A / R < a < (r + 1) x A / R
        for counts in self._list_rail_counts(allowed):
            least = [(count - 1) * gpus // rails + 1 if count else 0 for count in counts]
            most = [_ceil((count + 1) * gpus, rails) - 1 for count in counts]
            if allocation := self._allocate_both(least, most, allowed, counts, counts):
                return allocation
        return None

    def _list_rail_counts(self, allowed: Counts) -> Iterable[Counts]:
        """Return the possible numbers of rails by zone."""
        most = _limit_to(self.max_local, allowed)
        if self.rails.flexible:
            return _list_compositions(self.rails.requested, self.rails.fixed, most)
        return [self.rails.fixed] if all(map(le, self.rails.fixed, most)) else []

    def build_attempt(self, local: int) -> Callable[[Counts], Allocation | None]:
        """Return a function that tries to find a split with this number of local rails."""
        gpus, rails = self.gpus.requested, self.rails.requested

        def attempt(allowed: Counts) -> Allocation | None:
            for counts in _list_compositions(local, self.none_by_zone, _limit_to(self.max_local, allowed)):
                least = [(count - 1) * gpus // rails + 1 if count else 0 for count in counts]
                if allocation := self._allocate_both(
                    least, self.gpus.most, allowed, counts, _limit_to(self.rails.most, allowed)
                ):
                    return allocation
            return None

        return attempt

    def _allocate_both(
        self, least_gpus: Counts, most_gpus: Counts, allowed: Counts, least_rails: Counts, most_rails: Counts
    ) -> Allocation | None:
        target = (
            [count * self.gpus.requested // self.rails.requested for count in least_rails]
            if self.rails.requested
            else least_gpus
        )
        gpus = self.gpus.allocate(least_gpus, target, list(map(min, most_gpus, _limit_to(self.gpus.most, allowed))))
        rails = self.rails.allocate(least_rails, least_rails, most_rails) if gpus is not None else None
        return None if gpus is None or rails is None else (gpus, rails)


def _count_min_zones(side: _Side) -> int:
    """Return a lower bound for the number of zones that a side needs."""
    totals = itertools.accumulate(sorted(side.most, reverse=True), initial=0)
    return next(zones for zones, devices in enumerate(totals) if devices >= side.requested)


def _limit_to(counts: Counts, allowed: Counts) -> list[int]:
    return list(map(mul, counts, allowed))


def _ceil(number: int, by: int) -> int:
    return -(-number // by)


def _list_compositions(total: int, least: Counts, most: Counts) -> Iterator[list[int]]:
    """Yield all ways to spread a total over zones within bounds, in descending lexicographic order."""
    if not least:
        if total == 0:
            yield []
        return
    below, above = sum(least[1:]), sum(most[1:])
    for first in range(min(most[0], total - below), max(least[0], total - above) - 1, -1):
        for rest in _list_compositions(total - first, least[1:], most[1:]):
            yield [first, *rest]


def _allocate_rows(rows: Sequence[DeviceRow], least: Counts, target: Counts, most: Counts) -> list[Counts] | None:
    """Allocate flexible rows one after the other, within bounds on the sum of each zone.

    With several rows, which are rare, an allocation may be missed: the first takes a place that the second needs.
    """
    filled, allocation = [0] * len(least), []
    for requested, caps in rows:
        counts, left = [0] * len(least), requested
        for upper in (least, target, most):
            for zone, bound in enumerate(upper):
                more = min(left, bound - filled[zone], caps[zone] - counts[zone])
                if more > 0:
                    counts[zone] += more
                    filled[zone] += more
                    left -= more
        if left:
            return None
        allocation.append(counts)
    return allocation if all(map(le, least, filled)) else None
