"""Selects the nodes for the plan of a single-pod job, in the order of `terms.completion`.

Partly used nodes come first. The leaf matters only if the pod needs an idle node, because gangs need leaves with many
idle nodes.
"""

from collections import Counter

import msgspec

from railwright.fabric import topology
from railwright.fabric.placement.gangs import gang_capacity
from railwright.fabric.placement.nodes import node_classes, node_slots, request_view


class PreferredNodes(msgspec.Struct, frozen=True):
    """The offered nodes that come first for a single-pod job."""

    capacity: gang_capacity.GangCapacity  # capacity of these nodes only
    are_partly_used: bool
    upper_bound: node_slots.Bandwidth  # highest modelled bandwidth of all offered nodes


def choose_nodes(view: request_view.RequestView) -> PreferredNodes | None:
    """Return the best of the offered nodes, or None if none has a slot."""
    nodes = view.request.nodes
    counts = Counter(zip(map(view.index.leaf_by_node.get, nodes), map(view.map_classes().get, nodes), strict=True))
    classes = {node_class for _, node_class in counts if node_class and node_class.capacity.slot_numa_factors}
    if not classes:
        return None
    first = min(node_class.fill_order for node_class in classes)
    preferred = {node_class for node_class in classes if node_class.fill_order == first}
    leaves: dict[topology.Domain, node_classes.Counts] = {}
    for (leaf, node_class), count in counts.items():
        if leaf is not None and node_class in preferred:
            leaves.setdefault(leaf, {})[node_class] = count
    return PreferredNodes(
        capacity=gang_capacity.build_on(view, leaves),
        are_partly_used=not any(node_class.capacity.is_idle for node_class in preferred),
        upper_bound=max(_get_max_bandwidth(node_class.capacity) for node_class in classes),
    )


def _get_max_bandwidth(node_capacity: node_slots.NodeCapacity) -> node_slots.Bandwidth:
    return node_capacity.compute_bandwidth(node_capacity.rails) * max(node_capacity.slot_numa_factors)
