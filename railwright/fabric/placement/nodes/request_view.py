"""Shows the node index to one request, with overrides for offers, nodes of peers, and the pod's own old node."""

import functools
from collections.abc import Callable, Collection, Container, Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from railwright.fabric import resources, topology
from railwright.fabric.placement import scheduling_request
from railwright.fabric.placement.nodes import facts_builder, node_evaluation, node_index
from railwright.fabric.placement.state import assumed_pods, cluster_state, gang_status, pod_usage
from railwright.fabric.reasons import reason

Overrides = dict[str, node_evaluation.NodeClass]
"""Node -> its class for one request, if that is not the class in the index."""

Classes = Sequence[node_evaluation.NodeClass | None]
"""The class of each candidate node, in their order; None if the cache does not contain it."""


_NODES_A_LEAF = 4  # below so many candidate nodes for each leaf, looking up their leaves is faster


class RequestView:
    """The node index with the overrides of one request."""

    def __init__(
        self,
        request: scheduling_request.SchedulingRequest,
        index: node_index.NodeIndex,
        overrides: Mapping[str, node_evaluation.NodeClass],
        classes_in_index: Classes | None = None,
    ) -> None:
        """`classes_in_index` are those of the candidate nodes, if they were looked up before."""
        self.request = request
        self.index = index
        self.overrides = overrides
        if classes_in_index is not None:
            self.classes_in_index = classes_in_index

    def list_classes(self, nodes: Iterable[str]) -> set[node_evaluation.NodeClass]:
        """Return the distinct classes of nodes. Nodes that the cache does not contain are left out."""
        return {node_class for node_class in self.find_classes(list(nodes)) if node_class is not None}

    def find_classes(self, nodes: Sequence[str]) -> Classes:
        """Return the class of each of these nodes; None if the cache does not contain it."""
        known = map(self.index.class_of_node.get, nodes)
        return list(map(self.overrides.get, nodes, known) if self.overrides else known)

    def get_leaf(self, node: str) -> topology.Domain:
        """Return a node's leaf, or NO_DOMAIN if it has none."""
        return self.index.leaf_by_node.get(node, topology.NO_DOMAIN)

    def refuse(self, find_refusal: Callable[[str], reason.Reason | None]) -> "RequestView":
        """Return the view in which candidate nodes are refused for a reason that their class does not show."""
        refused: dict[tuple[node_evaluation.NodeClass, reason.Reason], node_evaluation.NodeClass] = {}
        overrides = dict(self.overrides)
        for name, known in zip(self.request.nodes, self.classes, strict=True):
            cause = find_refusal(name)
            if known is None or known.evaluation.refusal is not None or cause is None:
                continue
            if (known, cause) not in refused:
                evaluation = msgspec.structs.replace(known.evaluation, refusal=cause, is_unresolvable=True)
                refused[known, cause] = msgspec.structs.replace(known, evaluation=evaluation)
            overrides[name] = refused[known, cause]
        return RequestView(self.request, self.index, overrides, self.classes_in_index)

    @functools.cached_property
    def offered_leaves(self) -> frozenset[topology.Domain]:
        """Return the leaves that contain at least one candidate node."""
        leaves, offered = self.index.nodes_by_leaf, self.request.offered
        if len(offered) < _NODES_A_LEAF * len(leaves):
            domains = frozenset(map(self.index.leaf_by_node.get, offered))
            return frozenset([leaf for leaf in domains if leaf is not None])
        return frozenset([leaf for leaf, names in leaves.items() if not names.keys().isdisjoint(offered)])

    @functools.cached_property
    def get_class(self) -> Callable[[str], node_evaluation.NodeClass | None]:
        """Return the function that returns a node's class for this request; None if the cache does not contain it."""
        get, overrides = self.index.class_of_node.get, self.overrides
        return (lambda name: overrides.get(name) or get(name)) if overrides else get

    @functools.cached_property
    def classes_in_index(self) -> Classes:
        """Return the class of each candidate node without the overrides.

        With thousands of nodes this takes longer than the rest of a request: their names have just been decoded, and
        each look-up waits for memory.
        """
        return list(map(self.index.class_of_node.get, self.request.nodes))

    @functools.cached_property
    def classes(self) -> Classes:
        """Return the class of each candidate node, in their order; None if the cache does not contain it."""
        known = self.classes_in_index
        return list(map(self.overrides.get, self.request.nodes, known)) if self.overrides else known

    @functools.cached_property
    def distinct_classes(self) -> frozenset[node_evaluation.NodeClass | None]:
        """Return the classes of the candidate nodes, with None if the cache does not contain one of them."""
        return frozenset(self.classes)

    def count_unknown(self) -> int:
        """Return the number of candidate nodes that the cache does not contain."""
        return self.classes.count(None) if None in self.distinct_classes else 0


class EmptiedNodes(NamedTuple):
    """Nodes without the pods of lower priority that kube-scheduler has removed from its snapshot."""

    names: frozenset[str] = frozenset()
    reduced_index: node_index.NodeIndex | None = None  # has the classes of nodes without these pods
    below: int = 0  # priority


NONE_EMPTIED = EmptiedNodes()


def offers_full_nodes(request: scheduling_request.SchedulingRequest, index: node_index.NodeIndex) -> bool:
    """True if the scheduler offers a node without room for the pod, so that `find_emptied` looks at its pods."""
    for known in set(map(index.class_of_node.get, request.nodes)):  # noqa: SIM110 - hot path: faster than a generator
        if known is not None and not known.has_room:
            return True
    return False


def find_emptied(
    request: scheduling_request.SchedulingRequest,
    index: node_index.NodeIndex,
    index_below: Callable[[int], node_index.NodeIndex],
    cluster: cluster_state.ClusterState,
    inferred: Sequence[assumed_pods.AssumedPod],
) -> EmptiedNodes:
    """Return the nodes that the scheduler counts without their pods of lower priority.

    kube-scheduler offers a node without room only if it has removed pods from its snapshot, then those of all nodes, or
    has seen them end. A node whose other pods leave too little room is not among them, so that what another scheduler
    has just bound still refuses the pod. Neither is one with pods that kube-scheduler may not know yet. A node to which
    it has assigned a pod of the gang in this simulation (`inferred`) is.
    """
    preemption = request.preemption
    if preemption is None:
        return NONE_EMPTIED
    full = {node_class for node_class in index.classes if not node_class.has_room}
    of_peers = {pod.node for pod in inferred if pod.gang == request.gang}
    offered = [name for name in request.nodes if index.class_of_node.get(name) in full] if full else ()
    free = {name: cluster.get_free(name) for name in of_peers.union(offered)}
    # computed once for equal amounts: thousands of nodes have few of them
    shortage_by_free = {amounts: _find_shortage(amounts, request.requests) for amounts in set(free.values())}
    shortages = {name: shortage_by_free[amounts] for name, amounts in free.items()}
    short = [name for name, shortage in shortages.items() if shortage and name not in preemption.bound_elsewhere]
    if not short:
        return NONE_EMPTIED
    emptied = index_below(preemption.below)
    names = frozenset(name for name in short if name in of_peers or emptied.class_of_node[name].has_room)
    if all(shortages[name] <= preemption.uncounted for name in names):
        return NONE_EMPTIED
    return EmptiedNodes(names, emptied, preemption.below)


def _find_shortage(free: resources.Amounts, requests: resources.Amounts) -> frozenset[str]:
    return frozenset([name for name, amount in requests.items() if free.get(name, 0) < amount])


def find_overrides(  # noqa: PLR0913 - one argument a fact
    request: scheduling_request.SchedulingRequest,
    index: node_index.NodeIndex,
    cluster: cluster_state.ClusterState,
    assumed: assumed_pods.Assumptions,
    *,
    placed: Sequence[gang_status.PlacedPeer],
    retried_uids: Collection[str],
    emptied: EmptiedNodes = NONE_EMPTIED,
    classes: Classes | None = None,
) -> Overrides:
    """Return the nodes that have another class for this request than in the index.

    `placed` are the peers of the requesting pod, which share its NICs. `retried_uids` are the UIDs of assumptions that
    are void, because the scheduler is retrying these pods. `emptied` are nodes without pods of lower priority.
    `classes` are those of the candidate nodes in the index; None: they are looked up.
    """
    changed_nodes = {pod.node for uid in retried_uids if (pod := assumed.get(uid))}
    changed_nodes |= pod_usage.list_nodes(cluster, request.uid)
    if not (changed_nodes or placed or assumed.inferred or request.offers or emptied.names):
        return {}
    peer_requests = _list_peer_requests(index, placed, emptied.names)
    absent = facts_builder.Absent(request.uid, retried_uids)
    inferred_nodes = {pod.node for pod in assumed.inferred}
    # the guesses about a gang name many nodes, of few kinds
    alike = set[str]() if index.facts.depends_on_places else inferred_nodes - changed_nodes - emptied.names
    alike -= request.offers.keys()
    changed_nodes |= inferred_nodes - alike

    def build_facts(name: str, free: resources.Amounts | None = None) -> node_evaluation.NodeFacts:
        removed = cluster.list_below(name, emptied.below) if name in emptied.names else ()
        return index.facts.build(
            cluster.nodes[name],
            free,
            peer_requests.get(name, ()),
            absent=absent._replace(removed_uids=removed),
            assumed=assumed,
        )

    overrides = _find_emptied_classes(index, emptied, changed_nodes | peer_requests.keys())
    # in one order: between equal plans, the order of classes decides
    for name in sorted(request.offers.keys() & (changed_nodes | peer_requests.keys())):
        if name in index.class_of_node:
            offer = request.offers[name]
            overrides[name] = _apply_offer(index, build_facts(name, _select_offered(index, offer)), offer)
    if request.offers:
        overrides |= _find_offered_classes(request, index, classes, except_nodes=overrides)
    for name in changed_nodes | (emptied.names & peer_requests.keys()):
        if name not in overrides and name in cluster.nodes:
            overrides[name] = index.get_class(build_facts(name))
    peers_on = {name: tuple(peer_requests.get(name, ())) for name in alike}
    overrides |= _find_classes_alike(index, peers_on, cluster, assumed, build_facts)
    others = {name: requests for name, requests in peer_requests.items() if name not in overrides}
    return overrides | _find_peer_overrides(index, others)


def _find_offered_classes(
    request: scheduling_request.SchedulingRequest,
    index: node_index.NodeIndex,
    classes: Classes | None,
    *,
    except_nodes: Container[str],
) -> Overrides:
    """Return the classes of offered nodes that differ in the offer only. Few offers are different objects."""
    nodes, offers = request.nodes, list(map(request.offers.get, request.nodes))
    known = list(map(index.class_of_node.get, nodes)) if classes is None else classes
    kinds = list(zip(known, map(id, offers), strict=True))
    class_by_kind = {
        kind: _apply_offer(index, kind[0].evaluation.facts, offer)
        for kind, offer in dict(zip(kinds, offers, strict=True)).items()
        if kind[0] is not None and offer is not None
    }
    different = {kind: offered for kind, offered in class_by_kind.items() if offered is not kind[0]}
    if not different:
        return {}
    return {
        name: different[kind]
        for name, kind in zip(nodes, kinds, strict=True)
        if kind in different and name not in except_nodes
    }


def _find_classes_alike(
    index: node_index.NodeIndex,
    peers_on: Mapping[str, Hashable],
    cluster: cluster_state.ClusterState,
    assumed: assumed_pods.Assumptions,
    build_facts: Callable[[str], node_evaluation.NodeFacts],
) -> Overrides:
    """Return the classes of nodes with assumed pods, where nothing else changes them for this request.

    `peers_on` are the nodes, with the requests of peers there. Nodes of one class with equal free amounts and equal
    pods have equal facts, which are built once.
    """
    class_by_inputs: dict[Hashable, node_evaluation.NodeClass] = {}
    classes = {}
    for name, peers in peers_on.items():
        if (old := index.class_of_node.get(name)) is None:
            continue
        pods = [(pod.requests, assumed.get_scope(pod.uid)) for pod in assumed.list_on_node(name)]
        report = cluster.get_topology_report(name)
        key = (old, cluster.get_free(name), tuple(pods), peers, report and name)
        node_class = class_by_inputs.get(key)
        if node_class is None:
            node_class = class_by_inputs[key] = index.get_class(build_facts(name))
        classes[name] = node_class
    return classes


def _find_emptied_classes(
    index: node_index.NodeIndex, emptied: EmptiedNodes, except_nodes: Collection[str]
) -> Overrides:
    """Return the classes of emptied nodes that differ for this request in nothing else."""
    names = emptied.names.difference(except_nodes)
    if emptied.reduced_index is None or not names:
        return {}
    classes = {name: emptied.reduced_index.class_of_node[name] for name in names}
    own = {node_class: index.get_class(node_class.evaluation.facts) for node_class in set(classes.values())}
    return {name: own[node_class] for name, node_class in classes.items()}


def _list_peer_requests(
    index: node_index.NodeIndex, placed: Sequence[gang_status.PlacedPeer], emptied: Collection[str]
) -> Mapping[str, list[resources.Amounts]]:
    """Return the requests of the peers on each node that needs an override for them.

    A node without a free slot needs one only if its free devices do not show what the peers use.
    """
    classes = list(map(index.class_of_node.get, [peer.node for peer in placed]))
    with_slots = {known for known in set(classes) if known is not None and known.capacity.slot_numa_factors}
    peer_requests: dict[str, list[resources.Amounts]] = {}
    if with_slots or emptied or index.facts.needs_peer_usage:  # a large gang of whole nodes needs none
        for peer, known in zip(placed, classes, strict=True):
            is_needed = known in with_slots or index.facts.needs_peer_usage or peer.node in emptied
            if known is not None and is_needed:
                peer_requests.setdefault(peer.node, []).append(peer.requests)
    return peer_requests


def _find_peer_overrides(
    index: node_index.NodeIndex, peer_requests: Mapping[str, list[resources.Amounts]]
) -> Overrides:
    """Return the classes of nodes that peers use, cached by usage: a large gang has thousands of such nodes."""
    class_by_usage: dict[tuple[node_evaluation.NodeClass, tuple[int, ...]], node_evaluation.NodeClass] = {}
    overrides = {}
    for name, requests in peer_requests.items():
        node_class, usage = index.class_of_node[name], index.facts.sum_peer_usage(requests)
        if (node_class, usage) not in class_by_usage:
            facts = node_class.evaluation.facts._replace(peer_usage=usage)
            class_by_usage[node_class, usage] = index.get_class(facts)
        overrides[name] = class_by_usage[node_class, usage]
    return overrides


def _apply_offer(
    index: node_index.NodeIndex, facts: node_evaluation.NodeFacts, offer: scheduling_request.NodeOffer
) -> node_evaluation.NodeClass:
    """Return the class of a node with these facts and the free resources that the scheduler offers."""
    free = _select_offered(index, offer)
    offered_facts = index.facts.replace_free(
        facts, free, if_preempted=offer.if_preempted, used_elsewhere=offer.used_elsewhere
    )
    return index.get_class(offered_facts)


def _select_offered(index: node_index.NodeIndex, offer: scheduling_request.NodeOffer) -> resources.Amounts:
    """Return the idle resources of an offer, or if these are too few, those after terminating pods have left."""
    if offer.future_idle is None or all(offer.idle.get(name, 0) >= amount for name, amount in index.facts.demanded):
        return offer.idle
    return offer.future_idle
