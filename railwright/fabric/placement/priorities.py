"""Scores of 0..100 as the integers of 0..10 that kube-scheduler takes from an extender.

Owns the mapping alone; kube-scheduler multiplies each step by ten times the extender's `weight` and adds the scores of
its own plugins. The best node gets 10. A node that is worse by d points loses the square root of d steps, rounded:
less than a quarter of a point is no difference, 1 point is one step, another leaf (24 points by default) five, 100
points ten. Plain tenths would lose a rail or a NUMA split; spreading the scores over the whole range would make a
fraction of a point outweigh every preference of the user.
"""

import math

MOST = 10  # extenderv1.MaxExtenderPriority
_HIGHEST = 100.0


class Priorities(dict[float, int]):
    """Score -> its integer, worked out once for each score: 5,000 nodes have few different ones."""

    def __init__(self, best: float) -> None:
        super().__init__()
        self._best = best

    def __missing__(self, score: float) -> int:
        priority = self[score] = self._priority(score)
        return priority

    def _priority(self, score: float) -> int:
        if self._best <= 0:
            return 0  # a pod that did not opt in, or nodes that are all refused or unknown
        lost = math.sqrt(max(0.0, self._best - score) * MOST * MOST / _HIGHEST)
        return max(0, MOST - int(lost + 0.5))
