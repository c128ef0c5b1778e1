"""How full the node would be with the pod on it: fuller first, so that whole nodes stay whole."""

from collections.abc import Sequence

from railwright.fabric.placement import standing

NAME = "packing"


def value(node: standing.Standing) -> tuple[float, str]:
    """The share in use afterwards, and the sentence that says it."""
    if not filling(node):
        return 0.0, "takes no accelerator or rail"
    what = "accelerators" if node.want.accelerators else "rail devices"
    return share(node), f"{share(node):.0%} of its {what} in use with this pod"


def share(node: standing.Standing) -> float:
    """The mean share in use afterwards over the accelerators the pod takes; over its pools where it takes none.

    A pool may have a hundred devices where there are eight accelerators: its share says little of how full a node is.
    """
    shares = [min(1.0, (total - free + taken) / total) for free, total, taken in filling(node)]
    return sum(shares) / len(shares) if shares else 0.0


def filling(node: standing.Standing) -> Sequence[tuple[int, int, int]]:
    """(free, allocatable, taken by the pod) of the resources that tell how full the node is."""
    accelerators = {name for name, _ in node.want.accelerators}
    chosen = [amounts for name, amounts in node.packed.items() if name in accelerators or not accelerators]
    return [amounts for amounts in chosen if amounts[1] > 0]
