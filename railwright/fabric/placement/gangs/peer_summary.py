"""Summarizes the placed peers of a gang for the planner: their leaves, node shapes, rails and bandwidth."""

from railwright.fabric import topology
from railwright.fabric.placement.gangs import gang_status, planner, rank_order
from railwright.fabric.placement.nodes import node_evaluation, node_slots, request_view


def summarize_peers(
    gang: gang_status.GangStatus, view: request_view.RequestView, bandwidth: node_slots.Bandwidth = 1.0
) -> planner.PlacedPeers:
    """Summarize the placed peers. `bandwidth` is what was planned for them, 1 if that is unknown."""
    peer_leaves = [view.index.leaf_by_node.get(peer.node, topology.NO_DOMAIN) for peer in gang.placed_workers]
    nearest = rank_order.list_nearest_leaves(view.request.rank, gang, peer_leaves)
    classes = view.list_classes([peer.node for peer in gang.placed_workers])
    rails = node_slots.ALL_RAILS
    for node_class in classes:
        rails &= node_class.evaluation.available_rails
    return planner.PlacedPeers(
        leaves=nearest.leaves,
        ring=peer_leaves,
        next_leaf=nearest.next_leaf,
        bandwidth=bandwidth,
        shapes={node_class.capacity.shape for node_class in classes},
        rails=rails,
        rail_shares={
            node_evaluation.compute_placed_shares(view.index.signature, node_class.evaluation) for node_class in classes
        },
    )
