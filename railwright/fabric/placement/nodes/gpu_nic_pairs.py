"""Splits accelerators and rail devices over NUMA nodes so that each rail is local to the accelerators it serves.

Input and output are numbers: a row for each resource, with its whole devices in each zone (NUMA node), the preferred
zone first. Exact, by enumeration, if at most one resource of a side is in several zones: there are few zones (kubelet's
topology manager supports at most 8), and most rails exist in one zone only, so few choices remain.
"""

import functools
import itertools
from collections.abc import Iterator, Sequence
from operator import le
from typing import NamedTuple

import msgspec

Counts = Sequence[int]
"""Number of devices by NUMA node."""


class DeviceRow(NamedTuple):
    """One resource."""

    requested: int  # number of devices
    caps: tuple[int, ...]  # how many of these each NUMA node could provide


class Split(msgspec.Struct, frozen=True):
    """The best split."""

    local: int  # number of rail devices in the zone of the accelerators they serve
    allocation: tuple[Counts, ...]  # devices of each row by zone: accelerators, then rails, in the given order


@functools.lru_cache(maxsize=4096)  # a cluster has few different numbers of free devices
def find_best_split(accelerators: tuple[DeviceRow, ...], rails: tuple[DeviceRow, ...], zone_count: int) -> Split | None:
    """Return the best split, or None if a row does not fit.

    Aligned if possible, otherwise with the most local rails; then the fewest zones, then the first ones. Aligned means
    that the share of rails of each zone differs from its share of accelerators by less than one device. Without rails,
    or without accelerators, any split is aligned.
    """
    if not accelerators and not rails:
        return Split(local=0, allocation=())
    gpus, rail_devices = (sum(row.requested for row in side) for side in (accelerators, rails))
    attempts = [(True, rail_devices)]
    if gpus and rail_devices:
        attempts += [(False, local) for local in range(rail_devices, -1, -1)]
    every = range(zone_count)
    for is_aligned, local in attempts:
        if on_all_zones := _allocate(accelerators, rails, every, local, is_aligned=is_aligned):
            subsets = (zones for size in every for zones in itertools.combinations(every, size))
            tries = (_allocate(accelerators, rails, zones, local, is_aligned=is_aligned) for zones in subsets)
            return Split(local, next(filter(None, tries), on_all_zones))
    return None


def _allocate(
    accelerators: Sequence[DeviceRow], rails: Sequence[DeviceRow], zones: Counts, local: int, *, is_aligned: bool
) -> tuple[Counts, ...] | None:
    """Return the devices of each row by zone, on these zones only and with `local` local rails; None if impossible."""
    gpu_rows, rail_rows = (
        [DeviceRow(row.requested, tuple([cap * (at in zones) for at, cap in enumerate(row.caps)])) for row in side]
        for side in (accelerators, rails)
    )
    if any(sum(row.caps) < row.requested for row in (*gpu_rows, *rail_rows)):
        return None
    none: Counts = [0] * len((*gpu_rows, *rail_rows)[0].caps)
    most_gpus, most_rails = _add_up(gpu_rows, none), _add_up(rail_rows, none)
    gpus, devices = sum(row.requested for row in gpu_rows), sum(row.requested for row in rail_rows)
    if not gpus or not devices:
        return _join(_fill(gpu_rows, none, none, most_gpus), _fill(rail_rows, none, none, most_rails))
    # With r rails in a zone that has a accelerators, all r are local if (r - 1) x gpus / devices < a. The split is
    # aligned if also a < (r + 1) x gpus / devices in each zone. Both are solved for a.
    most_local = [
        min(-(-devices * gpus_here // gpus), here) for gpus_here, here in zip(most_gpus, most_rails, strict=True)
    ]
    least_local = none
    if local == devices:  # a rail that is in one zone only has no choice
        least_local = _add_up([row for row in rail_rows if max(row.caps) == sum(row.caps)], none)
    for counts in _list_compositions(local, least_local, most_local):
        least = [(count - 1) * gpus // devices + 1 if count else 0 for count in counts]
        most = most_gpus
        if is_aligned:
            most = [
                min(-(-(count + 1) * gpus // devices) - 1, cap) for count, cap in zip(counts, most_gpus, strict=True)
            ]
        share = [count * gpus // devices for count in counts]
        if found := _join(_fill(gpu_rows, least, share, most), _fill(rail_rows, counts, counts, most_rails)):
            return found
    return None


def _add_up(rows: Sequence[DeviceRow], start: Counts) -> Counts:
    return [sum(caps) for caps in zip(start, *[row.caps for row in rows], strict=True)]


def _join(accelerators: list[Counts] | None, rails: list[Counts] | None) -> tuple[Counts, ...] | None:
    return None if accelerators is None or rails is None else (*accelerators, *rails)


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


def _fill(rows: Sequence[DeviceRow], least: Counts, share: Counts, most: Counts) -> list[Counts] | None:
    """Allocate rows one after the other, within bounds on the sum of each zone; None if that is impossible.

    Zones are first filled up to `least`, then up to `share`, then up to `most`, in order. Rows that are in one zone
    only come first. With several others, which are rare, a possible allocation may be missed, because the first takes
    devices that the second needs.
    """
    filled, allocation = [0] * len(least), [[0] * len(least) for _ in rows]
    for index in sorted(range(len(rows)), key=lambda at: max(rows[at].caps) < sum(rows[at].caps)):
        (left, caps), counts = rows[index], allocation[index]
        for upper in (least, share, most):
            for zone, bound in enumerate(upper):
                more = min(left, bound - filled[zone], caps[zone] - counts[zone])
                if more > 0:
                    counts[zone] += more
                    filled[zone] += more
                    left -= more
        if left:
            return None
    return list(allocation) if all(map(le, least, filled)) else None
