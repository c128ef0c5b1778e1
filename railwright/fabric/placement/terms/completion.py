"""What a node is worth to a job of one pod: it completes nodes, and does not break whole ones.

Owns that order. A node comes first that holds the pod's GPUs on the fewest NUMA nodes, of these one that is in use, of
these the fullest; among nodes equally full the alignment of the pod's rails decides.
"""

from collections.abc import Mapping

from railwright.fabric import resources
from railwright.fabric.placement import standing
from railwright.fabric.placement.terms import numa, packing

_COMPACT, _FULL = 1.0, 0.9  # GPUs that are not split outweigh any difference in how full nodes are
_ALIGNED = 0.5  # of one accelerator: what the alignment of rails counts beside how full nodes are


Order = tuple[float, ...]
"""The lower, the earlier a node is taken."""


def order(node: standing.Standing) -> Order:
    """The lower, the earlier a node is taken."""
    return node.grade.reserve, -round(packing.share(node), 6), -numa.value(node)[0]


def worth(node: standing.Standing, weights: Mapping[str, float]) -> float:
    """What a node is worth without its rails, of the weights of NUMA nodes and packing together: the order as a number.

    `weights`: of the terms that count.
    """
    judged = numa.NAME in weights
    tie = _ALIGNED / max((total // resources.UNIT for _, total, _ in packing.filling(node)), default=1)
    compact = node.grade.compact > 0 if judged else True
    aligned = numa.value(node)[0] if judged else 1.0
    full = (packing.share(node) + tie * aligned) / (1 + tie)
    weight = weights.get(numa.NAME, 0.0) + weights.get(packing.NAME, 0.0)
    return weight * (_COMPACT * compact + _FULL * full) / (_COMPACT + _FULL)
