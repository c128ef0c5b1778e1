"""Counts the accelerators and rail devices of nodes."""

from railwright.cli.checking import snapshots
from railwright.fabric import quantity, views


def list_accelerators(snapshot: snapshots.ClusterSnapshot) -> tuple[str, ...]:
    """Return the resource names that identify a training container: the policy's `accelerators`, or its default."""
    return snapshot.policy.accelerators if snapshot.policy else ("nvidia.com/gpu",)  # the default of `accelerators`


def count_allocatable(node: views.Node, resource: str | None) -> int:
    """Return the node's allocatable count of a resource, 0 if the value is not a quantity."""
    return _count(node.status.allocatable.get(resource or "", 0))


def count_capacity(node: views.Node, resource: str | None) -> int:
    """Return the node's capacity of a resource, including unhealthy devices."""
    return _count(node.status.capacity.get(resource or "", 0))


def list_accelerated(snapshot: snapshots.ClusterSnapshot) -> tuple[views.Node, ...]:
    """Return the nodes with at least one accelerator, healthy or not."""
    resources = list_accelerators(snapshot)
    return tuple(
        node
        for node in snapshot.all("nodes")
        if any(count_capacity(node, name) or count_allocatable(node, name) for name in resources)
    )


def _count(amount: views.Written) -> int:
    try:
        return quantity.whole(amount)
    except quantity.InvalidQuantityError:
        return 0
