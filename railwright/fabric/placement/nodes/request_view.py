"""Shows the node index to one request, with overrides for nodes of peers, and for the pod's own old node."""

import functools
from collections import Counter
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
    for name in sorted(changed_nodes | peer_requests.keys()):  # between equal plans, the order of classes decides
        if name in cluster.nodes:
            facts = index.facts.build(cluster.nodes[name], None, peer_requests.get(name, ()), absent=absent)
            overrides[name] = index.get_class(facts._replace(eligible=False) if name in unselected else facts)
    return overrides | _find_emptied(request, index, overrides, cluster, assumed) if request.is_announced else overrides


def _find_emptied(
    request: scheduling_request.SchedulingRequest,
    index: node_index.NodeIndex,
    overrides: Mapping[str, node_evaluation.NodeClass],
    cluster: cluster_state.ClusterState,
    assumed: assumed_pods.AssumedPods,
) -> Overrides:
    """Return the classes of candidate nodes with too few free resources, as if their bound pods were gone.

    Volcano scores such nodes to choose pods to preempt, or because pods there terminate. It does not count devices of
    ResourceSlices, so that these may just be taken.
    """
    emptied: Overrides = {}
    known = index.find_classes(request.nodes)
    classes = list(map(overrides.get, request.nodes, known)) if overrides else known
    full = {node_class for node_class in set(classes) if node_class is not None and node_class.evaluation.is_full}
    for name, node_class in zip(request.nodes, classes, strict=True) if full else ():
        if node_class is None or node_class not in full:
            continue
        free = Counter(cluster.nodes[name].allocatable)
        for pod in assumed.list_on_node(name):
            free.subtract(pod.requests)
        for device in cluster.list_claimable(name):
            free[device] = index.facts.compute_free(name).get(device, 0)
        emptied[name] = index.get_class(index.facts.replace_free(node_class.evaluation.facts, free, if_preempted=True))
    return emptied


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
