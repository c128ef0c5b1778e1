"""Shows the node index to one request, with overrides for offers, nodes of peers, and the pod's own old node."""

import functools
from collections.abc import Iterable, Mapping, Sequence

from railwright.fabric import resources, topology
from railwright.fabric.placement import scheduling_request
from railwright.fabric.placement.nodes import facts_builder, node_evaluation, node_index
from railwright.fabric.placement.state import assumed_pods, cluster_state, gang_status, pod_usage

Overrides = dict[str, node_evaluation.NodeClass]
"""Node -> its class for one request, if that is not the class in the index."""


class RequestView:
    """The node index with the overrides of one request."""

    def __init__(
        self,
        request: scheduling_request.SchedulingRequest,
        index: node_index.NodeIndex,
        overrides: Mapping[str, node_evaluation.NodeClass],
    ) -> None:
        self.request = request
        self.index = index
        self.overrides = overrides

    def get_class(self, node: str) -> node_evaluation.NodeClass | None:
        """Return a node's class; None if the cache does not contain it."""
        return self.overrides.get(node) or self.index.find_class(node)

    def find_classes(self, nodes: Sequence[str]) -> list[node_evaluation.NodeClass | None]:
        """Return the class of each of these nodes; None if the cache does not contain it."""
        known = self.index.find_classes(nodes)
        return list(map(self.overrides.get, nodes, known)) if self.overrides else known

    def list_classes(self, nodes: Iterable[str]) -> set[node_evaluation.NodeClass]:
        """Return the distinct classes of nodes. Nodes that the cache does not contain are left out."""
        return {node_class for node_class in self.find_classes(list(nodes)) if node_class is not None}

    def get_leaf(self, node: str) -> topology.Domain:
        """Return a node's leaf, or NO_DOMAIN if it has none."""
        return self.index.leaf_by_node.get(node, topology.NO_DOMAIN)

    @functools.cached_property
    def offered_leaves(self) -> frozenset[topology.Domain]:
        """Return the leaves that contain at least one candidate node."""
        leaves = frozenset(map(self.index.leaf_by_node.get, self.request.nodes))
        return frozenset([leaf for leaf in leaves if leaf is not None])


def find_overrides(
    request: scheduling_request.SchedulingRequest,
    index: node_index.NodeIndex,
    gang: gang_status.GangStatus,
    cluster: cluster_state.ClusterState,
    assumed: assumed_pods.AssumedPods,
) -> Overrides:
    """Return the nodes that have another class for this request than in the index.

    Peers of the requesting pod share its NICs. The assumptions about pods that the scheduler is retrying are void.
    """
    overrides: Overrides = {}
    unselected = {name for name in index.unselected if name not in request.offered}
    for name in unselected:
        if (known := index.find_class(name)) is not None:
            overrides[name] = index.get_class(known.evaluation.facts._replace(eligible=False))
    changed_nodes = {pod.node for uid in gang.retried_uids if (pod := assumed.get(uid))}
    changed_nodes |= pod_usage.list_nodes(cluster, request.uid)
    peer_requests = _list_peer_requests(index, gang.placed)
    absent = facts_builder.Absent(request.uid, gang.retried_uids)
    overrides |= _find_offered_classes(request, index)
    for name in sorted(changed_nodes | peer_requests.keys()):  # between equal plans, the order of classes decides
        if name not in cluster.nodes:
            continue
        offer = request.offers.get(name)
        free = None if offer is None else _select_offered(index, offer)
        facts = index.facts.build(cluster.nodes[name], free, peer_requests.get(name, ()), absent=absent)
        if name in unselected:
            facts = facts._replace(eligible=False)
        overrides[name] = index.get_class(facts) if offer is None else _apply_offer(index, facts, offer)
    return overrides


def _find_offered_classes(request: scheduling_request.SchedulingRequest, index: node_index.NodeIndex) -> Overrides:
    """Return the classes of offered nodes that differ in the offer only. Few offers are different objects."""
    if not request.offers:
        return {}
    offers = list(map(request.offers.get, request.nodes))
    known = index.find_classes(request.nodes)
    kinds = list(zip(known, map(id, offers), strict=True))
    different = {}
    for kind, offer in dict(zip(kinds, offers, strict=True)).items():
        in_index = kind[0]
        if in_index is not None and offer is not None:
            offered = _apply_offer(index, in_index.evaluation.facts, offer)
            if offered is not in_index:
                different[kind] = offered
    return {name: different[kind] for name, kind in zip(request.nodes, kinds, strict=True) if kind in different}


def _list_peer_requests(
    index: node_index.NodeIndex, placed: Sequence[gang_status.PlacedPeer]
) -> Mapping[str, list[resources.Amounts]]:
    """Return the requests of the peers on each node that needs an override for them.

    A node without a free slot needs one only if its free devices do not show what the peers use.
    """
    peer_requests: dict[str, list[resources.Amounts]] = {}
    for peer, known in zip(placed, index.find_classes([peer.node for peer in placed]), strict=True):
        if known is not None and (known.capacity.slot_numa_factors or index.facts.needs_peer_usage):
            peer_requests.setdefault(peer.node, []).append(peer.requests)
    return peer_requests


def _apply_offer(
    index: node_index.NodeIndex, facts: node_evaluation.NodeFacts, offer: scheduling_request.NodeOffer
) -> node_evaluation.NodeClass:
    """Return the class of a node with these facts and the free resources that the scheduler offers."""
    free = _select_offered(index, offer)
    return index.get_class(index.facts.replace_free(facts, free, if_preempted=offer.if_preempted))


def _select_offered(index: node_index.NodeIndex, offer: scheduling_request.NodeOffer) -> resources.Amounts:
    """Return the idle resources of an offer, or if these are too few, those after terminating pods have left."""
    if offer.future_idle is None or all(offer.idle.get(name, 0) >= amount for name, amount in index.facts.demanded):
        return offer.idle
    return offer.future_idle
