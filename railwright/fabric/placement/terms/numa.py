"""Whether the pod's GPUs and rails can be had beside each other on the node."""

from railwright.fabric import resources
from railwright.fabric.placement import standing

NAME = "numa"


def value(node: standing.Standing) -> tuple[float, str]:
    """1 beside each other or where nothing is known, else the share of rail devices beside their GPUs, halved."""
    if not node.facts.zones:
        return 1.0, "NUMA layout not known"
    if not node.spots:
        return 0.0, "no NUMA nodes with room for its GPUs and rails"
    best = node.spots[0]
    shown = "+".join(str(zone) for zone in best.zones)
    wanted = sum(amount for _, amount in node.want.pools) // resources.UNIT
    if not wanted:
        compact = node.grade.compact > 0
        return float(compact), f"GPUs on NUMA node {shown}" if compact else f"GPUs split over NUMA nodes {shown}"
    if node.aligned:
        return 1.0, f"GPUs and rails beside each other on NUMA node {shown}"
    return best.local / wanted / 2, f"{best.local} of {wanted} rails beside their GPUs, NUMA nodes {shown}"
