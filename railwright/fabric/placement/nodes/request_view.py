"""Shows the node index to one request, with overrides for offers, nodes of peers, and the pod's own old node.

Also builds the capacity that a gang is planned on.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence

from railwright.fabric import resources, topology
from railwright.fabric.placement import scheduling_request
from railwright.fabric.placement.explain import node_explainer
from railwright.fabric.placement.gangs import gang_status, planner
from railwright.fabric.placement.nodes import node_evaluation, node_index
from railwright.fabric.placement.state import assumed_pods, cluster_state

MAX_FULL_OFFER = (
    100  # up to this many, both schedulers offer all feasible nodes; above, a sample (minFeasibleNodesToFind)
)


class RequestView:
    """The node index with the overrides of one request."""

    def __init__(
        self,
        request: scheduling_request.SchedulingRequest,
        index: node_index.NodeIndex,
        overrides: Mapping[str, int],
        holders: Callable[[str], tuple[node_explainer.Holder, ...]],
    ) -> None:
        self.request = request
        self.holders = holders
        self.index = index
        self.overrides = overrides  # node -> index of its class for this request

    def get_class(self, node: str) -> int | None:
        """Return the index of a node's class, or None if the cache does not contain the node."""
        found = self.overrides.get(node)
        return found if found is not None else self.index.class_of_node.get(node)

    def get_evaluation(self, node: str) -> node_evaluation.NodeEvaluation | None:
        """Return a node's evaluation, or None if the cache does not contain the node."""
        found = self.get_class(node)
        return None if found is None else self.index.evaluations[found]

    def get_leaf(self, node: str) -> topology.Domain:
        """Return a node's leaf, or NOWHERE if it has none."""
        return self.index.leaf_by_node.get(node, topology.NOWHERE)

    def build_row(self, node: str, score: float) -> node_explainer.NodeRow:
        """Build the row of a node for explanations."""
        evaluation = self.get_evaluation(node)
        return node_explainer.NodeRow(
            node, score, evaluation, self.get_leaf(node), self.holders(node) if _lacks_rail(evaluation) else ()
        )

    def build_refused_row(self, node: str) -> node_explainer.NodeRow:
        """Build the row of an infeasible node, with the pods that use it."""
        return node_explainer.NodeRow(node, 0.0, self.get_evaluation(node), self.get_leaf(node), self.holders(node))

    def build_rows(
        self, names: Iterable[str], max_rows: int, scores: Mapping[str, float]
    ) -> list[node_explainer.NodeRow]:
        """Build rows for up to `max_rows` of these nodes, and for up to `max_rows` infeasible ones."""
        feasible: dict[str, None] = {}
        infeasible: dict[str, None] = {}
        for name in names:
            if len(feasible) >= max_rows:
                break
            if name in scores:
                feasible[name] = None
        evaluations, class_of_node = self.index.evaluations, self.map_classes()
        infeasible_classes = {node_class for node_class, evaluation in enumerate(evaluations) if evaluation.refusal}
        if infeasible_classes:
            some = (
                name
                for name, node_class in zip(scores, map(class_of_node.get, scores), strict=True)
                if node_class in infeasible_classes
            )
            infeasible = dict.fromkeys(itertools.islice(some, max_rows))
        lacks_rail: dict[int | None, bool] = {}  # cached by class: the nodes of a leaf belong to few classes
        leaves = self.index.leaf_by_node
        rows = []
        for name in {**feasible, **infeasible}:
            node_class = class_of_node.get(name)
            evaluation = None if node_class is None else evaluations[node_class]
            if node_class not in lacks_rail:
                lacks_rail[node_class] = _lacks_rail(evaluation)
            holders = self.holders(name) if lacks_rail[node_class] else ()
            rows.append(
                node_explainer.NodeRow(name, scores[name], evaluation, leaves.get(name, topology.NOWHERE), holders)
            )
        return rows

    def list_offered_leaves(self) -> set[topology.Domain]:
        """Return the leaves that contain at least one offered node."""
        leaves = self.index.leaf_by_node
        return {leaves[name] for name in self.request.nodes if name in leaves}

    def map_classes(self) -> Mapping[str, int]:
        """Map nodes to the index of their class, with the overrides of this request."""
        if not self.overrides:
            return self.index.class_of_node
        return {name: node_class for name in self.request.nodes if (node_class := self.get_class(name)) is not None}

    def count_unknown(self) -> int:
        """Return the number of candidate nodes that the cache does not contain."""
        nodes = self.request.nodes
        return len(nodes) - len(self.index.class_of_node.keys() & nodes) if nodes else 0


def _lacks_rail(evaluation: node_evaluation.NodeEvaluation | None) -> bool:
    return evaluation is not None and any(not rail.is_sufficient for rail in evaluation.pools)


def find_overrides(
    request: scheduling_request.SchedulingRequest,
    index: node_index.NodeIndex,
    gang: gang_status.GangStatus,
    cluster: cluster_state.ClusterState,
    assumed: assumed_pods.AssumedPods,
) -> Mapping[str, int]:
    """Return the nodes that have another class for this request than in the index, with the index of that class."""
    overrides: dict[str, int] = {}
    peer_requests: dict[str, list[resources.Amounts]] = {}
    for _, uid, node in gang.placed:
        # peers on a node share its NICs; a node without free slots needs no override
        if (node_class := index.class_of_node.get(node)) is not None and index.evaluations[
            node_class
        ].capacity.slot_numa_factors:
            pod = cluster.pods.get(uid)
            assumed_pod = assumed.get(uid)
            peer_requests.setdefault(node, []).append(
                pod.requests if pod else assumed_pod.requests if assumed_pod else {}
            )
    previous_nodes = {assumed_pod.node for uid in gang.retried_uids if (assumed_pod := assumed.get(uid))}
    previous_nodes |= {pod.node for pod in (cluster.pods.get(request.uid),) if pod and pod.node}
    class_by_offer: dict[
        tuple[int, int], int
    ] = {}  # equal offers are one object, so the identity of an offer is a cache key
    for name, offer in request.offers.items():
        node_class = index.class_of_node.get(name)
        if node_class is None:
            continue
        if name in peer_requests or name in previous_nodes:
            free = _select_offered(index, offer)
            facts = index.build_facts(
                cluster.nodes[name],
                free,
                peer_requests.get(name, ()),
                self_uid=request.uid,
                ignored_uids=gang.retried_uids,
            )
            facts = index.replace_free(
                facts, free, if_preempted=offer.if_preempted, used_elsewhere=offer.used_elsewhere
            )
            overrides[name] = index.get_class(facts)
            continue
        pair = (node_class, id(offer))
        if (offered_class := class_by_offer.get(pair)) is None:
            offered_class = class_by_offer[pair] = _get_offered_class(index, node_class, offer)
        if offered_class != node_class:
            overrides[name] = offered_class
    for name in previous_nodes - overrides.keys():
        if name in cluster.nodes:
            free = index.compute_free(name, self_uid=request.uid, ignored_uids=gang.retried_uids)
            facts = index.build_facts(
                cluster.nodes[name],
                free,
                peer_requests.get(name, ()),
                self_uid=request.uid,
                ignored_uids=gang.retried_uids,
            )
            overrides[name] = index.get_class(facts)
    overrides |= _find_peer_overrides(
        index, {name: held for name, held in peer_requests.items() if name not in overrides}
    )
    return overrides


def _find_peer_overrides(
    index: node_index.NodeIndex, peer_requests: Mapping[str, Sequence[resources.Amounts]]
) -> Mapping[str, int]:
    """Return the classes of nodes that peers use, cached by usage: a large gang has thousands of such nodes."""
    class_by_usage: dict[tuple[int, tuple[int, ...]], int] = {}
    overrides = {}
    for name, requests in peer_requests.items():
        pair = index.class_of_node[name], index.sum_peer_usage(requests)
        if pair not in class_by_usage:
            class_by_usage[pair] = index.get_class(index.evaluations[pair[0]].facts._replace(peer_usage=pair[1]))
        overrides[name] = class_by_usage[pair]
    return overrides


def _get_offered_class(index: node_index.NodeIndex, node_class: int, offer: scheduling_request.NodeOffer) -> int:
    """Return the class of a node with the free resources that the scheduler offers; usually the same class."""
    facts = index.evaluations[node_class].facts
    offered_facts = index.replace_free(
        facts, _select_offered(index, offer), if_preempted=offer.if_preempted, used_elsewhere=offer.used_elsewhere
    )
    return node_class if offered_facts == facts else index.get_class(offered_facts)


def _select_offered(index: node_index.NodeIndex, offer: scheduling_request.NodeOffer) -> resources.Amounts:
    """Return the idle resources of an offer, or if these are too few, those after terminating pods have left."""
    if offer.future_idle is None or all(offer.idle.get(name, 0) >= amount for name, amount in index.demanded):
        return offer.idle
    return offer.future_idle


def build_capacity(request: scheduling_request.SchedulingRequest, view: RequestView) -> planner.GangCapacity:
    """Return the capacity that the gang is planned on.

    Below 100 nodes (FULL_OFFER) the scheduler offers every feasible node. Above that it offers a sample, so capacity
    also counts eligible nodes that were not offered. If the scheduler announces no allocations (kube-scheduler), nodes
    of the offered leaves that were not offered count too: a peer whose binding has not been observed may be there, and
    until then it counts as unplaced (docs/interface.md 7.7).
    """
    index = view.index
    leaves: dict[topology.Domain, dict[int, int]]
    if len(request.nodes) >= MAX_FULL_OFFER:
        leaves = dict(index.class_counts)
    elif request.offers:
        leaves = {}
        for name in request.nodes:
            if (node_class := view.get_class(name)) is not None:
                counts = leaves.setdefault(index.leaf_by_node[name], {})
                counts[node_class] = counts.get(node_class, 0) + 1
        return build_capacity_on(view, leaves)
    else:
        leaves = {leaf: index.class_counts[leaf] for leaf in view.list_offered_leaves()}
    for name, node_class in view.overrides.items():
        leaf = index.leaf_by_node.get(name, topology.NOWHERE)
        old = index.class_of_node.get(name)
        if leaf in leaves and old is not None and old != node_class:
            counts = leaves[leaf] = dict(leaves[leaf])
            counts[old] -= 1
            counts[node_class] = counts.get(node_class, 0) + 1
    return build_capacity_on(view, leaves)


def build_capacity_on(view: RequestView, leaves: Mapping[topology.Domain, Mapping[int, int]]) -> planner.GangCapacity:
    """Build the capacity of these nodes: leaf -> index of class -> number of nodes."""
    return planner.GangCapacity(
        node_capacities=[evaluation.capacity for evaluation in view.index.evaluations],
        class_counts=leaves,
        domain_sizes=view.index.domain_sizes,
        oversubscription=view.request.fabric.placement.oversubscription,
        links_per_rail=view.index.signature.links,
    )
