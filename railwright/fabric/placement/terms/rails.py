"""How many of the rails the pod wants are free on the node, a degraded rail counting half.

A rail is degraded when its allocatable is below its capacity: its device plugin has lost devices.
"""

from railwright.fabric.placement import bandwidth, standing

NAME = "rails"


def value(node: standing.Standing) -> tuple[float, str]:
    """The share of wanted rails that are free and healthy, and the sentence that says it."""
    wanted = sum(len(each.need.rails) for each in node.rails)
    if not wanted:
        return 1.0, "no rails wanted"
    free = sum(
        len(each.need.rails) * (1.0 if each.healthy else bandwidth.DEGRADED) for each in node.rails if each.sufficient
    )
    degraded = [each.need.label for each in node.rails if each.sufficient and not each.healthy]
    note = f", {', '.join(degraded)} degraded" if degraded else ""
    whole = sum(len(each.need.rails) for each in node.rails if each.sufficient)
    return free / wanted, f"{whole} of {wanted} rails free{note}"
