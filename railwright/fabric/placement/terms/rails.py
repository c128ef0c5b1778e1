"""Scores the share of the pod's rails that are free on the node. A degraded rail counts half.

A rail is degraded if its allocatable is below its capacity: the device plugin reports unhealthy devices.
"""

from railwright.fabric.placement import bandwidth, standing

NAME = "rails"


def value(node: standing.Standing) -> tuple[float, str]:
    """Return (share of needed rails that are free and healthy, and the reason)."""
    wanted = sum(len(each.need.rails) for each in node.rails)
    if not wanted:
        return 1.0, "the pod needs no rails"
    free = sum(
        len(each.need.rails) * (1.0 if each.healthy else bandwidth.DEGRADED) for each in node.rails if each.sufficient
    )
    degraded = [each.need.label for each in node.rails if each.sufficient and not each.healthy]
    note = f", {', '.join(degraded)} degraded" if degraded else ""
    whole = sum(len(each.need.rails) for each in node.rails if each.sufficient)
    return free / wanted, f"{whole} of {wanted} rails free{note}"
