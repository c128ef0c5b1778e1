"""What nodes have of accelerators and rails, for the rows that look at nodes. Judges nothing."""

from railwright.cli.checking import seen as sight
from railwright.fabric import quantity, views


def accelerators(seen: sight.Seen) -> tuple[str, ...]:
    """Resources that mark a training container: the policy's, else its default."""
    return seen.policy.accelerators if seen.policy else ("nvidia.com/gpu",)  # CONTRACT section 7, ruling 6


def offered(node: views.Node, resource: str | None) -> int:
    """How many devices of a resource the node has allocatable; 0 where the text is no quantity."""
    return _count(node.status.allocatable.get(resource or "", 0))


def built_in(node: views.Node, resource: str | None) -> int:
    """How many the node has in all, healthy or not."""
    return _count(node.status.capacity.get(resource or "", 0))


def accelerated(seen: sight.Seen) -> tuple[views.Node, ...]:
    """Nodes that have an accelerator, healthy or not."""
    wanted = accelerators(seen)
    return tuple(
        node for node in seen.all("nodes") if any(built_in(node, name) or offered(node, name) for name in wanted)
    )


def _count(written: views.Written) -> int:
    try:
        return quantity.whole(written)
    except quantity.InvalidQuantityError:
        return 0
