"""Scores a node for a single-pod job, which fills partly used nodes before it takes idle ones.

Order: nodes that hold the pod's GPUs on the fewest NUMA nodes; among these, partly used nodes; among these, the
fullest; among equally full nodes, the alignment of the pod's rails (docs/interface.md 7.6).
"""

from collections.abc import Mapping

from railwright.fabric import resources
from railwright.fabric.placement.nodes import node_evaluation
from railwright.fabric.placement.nodes.terms import numa, packing

_COMPACT, _FULL = 1.0, 0.9  # unsplit GPUs outweigh any difference in utilization
_ALIGNED = 0.5  # weight of rail alignment, in accelerators of utilization


REPLACED_TERMS = frozenset({numa.TERM.name, packing.TERM.name})  # by the fill order

FillOrder = tuple[float, ...]
"""Sort key of a node; lower comes first."""


def compute_fill_order(evaluation: node_evaluation.NodeEvaluation) -> FillOrder:
    """Return the sort key of a node; lower comes first."""
    return (
        evaluation.capacity.fill_priority,
        -round(packing.compute_utilization(evaluation), 6),
        -numa.TERM.score(evaluation).value,
    )


def score_fill_order(evaluation: node_evaluation.NodeEvaluation, weights: Mapping[str, float]) -> float:
    """Return the order as a number between 0 and the sum of the weights of `numa` and `packing`. Rails are left out.

    `weights` are those of the enabled terms.
    """
    has_numa_term = numa.TERM.name in weights
    tie = _ALIGNED / max((usage.allocatable // resources.UNIT for usage in packing.list_usage(evaluation)), default=1)
    is_unsplit = evaluation.capacity.unsplit_slots > 0 if has_numa_term else True
    alignment = numa.TERM.score(evaluation).value if has_numa_term else 1.0
    utilization = (packing.compute_utilization(evaluation) + tie * alignment) / (1 + tie)
    weight = weights.get(numa.TERM.name, 0.0) + weights.get(packing.TERM.name, 0.0)
    return weight * (_COMPACT * is_unsplit + _FULL * utilization) / (_COMPACT + _FULL)
