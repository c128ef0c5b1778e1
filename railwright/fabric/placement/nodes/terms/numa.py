"""Scores whether the node can give the pod GPUs and rails on the same NUMA node."""

from railwright.fabric import resources
from railwright.fabric.placement.nodes import node_evaluation
from railwright.fabric.placement.nodes.terms import score_term
from railwright.fabric.policy import model
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import Code


class NumaTerm:
    """Scores how many rails are on the NUMA node of their GPUs."""

    name = "numa"

    def get_weight(self, placement: model.Placement) -> float | None:
        """Return `placement.weights.numa`, or None if the policy ignores NUMA nodes."""
        return None if placement.numa == "ignore" else placement.weights.numa

    def score(self, evaluation: node_evaluation.NodeEvaluation) -> score_term.TermScore:
        """Return 1 if aligned or the layout is unknown, else half the share of local rails."""
        if not evaluation.facts.zones:
            return score_term.TermScore(1.0, reason.make(Code.NUMA_UNKNOWN))
        if not evaluation.numa_assignments:
            return score_term.TermScore(0.0, reason.make(Code.NUMA_DEVICES_BUSY))
        best = evaluation.numa_assignments[0]
        zones = "+".join(str(zone) for zone in best.zones)
        rail_devices = sum(amount for _, amount in evaluation.demand.pools) // resources.UNIT
        if not rail_devices and evaluation.capacity.unsplit_slots > 0:
            return score_term.TermScore(1.0, reason.make(Code.NUMA_GPUS_TOGETHER, zones=zones))
        if not rail_devices:
            return score_term.TermScore(0.0, reason.make(Code.NUMA_GPUS_SPLIT, zones=zones))
        if evaluation.is_aligned:
            return score_term.TermScore(1.0, reason.make(Code.NUMA_ALIGNED, zones=zones))
        partly_local = reason.make(Code.NUMA_PARTLY_LOCAL, local=best.local, needed=rail_devices, zones=zones)
        return score_term.TermScore(best.local / rail_devices / 2, partly_local)


TERM = NumaTerm()
