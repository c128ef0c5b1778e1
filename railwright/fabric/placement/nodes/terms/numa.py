"""Scores whether the node can give the pod GPUs and rails on the same NUMA node."""

from railwright.fabric import resources
from railwright.fabric.placement.nodes import node_evaluation

NAME = "numa"


def score(evaluation: node_evaluation.NodeEvaluation) -> tuple[float, str]:
    """Return (value, reason): 1 if aligned or the layout is unknown, else half the share of local rails."""
    if not evaluation.facts.zones:
        return 1.0, "NUMA layout unknown"
    if not evaluation.numa_assignments:
        return 0.0, "NUMA nodes have too few free GPUs or rails"
    best = evaluation.numa_assignments[0]
    zones = "+".join(str(zone) for zone in best.zones)
    rail_devices = sum(amount for _, amount in evaluation.demand.pools) // resources.UNIT
    if not rail_devices:
        is_unsplit = evaluation.capacity.unsplit_slots > 0
        return float(is_unsplit), f"GPUs on NUMA node {zones}" if is_unsplit else f"GPUs split over NUMA nodes {zones}"
    if evaluation.is_aligned:
        return 1.0, f"GPUs and rails together on NUMA node {zones}"
    return (
        best.local / rail_devices / 2,
        f"{best.local} of {rail_devices} rails local to their GPUs, NUMA nodes {zones}",
    )
