"""A class of nodes: all nodes with equal facts, evaluated and scored once."""

import msgspec

from railwright.fabric.placement.nodes import node_evaluation, node_slots


class NodeClass(msgspec.Struct, frozen=True, eq=False):
    """Nodes with equal facts.

    A node index has exactly one object for each value of the facts, so comparing objects compares facts.
    """

    evaluation: node_evaluation.NodeEvaluation
    capacity: node_slots.NodeCapacity
    score: float  # without locality, 0..100
    fill_order: tuple[float, ...] = ()  # sort key for a single-pod job, lower first; () for other jobs


Counts = dict[NodeClass, int]
"""Number of nodes by class."""


def move_node(counts: Counts, old: NodeClass | None, new: NodeClass | None) -> None:
    """Count one node of class `old` as one of class `new`. None: the node is added, or removed."""
    if old is not None:
        counts[old] -= 1
        if not counts[old]:
            del counts[old]
    if new is not None:
        counts[new] = counts.get(new, 0) + 1
