"""Scores a node for a single-pod job, which fills partly used nodes before it takes idle ones.

Order: nodes that hold the pod's GPUs on the fewest NUMA nodes; among these, partly used nodes; among these, the
fullest; among equally full nodes, the alignment of the pod's rails (docs/interface.md 7.6).
"""

from collections.abc import Mapping

from railwright.fabric import resources
from railwright.fabric.placement import standing
from railwright.fabric.placement.terms import numa, packing

_COMPACT, _FULL = 1.0, 0.9  # unsplit GPUs outweigh any difference in utilization
_ALIGNED = 0.5  # weight of rail alignment, in accelerators of utilization


Order = tuple[float, ...]
"""Sort key of a node; lower comes first."""


def order(node: standing.Standing) -> Order:
    """Return the sort key of a node; lower comes first."""
    return node.grade.reserve, -round(packing.share(node), 6), -numa.value(node)[0]


def worth(node: standing.Standing, weights: Mapping[str, float]) -> float:
    """Return the order as a number between 0 and the sum of the weights of `numa` and `packing`. Rails are left out.

    `weights` are those of the enabled terms.
    """
    judged = numa.NAME in weights
    tie = _ALIGNED / max((total // resources.UNIT for _, total, _ in packing.filling(node)), default=1)
    compact = node.grade.compact > 0 if judged else True
    aligned = numa.value(node)[0] if judged else 1.0
    full = (packing.share(node) + tie * aligned) / (1 + tie)
    weight = weights.get(numa.NAME, 0.0) + weights.get(packing.NAME, 0.0)
    return weight * (_COMPACT * compact + _FULL * full) / (_COMPACT + _FULL)
