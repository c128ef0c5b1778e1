"""Maps scores of 0..100 to the integers of 0..10 that kube-scheduler accepts from an extender.

kube-scheduler multiplies each step by ten times the extender's `weight` and adds the scores of its own plugins. The
best node gets 10. A node that is worse by d points loses the square root of d steps, rounded: less than a quarter of a
point makes no difference, 1 point is one step, another leaf (24 points by default) is five, 100 points are ten. A
linear mapping would hide a missing rail or a NUMA split. Stretching the scores to the whole range would let a fraction
of a point outweigh the user's preferences (docs/interface.md 7.5).
"""

import math

MAX_PRIORITY = 10  # extenderv1.MaxExtenderPriority
_HIGHEST = 100.0


class KubePriorities(dict[float, int]):
    """Score -> integer, computed once for each distinct score: 5,000 nodes have few of them."""

    def __init__(self, best: float) -> None:
        super().__init__()
        self._best = best

    def __missing__(self, score: float) -> int:
        priority = self[score] = self._compute_priority(score)
        return priority

    def _compute_priority(self, score: float) -> int:
        if self._best <= 0:
            return 0  # the pod did not opt in, or all nodes are infeasible or not in the cache
        lost = math.sqrt(max(0.0, self._best - score) * MAX_PRIORITY * MAX_PRIORITY / _HIGHEST)
        return max(0, MAX_PRIORITY - int(lost + 0.5))
