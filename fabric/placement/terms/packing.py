"""How full the node would be with the pod on it: fuller first, so that whole nodes stay whole."""

from fabric.placement import standing

NAME = "packing"


def value(node: standing.Standing) -> tuple[float, str]:
    """Mean share in use afterwards over the accelerators and pools the pod takes, and the sentence that says it."""
    shares = [min(1.0, (total - free + taken) / total) for free, total, taken in node.packed.values() if total > 0]
    if not shares:
        return 0.0, "takes no accelerator or rail"
    share = sum(shares) / len(shares)
    return share, f"{share:.0%} of its accelerators and rails in use with this pod"
