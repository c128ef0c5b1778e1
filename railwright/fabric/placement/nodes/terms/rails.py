"""Scores the share of the pod's rails that are free on the node. A degraded rail counts half.

A rail is degraded if its allocatable is below its capacity: the device plugin reports unhealthy devices.
"""

from railwright.fabric.placement import bandwidth
from railwright.fabric.placement.nodes import node_evaluation

NAME = "rails"


def score(evaluation: node_evaluation.NodeEvaluation) -> tuple[float, str]:
    """Return (share of needed rails that are free and healthy, and the reason)."""
    rail_count = sum(len(pool.need.rails) for pool in evaluation.pools)
    if not rail_count:
        return 1.0, "the pod needs no rails"
    free = sum(
        len(pool.need.rails) * (1.0 if pool.is_healthy else bandwidth.DEGRADED)
        for pool in evaluation.pools
        if pool.is_sufficient
    )
    degraded = [pool.need.label for pool in evaluation.pools if pool.is_sufficient and not pool.is_healthy]
    note = f", {', '.join(degraded)} degraded" if degraded else ""
    free_rails = sum(len(pool.need.rails) for pool in evaluation.pools if pool.is_sufficient)
    return free / rail_count, f"{free_rails} of {rail_count} rails free{note}"
