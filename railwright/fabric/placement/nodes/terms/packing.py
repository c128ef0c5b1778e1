"""Scores the utilization of the node with the pod on it: fuller nodes first, so that idle nodes stay idle."""

from collections.abc import Sequence

from railwright.fabric.placement.nodes import node_evaluation
from railwright.fabric.placement.nodes.terms import score_term
from railwright.fabric.policy import model
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import Code


class PackingTerm:
    """Scores utilization."""

    name = "packing"

    def get_weight(self, placement: model.Placement) -> float:
        """Return `placement.weights.packing`."""
        return placement.weights.packing

    def score(self, evaluation: node_evaluation.NodeEvaluation) -> score_term.TermScore:
        """Return the utilization with the pod, 0..1."""
        if not list_usage(evaluation):
            return score_term.TermScore(0.0, reason.make(Code.NO_DEVICES_REQUESTED))
        devices = "accelerators" if evaluation.demand.accelerators else "rail devices"
        utilization = compute_utilization(evaluation)
        utilized = reason.make(Code.DEVICES_UTILIZED, share=utilization, devices=devices)
        return score_term.TermScore(utilization, utilized)


def compute_utilization(evaluation: node_evaluation.NodeEvaluation) -> float:
    """Return the mean utilization with the pod, of the requested accelerators, or of rail pools if it requests none.

    A pool may have a hundred devices on a node of eight accelerators, so pools alone would not show how full it is.
    """
    shares = [
        min(1.0, (usage.allocatable - usage.free + usage.requested) / usage.allocatable)
        for usage in list_usage(evaluation)
    ]
    return sum(shares) / len(shares) if shares else 0.0


def list_usage(evaluation: node_evaluation.NodeEvaluation) -> Sequence[node_evaluation.ResourceUsage]:
    """Return the usage of each resource that counts for utilization."""
    accelerators = {name for name, _ in evaluation.demand.accelerators}
    usages = [usage for name, usage in evaluation.usage.items() if name in accelerators or not accelerators]
    return [usage for usage in usages if usage.allocatable > 0]


TERM = PackingTerm()
