"""Chooses a number of leaves with enough slots and the fewest unused ones; exactly if that is affordable."""

from collections.abc import Mapping
from typing import NamedTuple

from railwright.fabric import topology

_MAX_EXACT_CELLS = 4096  # number of leaves x leaves to choose, for which the fit is exact; about 2 ms


class Selection(NamedTuple):
    """Selected leaves."""

    leaves: tuple[topology.Domain, ...]
    is_exact: bool  # False: not every choice was tried


def choose_tightest(left: int, count: int, candidates: Mapping[topology.Domain, int]) -> Selection:
    """Return `count` leaves with at least `left` slots and the fewest unused ones; on ties prefer small leaves."""
    order = sorted(candidates, key=lambda leaf: (candidates[leaf], leaf))
    if len(order) * count > _MAX_EXACT_CELLS:
        taken = order[:-count:-1] if count > 1 else []
        missing = left - sum(candidates[leaf] for leaf in taken)
        rest = order[: len(order) - len(taken)]
        last_leaf = next(leaf for leaf in rest if candidates[leaf] >= missing)
        return Selection((*taken, last_leaf), is_exact=False)
    # reach[i][k]: bit s is set if k of the first i leaves have s slots in total
    limit = (1 << (left + candidates[order[-1]] + 1)) - 1
    reach = [[1] + [0] * count]
    for leaf in order:
        slots, last = candidates[leaf], reach[-1]
        reach.append([1, *(last[k] | (last[k - 1] << slots & limit) for k in range(1, count + 1))])
    sums = reach[-1][count] >> left
    if not sums:  # the sum is above the limit: only the largest leaves have enough slots
        return Selection(tuple(order[-count:]), is_exact=True)
    total, chosen, k = left + (sums & -sums).bit_length() - 1, [], count
    for index in range(len(order) - 1, -1, -1):
        if k and not reach[index][k] >> total & 1:
            chosen.append(order[index])
            total -= candidates[order[index]]
            k -= 1
    return Selection(tuple(chosen), is_exact=True)
