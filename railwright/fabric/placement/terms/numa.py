"""Scores whether the node can give the pod GPUs and rails on the same NUMA node."""

from railwright.fabric import resources
from railwright.fabric.placement import standing

NAME = "numa"


def value(node: standing.Standing) -> tuple[float, str]:
    """Return (value, reason): 1 if aligned or the layout is unknown, else half the share of local rails."""
    if not node.facts.zones:
        return 1.0, "NUMA layout unknown"
    if not node.spots:
        return 0.0, "NUMA nodes have too few free GPUs or rails"
    best = node.spots[0]
    shown = "+".join(str(zone) for zone in best.zones)
    wanted = sum(amount for _, amount in node.want.pools) // resources.UNIT
    if not wanted:
        compact = node.grade.compact > 0
        return float(compact), f"GPUs on NUMA node {shown}" if compact else f"GPUs split over NUMA nodes {shown}"
    if node.aligned:
        return 1.0, f"GPUs and rails together on NUMA node {shown}"
    return best.local / wanted / 2, f"{best.local} of {wanted} rails local to their GPUs, NUMA nodes {shown}"
