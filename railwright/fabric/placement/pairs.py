"""Splits accelerators and rail devices over NUMA nodes so that each rail is local to the accelerators it serves.

Works on numbers only: rows (one per resource) of whole devices over numbered places (NUMA nodes), preferred place
first. Exact, by enumeration: there are few places (kubelet's topology manager supports at most 8), and most rails exist
in one place only, so few choices remain.
"""

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import add, le, mul, sub

import msgspec

Counts = list[int]
"""Number of devices by place."""

Row = tuple[int, tuple[int, ...]]
"""One resource: number of requested devices, and how many of these each place could provide."""

Laid = tuple[list[Sequence[int]], list[Sequence[int]]]
"""The allocation of each row by place: accelerators, rails; rows in the given order."""


class Split(msgspec.Struct, frozen=True):
    """The best split."""

    aligned: bool
    local: int  # number of rail devices in the place of the accelerators they serve
    laid: tuple[Sequence[int], ...]  # devices of each row by place: accelerators, then rails, in the given order


@functools.lru_cache(maxsize=4096)  # a cluster has few different numbers of free devices
def best(accelerators: tuple[Row, ...], rails: tuple[Row, ...], places: int) -> Split | None:
    """Return the best split, or None if a row does not fit.

    Aligned if possible, otherwise with the most local rails; then the fewest places, then the first ones. Aligned means
    that the share of rails of each place differs from its share of accelerators by less than one device. Without rails,
    or without accelerators, any split is aligned.
    """
    gpus, wires = _Side(accelerators, places), _Side(rails, places)
    if gpus.short or wires.short:
        return None
    pairing = _Pairing(gpus, wires, places)
    wanted = wires.wanted
    attempt = pairing.matched if wanted and gpus.wanted else pairing.unpaired
    if laid := pairing.fewest(attempt):
        return Split(aligned=True, local=wanted, laid=(*laid[0], *laid[1]))
    for local in range(wanted, -1, -1):
        if laid := pairing.fewest(pairing.beside(local)):
            return Split(aligned=False, local=local, laid=(*laid[0], *laid[1]))
    return None  # not reached: each row fits, so a split with 0 local rails always exists


class _Side:
    """The rows of accelerators, or of rails. Rows with one possible place are fixed, the others are flexible."""

    def __init__(self, rows: Sequence[Row], places: int) -> None:
        self.wanted = 0
        self.short = False  # a row does not fit
        self.settled = [0] * places
        self.most = [0] * places
        self.rows: list[Sequence[int]] = []
        self.moving: list[tuple[int, Row]] = []  # with the index of each in `rows`
        for index, (wanted, caps) in enumerate(rows):
            self.wanted += wanted
            self.rows.append(caps)
            most, total = max(caps), sum(caps)
            if total < wanted:
                self.short = True
            elif most == total:
                self.settled[caps.index(most)] += most
                self.most[caps.index(most)] += most
            else:
                self.most = list(map(add, self.most, caps))
                self.moving.append((index, (wanted, caps)))

    def lay(self, least: Counts, aim: Counts, most: Counts) -> list[Sequence[int]] | None:
        """Allocate all rows within bounds on the sum of each place; None if that is impossible.

        Places are first filled up to `aim`, then up to `most`, in order.
        """
        if not self.moving:  # the rails of most fabrics
            fits = all(map(le, least, self.settled)) and all(map(le, self.settled, most))
            return self.rows if fits else None
        low = [lo - have if lo > have else 0 for lo, have in zip(least, self.settled, strict=True)]
        high = list(map(sub, most, self.settled))
        if not all(map(le, low, high)):
            return None
        mid = [max(lo, min(to - have, hi)) for lo, to, have, hi in zip(low, aim, self.settled, high, strict=True)]
        laid = _laid([row for _, row in self.moving], low, mid, high)
        if laid is None:
            return None
        found = list(self.rows)
        for (index, _), counts in zip(self.moving, laid, strict=True):
            found[index] = counts
        return found


class _Pairing:
    """Accelerators and rails together, tried on sets of places (`open_`: 1 if a place may be used, else 0)."""

    def __init__(self, gpus: _Side, rails: _Side, places: int) -> None:
        self.gpus, self.rails, self.places = gpus, rails, places
        self.nowhere = [0] * places
        served = [  # upper bound for the local rails of a place, by the accelerators that it can provide
            _ceil(rails.wanted * most, gpus.wanted) if gpus.wanted else rails.wanted for most in gpus.most
        ]
        self.served = list(map(min, served, rails.most))

    def fewest(self, attempt: Callable[[Counts], Laid | None]) -> Laid | None:
        """Return the attempt's allocation on the fewest places, the first such; None if all places together fail."""
        everywhere = attempt([1] * self.places)
        if everywhere is None:
            return None
        needed = list(map(bool, map(add, self.gpus.settled, self.rails.settled)))
        optional = [place for place, need in enumerate(needed) if not need]
        least = max(_places(self.gpus), _places(self.rails)) - (self.places - len(optional))
        for more in range(max(0, least), len(optional)):
            for chosen in itertools.combinations(optional, more):
                if laid := attempt([int(need or place in chosen) for place, need in enumerate(needed)]):
                    return laid
        return everywhere

    def unpaired(self, open_: Counts) -> Laid | None:
        """Return any split over the open places."""
        return self._both(self.nowhere, self.gpus.most, open_, self.nowhere, _open(self.rails.most, open_))

    def matched(self, open_: Counts) -> Laid | None:
        """Return an aligned split or None: |rails of place x A - accelerators of place x R| < A for each place."""
        gpus, rails = self.gpus.wanted, self.rails.wanted
        for counts in self._shares(open_):
            least = [(count - 1) * gpus // rails + 1 if count else 0 for count in counts]
            most = [_ceil((count + 1) * gpus, rails) - 1 for count in counts]
            if laid := self._both(least, most, open_, counts, counts):
                return laid
        return None

    def _shares(self, open_: Counts) -> Iterable[Counts]:
        """Return the possible numbers of rails by place."""
        most = _open(self.served, open_)
        if self.rails.moving:
            return _compositions(self.rails.wanted, self.rails.settled, most)
        return [self.rails.settled] if all(map(le, self.rails.settled, most)) else []

    def beside(self, local: int) -> Callable[[Counts], Laid | None]:
        """Return a function that tries to find a split with this number of local rails."""
        gpus, rails = self.gpus.wanted, self.rails.wanted

        def attempt(open_: Counts) -> Laid | None:
            for counts in _compositions(local, self.nowhere, _open(self.served, open_)):
                least = [(count - 1) * gpus // rails + 1 if count else 0 for count in counts]
                if laid := self._both(least, self.gpus.most, open_, counts, _open(self.rails.most, open_)):
                    return laid
            return None

        return attempt

    def _both(
        self, least_gpus: Counts, most_gpus: Counts, open_: Counts, least_rails: Counts, most_rails: Counts
    ) -> Laid | None:
        aim = (
            [count * self.gpus.wanted // self.rails.wanted for count in least_rails]
            if self.rails.wanted
            else least_gpus
        )
        gpus = self.gpus.lay(least_gpus, aim, list(map(min, most_gpus, _open(self.gpus.most, open_))))
        rails = self.rails.lay(least_rails, least_rails, most_rails) if gpus is not None else None
        return None if gpus is None or rails is None else (gpus, rails)


def _places(side: _Side) -> int:
    """Return a lower bound for the number of places that a side needs."""
    held = itertools.accumulate(sorted(side.most, reverse=True), initial=0)
    return next(places for places, devices in enumerate(held) if devices >= side.wanted)


def _open(counts: Counts, open_: Counts) -> list[int]:
    return list(map(mul, counts, open_))


def _ceil(number: int, by: int) -> int:
    return -(-number // by)


def _compositions(total: int, least: Counts, most: Counts) -> Iterator[list[int]]:
    """Yield all ways to spread a total over places within bounds, in descending lexicographic order."""
    if not least:
        if total == 0:
            yield []
        return
    below, above = sum(least[1:]), sum(most[1:])
    for first in range(min(most[0], total - below), max(least[0], total - above) - 1, -1):
        for rest in _compositions(total - first, least[1:], most[1:]):
            yield [first, *rest]


def _laid(rows: Sequence[Row], least: Counts, aim: Counts, most: Counts) -> list[Counts] | None:
    """Allocate flexible rows within bounds on the sum of each place."""
    if not rows:
        return None if any(least) else []
    if len(rows) == 1:  # the usual case: one accelerator resource, at most one pool over several places
        wanted, caps = rows[0]
        counts = _filled(wanted, least, aim, list(map(min, caps, most)))
        return None if counts is None else [counts]
    flow = [[0] * len(least) for _ in rows]
    if any(_poured(rows, flow, list(least))):
        return None
    for lower, upper in ((least, aim), (aim, most)):
        _poured(rows, flow, list(map(sub, upper, lower)))  # augmenting never reduces the sum of a place
    return list(flow) if all(sum(counts) == wanted for counts, (wanted, _) in zip(flow, rows, strict=True)) else None


def _filled(total: int, least: Counts, aim: Counts, most: Counts) -> list[int] | None:
    """Spread a total over places within bounds: first up to `aim`, then up to `most`."""
    left = total - sum(least)
    if left < 0 or sum(most) < total or not all(map(le, least, most)):
        return None
    counts = list(least)
    for upper in (aim, most):
        for place, bound in enumerate(upper):
            more = min(left, bound - counts[place], most[place] - counts[place])
            if more > 0:
                counts[place] += more
                left -= more
    return counts


def _poured(rows: Sequence[Row], flow: list[list[int]], left: list[int]) -> list[int]:
    """Add as much of all rows to the flow as the places in `left` take (maximum flow); return what is left."""
    for index, (wanted, _) in enumerate(rows):
        while _push(rows, flow, index, wanted - sum(flow[index]), left, set()):
            pass
    return left


def _push(  # noqa: PLR0913, PLR0917 - an augmenting path: the graph, where the flow stands, and what was tried
    rows: Sequence[Row], flow: list[list[int]], row: int, amount: int, left: list[int], seen: set[int]
) -> int:
    """Send devices of a row along an augmenting path, moving other rows if necessary; return the number sent."""
    for place, cap in enumerate(rows[row][1]):
        spare = min(amount, cap - flow[row][place])
        if place in seen or spare <= 0:
            continue
        seen.add(place)
        sent = min(spare, left[place])
        left[place] -= sent
        others = (other for other in range(len(rows)) if other != row and not sent)
        for other in others:
            sent = _push(rows, flow, other, min(spare, flow[other][place]), left, seen)
            flow[other][place] -= sent
        flow[row][place] += sent
        if sent:
            return sent
    return 0
