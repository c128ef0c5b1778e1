"""Scores the share of the pod's rails that are free on the node. A degraded rail counts half.

A rail is degraded if its allocatable is below its capacity: the device plugin reports unhealthy devices.
"""

from railwright.fabric.placement import bandwidth
from railwright.fabric.placement.nodes import node_evaluation
from railwright.fabric.placement.nodes.terms.term_score import TermScore
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import Code

NAME = "rails"


def score(evaluation: node_evaluation.NodeEvaluation) -> TermScore:
    """Return the share of the needed rails that are free and healthy."""
    rail_count = sum(len(pool.need.rails) for pool in evaluation.pools)
    if not rail_count:
        return TermScore(1.0, reason.make(Code.NO_RAILS_NEEDED))
    free = sum(
        len(pool.need.rails) * (1.0 if pool.is_healthy else bandwidth.DEGRADED)
        for pool in evaluation.pools
        if pool.is_sufficient
    )
    degraded = tuple(pool.need.label for pool in evaluation.pools if pool.is_sufficient and not pool.is_healthy)
    free_rails = sum(len(pool.need.rails) for pool in evaluation.pools if pool.is_sufficient)
    return TermScore(
        free / rail_count, reason.make(Code.RAILS_FREE, free=free_rails, needed=rail_count, degraded=degraded)
    )
