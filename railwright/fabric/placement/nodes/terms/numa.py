"""Scores whether the node can give the pod GPUs and rails on the same NUMA node."""

from railwright.fabric import resources
from railwright.fabric.placement.nodes import node_evaluation
from railwright.fabric.placement.nodes.terms.term_score import TermScore
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import Code

NAME = "numa"


def score(evaluation: node_evaluation.NodeEvaluation) -> TermScore:
    """Return 1 if aligned or the layout is unknown, else half the share of local rails."""
    if not evaluation.facts.zones:
        return TermScore(1.0, reason.make(Code.NUMA_UNKNOWN))
    if not evaluation.numa_assignments:
        return TermScore(0.0, reason.make(Code.NUMA_DEVICES_BUSY))
    best = evaluation.numa_assignments[0]
    zones = "+".join(str(zone) for zone in best.zones)
    rail_devices = sum(amount for _, amount in evaluation.demand.pools) // resources.UNIT
    if not rail_devices:
        if evaluation.capacity.unsplit_slots > 0:
            return TermScore(1.0, reason.make(Code.NUMA_GPUS_TOGETHER, zones=zones))
        return TermScore(0.0, reason.make(Code.NUMA_GPUS_SPLIT, zones=zones))
    if evaluation.is_aligned:
        return TermScore(1.0, reason.make(Code.NUMA_ALIGNED, zones=zones))
    partly_local = reason.make(Code.NUMA_PARTLY_LOCAL, local=best.local, needed=rail_devices, zones=zones)
    return TermScore(best.local / rail_devices / 2, partly_local)
