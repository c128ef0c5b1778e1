"""Finds the class of every node for pods with one scheduling signature.

`node_states` has the state of each node, which does not depend on the pod. A `NodeIndex` evaluates each state once for
its signature, and states with equal facts form one class. So the cost of a decision depends on the number of states,
not of nodes. A `RequestView` adds the overrides of one request: nodes of peers, and the pod's own old node.
"""

import functools
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from railwright.fabric import resources, topology
from railwright.fabric.placement import bandwidth, scheduling_request
from railwright.fabric.placement.nodes import eligibility, node_evaluation, node_states, score_terms
from railwright.fabric.placement.state import cluster_state, gang_status, object_info, pod_usage


class NodeIndex:
    """The classes of all nodes for one scheduling signature."""

    def __init__(
        self,
        signature: node_evaluation.SchedulingSignature,
        states: node_states.NodeStates,
        cluster: cluster_state.ClusterState,
    ) -> None:
        self.signature = signature
        self._uplinks_per_rail = signature.count_uplinks_per_rail()
        self._other_requests = [
            (name, amount)
            for name, amount in signature.requests.items()
            if amount > 0 and name not in signature.devices
        ]
        # True: the free devices of a node do not show how many pods of the gang share its NICs
        self.needs_peer_usage = bool(signature.unrequested) or any(
            need.amount > signature.count_devices_of_nics(need) for need in signature.needs
        )
        needed = frozenset(signature.uncounted_rails).union(*[need.rails for need in signature.needs])
        self._rails = [rail for rail in signature.fabric.rails if rail.name in needed]
        self._states, self._cluster = states, cluster
        self.leaf_by_node: Mapping[str, topology.Domain] = states.leaf_by_node
        self.nodes_by_leaf: Mapping[topology.Domain, Mapping[str, None]] = states.nodes_by_leaf
        # caches of this index, so that it leaves nothing behind
        self.get_class = functools.lru_cache(node_states.MAX_STATES)(self._evaluate)
        self._get_class_of_state = functools.lru_cache(node_states.MAX_STATES)(self._evaluate_state)
        self._depends_on_labels = eligibility.depends_on_labels(signature.spec)
        self._unselected: tuple[int, Collection[str]] = (-1, ())  # at a version of the nodes

    @property
    def uplinks(self) -> bandwidth.Uplinks:
        """Return the uplinks of all domains, as a gang of such pods uses them."""
        ratios = self.signature.fabric.placement.oversubscription
        return bandwidth.Uplinks(self._states.domain_sizes, ratios, self._uplinks_per_rail)

    def find_class(
        self, name: str, peer_requests: tuple[resources.FrozenAmounts, ...] = ()
    ) -> node_evaluation.NodeClass | None:
        """Return the class of a node beside gang peers with these requests; None if the cache does not contain it."""
        return self._get_class_of_state(self._states.by_node.get(name), peer_requests)

    def find_classes(self, names: Iterable[str]) -> list[node_evaluation.NodeClass | None]:
        """Return the class of each of these nodes."""
        return list(map(self._get_class_of_state, map(self._states.by_node.get, names)))

    @property
    def class_of_node(self) -> Mapping[str, node_evaluation.NodeClass]:
        """Return the class of each node."""
        classes = zip(self._states.by_node, self.find_classes(self._states.by_node), strict=True)
        return {name: node_class for name, node_class in classes if node_class is not None}

    def count_classes(
        self, leaves: Iterable[topology.Domain] | None = None
    ) -> dict[topology.Domain, node_evaluation.Counts]:
        """Return the number of nodes of each class, by leaf; of all leaves unless `leaves` names some."""
        counts: dict[topology.Domain, node_evaluation.Counts] = {}
        for leaf in self._states.by_leaf if leaves is None else leaves:
            of_leaf = counts[leaf] = {}
            for state, nodes in self._states.by_leaf.get(leaf, {}).items():
                if (node_class := self._get_class_of_state(state)) is not None:
                    of_leaf[node_class] = of_leaf.get(node_class, 0) + nodes
        return counts

    def _evaluate_state(
        self, state: node_states.NodeState | None, peer_requests: tuple[resources.FrozenAmounts, ...] = ()
    ) -> node_evaluation.NodeClass | None:
        return None if state is None else self.get_class(self._build_facts(state, peer_requests))

    def _evaluate(self, facts: node_evaluation.NodeFacts) -> node_evaluation.NodeClass:
        node_class = node_evaluation.evaluate(self.signature, facts)
        return msgspec.structs.replace(
            node_class,
            score=score_terms.compute_score(node_class, self.signature),
            fill_order=score_terms.compute_fill_order(node_class) if self.signature.is_single_pod else (),
        )

    @property
    def unselected(self) -> Collection[str]:
        """Return the nodes whose labels the pod's node selector or affinity excludes."""
        if not self._depends_on_labels:
            return ()
        spec, version = self.signature.spec, self._cluster.nodes_version
        if self._unselected[0] != version:
            nodes = self._cluster.nodes.items()
            self._unselected = version, {name for name, node in nodes if not eligibility.selects(node, spec)}
        return self._unselected[1]

    def exclude(self, names: Collection[str]) -> "Overrides":
        """Return the classes of these nodes as if they took no pod, without nodes that the cache does not have."""
        classes = self.find_classes(names)
        known = dict.fromkeys(node_class for node_class in classes if node_class)
        excluded = {node_class: self.get_class(node_class.facts._replace(eligible=False)) for node_class in known}
        return {name: excluded[node_class] for name, node_class in zip(names, classes, strict=True) if node_class}

    # --- the facts of a node ----------------------------------------------------------------------------------

    def build_facts(
        self, name: str, peer_requests: Sequence[resources.Amounts] = (), *, absent: Collection[str]
    ) -> node_evaluation.NodeFacts:
        """Return the facts of a node without the pods `absent` (UIDs), beside gang peers with these requests."""
        return self._build_facts(self._states.read_state(name, absent), peer_requests)

    def _build_facts(
        self, state: node_states.NodeState, peer_requests: Sequence[resources.Amounts] = ()
    ) -> node_evaluation.NodeFacts:
        node = state.node
        return node_evaluation.NodeFacts(
            eligible=eligibility.admits(node, self.signature.spec),
            shape=state.shape,
            fits_by_other_resources=self._count_fitting_pods(state.free),
            devices=tuple(
                [
                    node_evaluation.Devices(
                        state.free.get(name, 0),
                        node.allocatable.get(name, 0),
                        node.capacity.get(name, 0),
                        self.signature.requests.get(name, 0),
                        self._sum_peer_usage(name, peer_requests) if peer_requests else 0,
                    )
                    for name in self.signature.devices
                ]
            ),
            broken=object_info.find_broken(node, self._rails),
            zones=state.zones,
            allocatable_zones=state.allocatable_zones,
        )

    def replace_free(self, facts: node_evaluation.NodeFacts, free: resources.Amounts) -> node_evaluation.NodeFacts:
        """Return the facts of a node with these free resources and free NUMA nodes, as if its pods were gone."""
        devices = zip(self.signature.devices, facts.devices, strict=True)
        return facts._replace(
            devices=tuple([row._replace(free=free.get(name, 0)) for name, row in devices]),
            fits_by_other_resources=self._count_fitting_pods(free),
            eligible=True,
            zones=facts.allocatable_zones,
        )

    def _sum_peer_usage(self, device: str, peer_requests: Sequence[resources.Amounts]) -> int:
        """Return how much of a device peers use. Those with accelerators also use rails without requesting them."""
        unrequested, accelerators = self.signature.unrequested.get(device, 0), self.signature.accelerators
        return sum(requests.get(device, 0) for requests in peer_requests) or sum(
            unrequested for requests in peer_requests if any(requests.get(name, 0) > 0 for name in accelerators)
        )

    def _count_fitting_pods(self, amounts: resources.Amounts) -> int:
        """Return how many pods fit by CPU, memory and other resources that are not devices."""
        fits = [amounts.get(name, 0) // amount for name, amount in self._other_requests]
        return max(0, min([node_evaluation.MAX_SLOTS_PER_NODE, *fits]))


# --- the index as one request sees it -------------------------------------------------------------------------

Overrides = dict[str, node_evaluation.NodeClass]
"""Node -> its class for one request, if that is not the class in the index."""


class RequestView(msgspec.Struct, frozen=True, dict=True):
    """The node index with the overrides of one request."""

    request: scheduling_request.SchedulingRequest
    index: NodeIndex
    overrides: Overrides

    def get_class(self, node: str) -> node_evaluation.NodeClass | None:
        """Return a node's class; None if the cache does not contain it."""
        return self.overrides.get(node) or self.index.find_class(node)

    def find_classes(self, nodes: Sequence[str]) -> list[node_evaluation.NodeClass | None]:
        """Return the class of each of these nodes; None if the cache does not contain it."""
        classes = self.index.find_classes(nodes)
        return list(map(self.overrides.get, nodes, classes)) if self.overrides else classes

    def get_leaf(self, node: str) -> topology.Domain:
        """Return a node's leaf, or NO_DOMAIN if it has none."""
        return self.index.leaf_by_node.get(node, topology.NO_DOMAIN)

    @functools.cached_property
    def offered_leaves(self) -> frozenset[topology.Domain]:
        """Return the leaves that contain at least one candidate node."""
        leaves = frozenset(map(self.index.leaf_by_node.get, self.request.nodes))
        return frozenset([leaf for leaf in leaves if leaf is not None])


def build_view(
    request: scheduling_request.SchedulingRequest,
    index: NodeIndex,
    gang: gang_status.GangStatus,
    cluster: cluster_state.ClusterState,
) -> RequestView:
    """Return the index as this request sees it: some nodes have another class.

    Peers of the requesting pod share its NICs. The pod's own old allocation never counts against it (docs/interface.md
    7.7).
    """
    unselected = {name for name in index.unselected if not (request.is_filtered and name in request.offered)}
    overrides = index.exclude(unselected)
    changed_nodes = {*pod_usage.list_nodes(cluster, request.uid)}
    if (assumed_pod := cluster.assumed.get(request.uid)) is not None:
        changed_nodes.add(assumed_pod.node)
    peer_requests = _list_peer_requests(index, gang.placed)
    for name in sorted(changed_nodes | peer_requests.keys()):  # between equal plans, the order of classes decides
        if name in cluster.nodes:
            beside = tuple(peer_requests.get(name, ()))
            known = index.find_class(name, beside)
            if name in changed_nodes:
                known = index.get_class(index.build_facts(name, beside, absent=[request.uid]))
            if known is not None:
                is_excluded = name in unselected
                overrides[name] = index.get_class(known.facts._replace(eligible=False)) if is_excluded else known
    view = RequestView(request, index, overrides)
    if request.is_announced:
        overrides |= _find_emptied(view, cluster)
    return view


def _find_emptied(view: RequestView, cluster: cluster_state.ClusterState) -> Overrides:
    """Return the classes of candidate nodes with too few free resources, as if their bound pods were gone.

    Volcano scores such nodes to choose pods to preempt, or because pods there terminate. It does not count devices of
    ResourceSlices, so all of these may be in use.
    """
    emptied: Overrides = {}
    index, nodes = view.index, view.request.nodes
    classes = view.find_classes(nodes)
    full = {node_class for node_class in set(classes) if node_class is not None and node_class.is_full}
    for name, node_class in zip(nodes, classes, strict=True) if full else ():
        if node_class is None or node_class not in full:
            continue
        free = Counter(cluster.nodes[name].allocatable)
        for pod in cluster.assumed.list_on_node(name):
            if pod.uid != view.request.uid:
                free.subtract(pod.requests)
        for device in cluster.list_claimable(name):
            free[device] = pod_usage.compute_free(name, cluster).get(device, 0)
        emptied[name] = index.get_class(index.replace_free(node_class.facts, free))
    return emptied


def _list_peer_requests(
    index: NodeIndex, placed: Sequence[gang_status.PlacedPeer]
) -> Mapping[str, list[resources.FrozenAmounts]]:
    """Return the requests of the peers on each node that needs an override for them.

    A node without a free slot needs one only if its free devices do not show what the peers use.
    """
    peer_requests: dict[str, list[resources.FrozenAmounts]] = {}
    for peer, known in zip(placed, index.find_classes([peer.node for peer in placed]), strict=True):
        if known is not None and (known.slot_numa_factors or index.needs_peer_usage):
            peer_requests.setdefault(peer.node, []).append(peer.requests)
    return peer_requests
