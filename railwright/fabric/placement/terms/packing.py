"""Scores the utilization of the node with the pod on it: fuller nodes first, so that idle nodes stay idle."""

from collections.abc import Sequence

from railwright.fabric.placement import standing

NAME = "packing"


def value(node: standing.Standing) -> tuple[float, str]:
    """Return (utilization with the pod, 0..1, and the reason)."""
    if not filling(node):
        return 0.0, "the pod requests no accelerator or rail"
    what = "accelerators" if node.want.accelerators else "rail devices"
    return share(node), f"{share(node):.0%} of its {what} in use with this pod"


def share(node: standing.Standing) -> float:
    """Return the mean utilization with the pod, of the requested accelerators, or of rail pools if it requests none.

    A pool may have a hundred devices on a node of eight accelerators, so pools alone would not show how full it is.
    """
    shares = [min(1.0, (total - free + taken) / total) for free, total, taken in filling(node)]
    return sum(shares) / len(shares) if shares else 0.0


def filling(node: standing.Standing) -> Sequence[tuple[int, int, int]]:
    """Return (free, allocatable, requested by the pod) of each resource that counts for utilization."""
    accelerators = {name for name, _ in node.want.accelerators}
    chosen = [amounts for name, amounts in node.packed.items() if name in accelerators or not accelerators]
    return [amounts for amounts in chosen if amounts[1] > 0]
