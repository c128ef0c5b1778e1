"""Selects the nodes that a single-pod job is planned on, in the order of `terms.completion`.

Partly used nodes come first. The leaf matters only if the pod needs an idle node, because that reduces a free leaf.
"""

from collections import Counter

import msgspec

from railwright.fabric import topology
from railwright.fabric.placement.gangs import planner
from railwright.fabric.placement.nodes import request_view


class PreferredNodes(msgspec.Struct, frozen=True):
    """The best nodes."""

    capacity: planner.GangCapacity  # capacity of these nodes only
    are_partly_used: bool  # these nodes are partly used
    upper_bound: planner.Bandwidth  # highest modelled bandwidth of all offered nodes


def choose_nodes(view: request_view.RequestView) -> PreferredNodes | None:
    """Return the best of the offered nodes, or None if none has a slot."""
    evaluations, fill_orders, nodes = view.index.evaluations, view.index.fill_orders, view.request.nodes
    counts = Counter(zip(map(view.index.leaf_by_node.get, nodes), map(view.map_classes().get, nodes), strict=True))
    classes = {
        node_class
        for _, node_class in counts
        if node_class is not None and evaluations[node_class].capacity.slot_numa_factors
    }
    if not classes:
        return None
    orders = {node_class: fill_orders[node_class] for node_class in classes}
    first = min(orders.values())
    leaves: dict[topology.Domain, dict[int, int]] = {}
    for (leaf, node_class), count in counts.items():
        if leaf is not None and node_class is not None and orders.get(node_class) == first:
            leaves.setdefault(leaf, {})[node_class] = count
    return PreferredNodes(
        capacity=request_view.build_capacity_on(view, leaves),
        are_partly_used=not any(
            evaluations[node_class].capacity.is_idle for node_class, order in orders.items() if order == first
        ),
        upper_bound=max(_get_max_bandwidth(evaluations[node_class].capacity) for node_class in classes),
    )


def _get_max_bandwidth(node_capacity: planner.NodeCapacity) -> planner.Bandwidth:
    return node_capacity.compute_bandwidth(node_capacity.rails) * max(node_capacity.slot_numa_factors)


def score_nodes(view: request_view.RequestView, first: float, rest: float, fill_priority: int) -> dict[str, float]:
    """Score the candidate nodes: base score plus `first` up to this fill priority, plus `rest` above it."""
    index, nodes = view.index, view.request.nodes
    totals: dict[int | None, float] = {None: 0.0}  # None: a node that the cache does not contain
    for node_class, evaluation in enumerate(index.evaluations):
        tier = first if evaluation.capacity.fill_priority <= fill_priority else rest
        totals[node_class] = 0.0 if evaluation.refusal else index.scores[node_class] + tier
    return dict(zip(nodes, map(totals.__getitem__, map(view.map_classes().get, nodes)), strict=True))
