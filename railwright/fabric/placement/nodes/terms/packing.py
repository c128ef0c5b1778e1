"""Scores the utilization of the node with the pod on it: fuller nodes first, so that idle nodes stay idle."""

from collections.abc import Sequence

from railwright.fabric.placement.nodes import node_evaluation
from railwright.fabric.placement.nodes.terms.term_score import TermScore
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import Code

NAME = "packing"


def score(evaluation: node_evaluation.NodeEvaluation) -> TermScore:
    """Return the utilization with the pod, 0..1."""
    if not list_usage(evaluation):
        return TermScore(0.0, reason.make(Code.NO_DEVICES_REQUESTED))
    devices = "accelerators" if evaluation.demand.accelerators else "rail devices"
    utilization = compute_utilization(evaluation)
    return TermScore(utilization, reason.make(Code.DEVICES_UTILIZED, share=utilization, devices=devices))


def compute_utilization(evaluation: node_evaluation.NodeEvaluation) -> float:
    """Return the mean utilization with the pod, of the requested accelerators, or of rail pools if it requests none.

    A pool may have a hundred devices on a node of eight accelerators, so pools alone would not show how full it is.
    """
    shares = [min(1.0, (total - free + requested) / total) for free, total, requested in list_usage(evaluation)]
    return sum(shares) / len(shares) if shares else 0.0


def list_usage(evaluation: node_evaluation.NodeEvaluation) -> Sequence[tuple[int, int, int]]:
    """Return (free, allocatable, requested by the pod) of each resource that counts for utilization."""
    accelerators = {name for name, _ in evaluation.demand.accelerators}
    usages = [amounts for name, amounts in evaluation.usage.items() if name in accelerators or not accelerators]
    return [amounts for amounts in usages if amounts[1] > 0]
