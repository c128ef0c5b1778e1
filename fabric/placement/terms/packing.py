"""How full the node would be with the pod on it: fuller first, so that whole nodes stay whole."""

from fabric.placement import standing

NAME = "packing"


def value(node: standing.Standing, gang: standing.GangStanding) -> tuple[float, str]:
    """Mean share in use afterwards over the accelerators and pools the pod takes, and the sentence that says it."""
    del gang  # how full a node is does not depend on the gang
    shares = [
        min(1.0, (total - node.free.get(resource, 0) + amount) / total)
        for resource, amount in node.packed.items()
        if (total := node.allocatable.get(resource, 0)) > 0
    ]
    if not shares:
        return 0.0, "takes no accelerator or rail"
    share = sum(shares) / len(shares)
    return share, f"{share:.0%} of its accelerators and rails in use with this pod"
