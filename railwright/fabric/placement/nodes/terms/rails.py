"""Scores the share of the pod's rails that are free on the node. A degraded rail counts half.

A rail is degraded if its allocatable is below its capacity: the device plugin reports unhealthy devices.
"""

from railwright.fabric.placement import bandwidth
from railwright.fabric.placement.nodes import node_evaluation
from railwright.fabric.placement.nodes.terms import score_term
from railwright.fabric.policy import model
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import Code


class RailsTerm:
    """Scores free rails."""

    name = "rails"

    def get_weight(self, placement: model.Placement) -> float:
        """Return `placement.weights.rails`."""
        return placement.weights.rails

    def score(self, evaluation: node_evaluation.NodeEvaluation) -> score_term.TermScore:
        """Return the share of needed rails that are free and healthy."""
        needed = sum(len(pool.need.rails) for pool in evaluation.pools)
        if not needed:
            return score_term.TermScore(1.0, reason.make(Code.NO_RAILS_NEEDED))
        sufficient = [pool for pool in evaluation.pools if pool.is_sufficient]
        value = sum(len(pool.need.rails) * (1.0 if pool.is_healthy else bandwidth.DEGRADED) for pool in sufficient)
        degraded = tuple(pool.need.label for pool in sufficient if not pool.is_healthy)
        free = sum(len(pool.need.rails) for pool in sufficient)
        rails_free = reason.make(Code.RAILS_FREE, free=free, needed=needed, degraded=degraded)
        return score_term.TermScore(value / needed, rails_free)


TERM = RailsTerm()
