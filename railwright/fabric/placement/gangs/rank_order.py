"""Assigns ranks to leaves: neighbours in rank order belong on the same leaf, because the ring runs in rank order.

The planner chooses the leaves. This module finds the leaf of a rank, and the leaves near it.
"""

import bisect
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from railwright.fabric import topology


class Ring(NamedTuple):
    """The waiting and the placed ranks of a gang, in order. A rank may have any type that sorts."""

    waiting: Sequence[Any]  # in order
    placed: Sequence[Any]  # in order
    leaves: Sequence[topology.Domain]  # of each placed rank
    is_closed: bool  # all ranks are known, so that the last one is followed by the first

    def list_nearest_leaves(self, rank: Any) -> Sequence[topology.Domain]:
        """Return the distinct leaves of the placed ranks, those nearest to a rank first.

        The leaf of the previous placed rank comes first, then that of the next one, then the others by descending rank.
        """
        at = bisect.bisect_left(self.placed, rank)
        before, after = self.leaves[:at][::-1], self.leaves[at:]
        next_leaves = after[:1] if after or not self.is_closed else before[-1:]
        leaves = dict.fromkeys([*before[:1], *next_leaves, *before, *after])
        leaves.pop(topology.NO_DOMAIN, None)
        return list(leaves)

    def find_target_leaf(
        self, rank: Any, order: Sequence[topology.Domain], slots_by_leaf: Mapping[topology.Domain, int]
    ) -> topology.Domain | None:
        """Return the leaf that a rank gets if the plan's leaves are filled in the order of ranks; None if all are full.

        Waiting ranks between two placed ones are a run. A run begins on the leaf of the placed rank before it and ends
        on the leaf of the placed rank after it, while these have free slots. Runs that fit on one leaf are filled
        first, short ones before long ones; the others have to span several leaves.
        """
        # The same walk for each pod of the gang: with the same placed peers every rank finds its own place in it.
        free = dict(slots_by_leaf)
        for run in sorted(self._list_runs(), key=lambda run: _build_fill_order_key(run, slots_by_leaf)):
            rank_leaves = _fill_run(run, order, free)
            if rank in run.ranks:
                return rank_leaves[run.ranks.index(rank)]
        return next((leaf for leaf in order if free.get(leaf, 0) > 0), None)

    def _list_runs(self) -> list["_RankRun"]:
        """Return the runs of waiting ranks in order."""
        runs, begin = [], 0
        while begin < len(self.waiting):
            at = bisect.bisect_right(self.placed, self.waiting[begin])
            end = bisect.bisect_left(self.waiting, self.placed[at]) if at < len(self.placed) else len(self.waiting)
            next_leaf = self.leaves[at] if at < len(self.placed) else None
            runs.append(_RankRun(self.waiting[begin:end], self.leaves[at - 1] if at else None, next_leaf))
            begin = end
        # The last run ends at the first rank's leaf, if all pods exist and the first rank is placed. A waiting first
        # rank stays in the run that follows it, so that ranks ascend from leaf to leaf.
        if runs and self.is_closed and runs[0].previous_leaf is not None and runs[-1].next_leaf is None:
            runs[-1] = runs[-1]._replace(next_leaf=self.leaves[0])
        return runs


class _RankRun(NamedTuple):
    """Consecutive waiting ranks between two placed ones."""

    ranks: Sequence[Any]
    previous_leaf: topology.Domain | None
    next_leaf: topology.Domain | None


def _build_fill_order_key(run: _RankRun, slots_by_leaf: Mapping[topology.Domain, int]) -> tuple[bool, int]:
    """Return the sort key of a run of waiting ranks: runs that fit on a neighbour's leaf first, then shorter ones."""
    neighbours = {leaf for leaf in (run.previous_leaf, run.next_leaf) if leaf is not None}
    fits_on_one_leaf = len(neighbours) == 1 and len(run.ranks) <= slots_by_leaf.get(min(neighbours), 0)
    return not fits_on_one_leaf, len(run.ranks)


def _fill_run(
    run: _RankRun, order: Sequence[topology.Domain], free: dict[topology.Domain, int]
) -> list[topology.Domain | None]:
    """Return the leaf of each rank of one run, and subtract the used slots from `free`."""
    # The ends first: next to the placed peers an edge of the ring stays within a leaf.
    count = len(run.ranks)
    front = _take_slots(run.previous_leaf, count, free)
    back = _take_slots(run.next_leaf, count - len(front), free)
    middle: list[topology.Domain | None] = []
    if (run.previous_leaf or run.next_leaf) and count > len(front) + len(back):
        order = _sort_by_detour(list(filter(free.get, order)), run)
    for leaf in order:
        middle += _take_slots(leaf, count - len(front) - len(middle) - len(back), free)
    missing = count - len(front) - len(middle) - len(back)
    return [*front, *middle, *([None] * missing), *back]


def _sort_by_detour(leaves: Sequence[topology.Domain], run: _RankRun) -> Sequence[topology.Domain]:
    """Sort the leaves for ranks between two placed peers with full leaves: those near the previous peer come first.

    A gang may have hundreds of runs and of leaves, so a distance is computed once for all leaves of a parent.
    """

    def compute_detour(leaf: topology.Domain) -> tuple[int, int]:
        to_previous, to_next = (
            topology.compute_distance(leaf, peer_leaf) if peer_leaf else 0
            for peer_leaf in (run.previous_leaf, run.next_leaf)
        )
        return to_previous, -to_next

    detours = {parent: compute_detour(leaf) for parent, leaf in {leaf[1:]: leaf for leaf in leaves}.items()}
    return sorted(leaves, key=lambda leaf: detours[leaf[1:]])


def _take_slots(
    leaf: topology.Domain | None, count: int, free: dict[topology.Domain, int]
) -> list[topology.Domain | None]:
    """Return the leaf once for each slot that is used, at most `count` times, and subtract these slots from `free`."""
    taken = min(max(0, count), max(0, free.get(leaf, 0))) if leaf is not None else 0
    if leaf is not None and taken:
        free[leaf] -= taken
    return [leaf] * taken
