"""Scores the utilization of the node with the pod on it: fuller nodes first, so that idle nodes stay idle."""

from collections.abc import Sequence

from railwright.fabric.placement.nodes import node_evaluation

NAME = "packing"


def score(evaluation: node_evaluation.NodeEvaluation) -> tuple[float, str]:
    """Return (utilization with the pod, 0..1, and the reason)."""
    if not list_usage(evaluation):
        return 0.0, "the pod requests no accelerator or rail"
    what = "accelerators" if evaluation.demand.accelerators else "rail devices"
    return compute_utilization(evaluation), f"{compute_utilization(evaluation):.0%} of its {what} in use with this pod"


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
