"""Caches the evaluations of all nodes for one scheduling signature, updated from the change logs.

Nodes with equal facts share one evaluation (a node class), and only changed nodes are evaluated again. A decision over
5,000 nodes therefore costs as much as one over a few nodes. The cache can be dropped at any time.
"""

import operator
from collections import OrderedDict
from collections.abc import Collection, Hashable, Mapping, Sequence
from types import ModuleType

from railwright.fabric import resources, topology
from railwright.fabric.placement.nodes import (
    eligibility,
    kubelet_admission,
    node_evaluation,
    numa,
    scheduling_signature,
)
from railwright.fabric.placement.nodes.terms import completion, locality, packing
from railwright.fabric.placement.nodes.terms import numa as numa_term
from railwright.fabric.placement.nodes.terms import rails as rails_term
from railwright.fabric.placement.state import assumed_pods, cluster_state, domain_index
from railwright.fabric.policy import model, selectors
from railwright.fabric.reasons import reason

MAX_INDEXES = 16  # cached signatures, about 2 MB each at 5,000 nodes; a cluster runs few kinds of large jobs at a time
_NODE_TERMS: tuple[ModuleType, ...] = (rails_term, numa_term, packing)


class NodeIndex:
    """The evaluations of all nodes for one scheduling signature."""

    def __init__(
        self,
        signature: scheduling_signature.SchedulingSignature,
        cluster: cluster_state.ClusterState,
        assumed: assumed_pods.AssumedPods,
        domains: domain_index.DomainIndex,
    ) -> None:
        self.signature = signature
        self._domain_index = domains
        self._cluster = cluster
        self._assumed = assumed
        self._positions: tuple[int, int] = (-1, -1)
        self._other_requests = [
            (name, amount)
            for name, amount in signature.requests.items()
            if amount > 0 and name not in signature.devices
        ]
        wanted = {need.resource: need.amount for need in signature.needs}
        wanted |= {name: signature.requests[name] for name in signature.devices if name in signature.requests}
        self.demanded = tuple(wanted.items())  # (accelerator or pool, milli-units)
        self._no_usage = (0,) * len(signature.devices)
        self._unrequested_rails = {
            need.resource: need.amount for need in signature.needs if not signature.requests.get(need.resource)
        }
        self._ignores_numa = signature.fabric.placement.numa == "ignore"
        self.terms = [term for term in _NODE_TERMS if not (self._ignores_numa and term.NAME == numa_term.NAME)]
        self._weights = {term.NAME: _get_weight(signature, term.NAME) for term in self.terms}
        self._locality_weight = _get_weight(signature, locality.NAME) if signature.domains else 0.0
        self._weight_sum = self._locality_weight + sum(self._weights.values())
        self._class_by_facts: dict[node_evaluation.NodeFacts, int] = {}
        self._counted_amounts: dict[int, tuple[resources.Amounts, tuple[int, ...], int]] = {}
        self._clear()

    def _clear(self) -> None:
        self.evaluations: list[node_evaluation.NodeEvaluation] = []
        self.fill_orders: list[
            completion.FillOrder
        ] = []  # by class: fill order for a single-pod job; () for other jobs
        self.scores: list[float] = []  # by class: score without locality, 0..100
        self._class_by_facts.clear()
        self.class_of_node: dict[str, int] = {}  # node -> index of its class
        self.leaf_by_node: dict[str, topology.Domain] = {}  # node -> its leaf
        self.class_counts: dict[topology.Domain, dict[int, int]] = {}  # leaf -> index of class -> number of nodes
        self.node_scores: dict[str, float] = {}  # node -> score without locality

    def refresh(self) -> None:
        """Evaluate the nodes that changed since the last call."""
        self._domain_index.refresh()
        journals = (self._cluster.change_log, self._assumed.change_log)
        changes = [log.read_since(position) for log, position in zip(journals, self._positions, strict=True)]
        self._positions = (journals[0].position, journals[1].position)
        if None in changes or len(self.evaluations) > _MAX_CLASSES:
            self._clear()
            changes = [self._cluster.nodes]
        for name in {name: None for names in changes if names is not None for name in names}:
            self._update_node(name)

    def build_facts(
        self,
        node: cluster_state.NodeInfo,
        free: resources.Amounts,
        peer_requests: Sequence[resources.Amounts] = (),
        *,
        self_uid: str = "",
        ignored_uids: Collection[str] = (),
    ) -> node_evaluation.NodeFacts:
        """Build NodeFacts for `node` given `free`; `peer_requests` is what gang peers already use on it.

        `self_uid` is the UID of the requesting pod, whose own old allocation never counts against it (docs/interface.md
        7.7). `ignored_uids` are the UIDs of assumptions to ignore.
        """
        signature = self.signature
        shape = selectors.first_shape(signature.shapes, node.labels) if signature.shapes else None
        assumed_requests = [
            assumed_pod.requests
            for assumed_pod in self._list_assumed(node.name, ignored_uids)
            if self._is_from_volcano(assumed_pod)
        ]
        zones, allocatable_zones, told = (
            ((), (), (None, False)) if self._ignores_numa else self._build_zones(node, shape, self_uid, ignored_uids)
        )
        return node_evaluation.NodeFacts(
            eligible=eligibility.is_eligible(node, signature.spec),
            shape=shape.name if shape else node.labels.get(_GPU_PRODUCT, ""),
            fits_by_other_resources=self.count_fits(free),
            free=self._count_devices(free),
            allocatable=self._count_devices(node.allocatable),
            capacity=self._count_devices(node.capacity),
            peer_usage=self.sum_peer_usage(peer_requests) if peer_requests else self._no_usage,
            zones=zones,
            allocatable_zones=allocatable_zones,
            admission_error=told[0],
            is_never_admissible=told[1],
            used_elsewhere=self._sum(assumed_requests) if assumed_requests else (),
        )

    def sum_peer_usage(self, peer_requests: Sequence[resources.Amounts]) -> tuple[int, ...]:
        """Return the devices that peers use, including rails that they use without requesting them."""
        if not self._unrequested_rails:
            return self._sum(peer_requests)
        accelerated_pods = sum(
            1 for requests in peer_requests if any(requests.get(name, 0) > 0 for name in self.signature.accelerators)
        )
        return tuple(
            sum(requests.get(name, 0) for requests in peer_requests)
            or accelerated_pods * self._unrequested_rails.get(name, 0)
            for name in self.signature.devices
        )

    def _sum(self, amounts: Sequence[resources.Amounts]) -> tuple[int, ...]:
        """Add up the amounts of the signature's devices, in its order."""
        return tuple([sum([each.get(name, 0) for each in amounts]) for name in self.signature.devices])

    def replace_free(
        self,
        facts: node_evaluation.NodeFacts,
        free: resources.Amounts,
        *,
        if_preempted: bool = False,
        used_elsewhere: resources.Amounts | None = None,
    ) -> node_evaluation.NodeFacts:
        """Return the facts with other free resources. With `if_preempted`, all NUMA nodes count as free (preemption).

        `used_elsewhere` is what assumed pods of other schedulers take in addition; None keeps the present value.
        """
        _, devices, others = self._count(free)
        if if_preempted:
            facts = facts._replace(zones=facts.allocatable_zones)
        is_unreported = self.signature.fabric.placement.numa != "required" and any(
            map(operator.gt, devices, facts.free)
        )
        if facts.admission_error and not facts.is_never_admissible and (if_preempted or is_unreported):
            facts = facts._replace(admission_error=None)
        if used_elsewhere is not None:
            facts = facts._replace(used_elsewhere=self._sum([used_elsewhere]) if used_elsewhere else ())
        return facts._replace(free=devices, fits_by_other_resources=others, eligible=True)

    def _count_devices(self, amounts: resources.Amounts) -> tuple[int, ...]:
        """Return the amounts of the signature's devices, in its order."""
        return self._count(amounts)[1]

    def count_fits(self, free: resources.Amounts) -> int:
        """Return the number of pods that fit by CPU, memory and other resources that are not devices."""
        return self._count(free)[2]

    def _count(self, amounts: resources.Amounts) -> tuple[resources.Amounts, tuple[int, ...], int]:
        """Return (amounts, device amounts, pods that fit by other resources), cached by the identity of `amounts`.

        Equal nodes share one amounts object.
        """
        counted = self._counted_amounts.get(id(amounts))
        if counted is None or counted[0] is not amounts:
            fits = node_evaluation.MAX_SLOTS_PER_NODE
            for name, amount in self._other_requests:
                fits = min(amounts.get(name, 0) // amount, fits)
            devices = tuple([amounts.get(name, 0) for name in self.signature.devices])
            counted = self._counted_amounts[id(amounts)] = (amounts, devices, max(0, fits))
            if len(self._counted_amounts) > _MAX_AMOUNTS:
                self._counted_amounts = {id(amounts): counted}
        return counted

    def get_class(self, facts: node_evaluation.NodeFacts) -> int:
        """Return the index of the class of nodes with these facts; add the class if it is new."""
        node_class = self._class_by_facts.get(facts)
        if node_class is None:
            node_class = self._class_by_facts[facts] = len(self.evaluations)
            evaluation = node_evaluation.evaluate(self.signature, facts)
            self.evaluations.append(evaluation)
            self.fill_orders.append(completion.compute_fill_order(evaluation) if self.signature.is_single_pod else ())
            self.scores.append(self._compute_score(evaluation))
        return node_class

    def compute_free(self, name: str, *, self_uid: str = "", ignored_uids: Collection[str] = ()) -> resources.Amounts:
        """Return allocatable minus bound minus assumed.

        The pods `self_uid` and `ignored_uids` count as absent (see `build_facts`).
        """
        free = self._cluster.get_free(name)
        taken = [assumed_pod.requests for assumed_pod in self._list_assumed(name, ignored_uids)]
        self_pod = self._cluster.pods.get(self_uid) if self_uid else None
        returned = self_pod.requests if self_pod is not None and self_pod.node == name else {}
        if not taken and not returned:
            return free
        result = dict(free)
        for amounts in taken:
            for resource, amount in amounts.items():
                result[resource] = result.get(resource, 0) - amount
        for resource, amount in returned.items():
            result[resource] = result.get(resource, 0) + amount
        return result

    def _is_from_volcano(self, assumed_pod: assumed_pods.AssumedPod) -> bool:
        """True if a Volcano instance announced the pod. kube-scheduler does not know of it."""
        return self._assumed.get_scope(assumed_pod.uid) != assumed_pods.KUBE_SCOPE

    def _list_assumed(self, name: str, ignored_uids: Collection[str]) -> list[assumed_pods.AssumedPod]:
        """Return the pods assumed on a node whose binding has not been observed."""
        pods = self._cluster.pods
        return [
            assumed_pod
            for assumed_pod in self._assumed.list_on_node(name)
            if assumed_pod.uid not in ignored_uids and not ((bound := pods.get(assumed_pod.uid)) and bound.node)
        ]

    def compute_locality_score(self, value: float) -> float:
        """Return the score, 0..100, that a locality value of 0..1 adds to a node's base score."""
        return 100.0 * self._locality_weight * value / self._weight_sum if self._weight_sum > 0 else 0.0

    def _compute_score(self, evaluation: node_evaluation.NodeEvaluation) -> float:
        if evaluation.refusal or self._weight_sum <= 0:
            return 0.0
        if self.signature.is_single_pod:
            rails = self._weights[rails_term.NAME] * rails_term.score(evaluation)[0]
            return 100.0 * (rails + completion.score_fill_order(evaluation, self._weights)) / self._weight_sum
        return (
            100.0
            * sum(self._weights[term.NAME] * float(term.score(evaluation)[0]) for term in self.terms)
            / self._weight_sum
        )

    # --- keeping current ------------------------------------------------------------------------------

    def _update_node(self, name: str) -> None:
        """Update the class of a node."""
        node = self._cluster.nodes.get(name)
        if node is None:
            self._remove_node(name)
            return
        leaf = self._domain_index.leaf_by_node[name]
        kind = self.get_class(self.build_facts(node, self.compute_free(name)))
        old = self.class_of_node.get(name)
        if old is not None and self.leaf_by_node[name] == leaf:
            if old != kind:
                self._move(self.class_counts[leaf], old, kind)
        else:
            self._remove_node(name)
            counts = self.class_counts.setdefault(leaf, {})
            counts[kind] = counts.get(kind, 0) + 1
            self.leaf_by_node[name] = leaf
        self.class_of_node[name] = kind
        self.node_scores[name] = self.scores[kind]

    def _remove_node(self, name: str) -> None:
        old = self.class_of_node.pop(name, None)
        if old is None:
            return
        leaf = self.leaf_by_node.pop(name)
        self._move(self.class_counts[leaf], old, None)
        if not self.class_counts[leaf]:
            del self.class_counts[leaf]
        del self.node_scores[name]

    @staticmethod
    def _move(counts: dict[int, int], old: int, new: int | None) -> None:
        counts[old] -= 1
        if not counts[old]:
            del counts[old]
        if new is not None:
            counts[new] = counts.get(new, 0) + 1

    @property
    def nodes_by_leaf(self) -> Mapping[topology.Domain, Mapping[str, None]]:
        """Return the nodes of each leaf."""
        return self._domain_index.nodes_by_leaf

    @property
    def domain_sizes(self) -> Mapping[topology.Domain, int]:
        """Return the number of nodes of each domain at any level, free or not."""
        return self._domain_index.domain_sizes

    def _build_zones(
        self, node: cluster_state.NodeInfo, shape: model.NodeShape | None, self_uid: str, ignored_uids: Collection[str]
    ) -> tuple[numa.Zones, numa.Zones, tuple[reason.Reason | None, bool]]:
        """Return (free zones, allocatable zones, (kubelet's admission error or None, True if it is permanent)).

        With `numa: required` the admission check uses the best estimate of what is free on each NUMA node. Otherwise it
        uses only what kubelet reported, so that no pod waits because of an estimate.
        """
        signature, report = self.signature, self._cluster.get_topology_report(node.name)
        if shape is None and report is None:
            return (), (), (None, False)
        rails, accelerators = signature.fabric.rails, signature.accelerators
        assumed_requests = [assumed_pod.requests for assumed_pod in self._list_assumed(node.name, ignored_uids)]
        zones = self._cluster.compute_free_zones(
            node, shape, rails, accelerators, assumed_requests, except_uid=self_uid
        )
        allocatable_zones: numa.Zones = ()
        if shape is not None:
            allocatable_zones = self._cluster.compute_allocatable_zones(node, shape, rails, accelerators)
        elif report is not None:
            allocatable_zones = numa.read_allocatable_zones(
                report, {*accelerators, *(rail.resource for rail in rails if rail.resource)}
            )
        if report is None or not signature.container_demands or not kubelet_admission.is_strict(report):
            return zones, allocatable_zones, (None, False)
        if signature.fabric.placement.numa == "required":
            admission_error = kubelet_admission.find_admission_error(
                report, zones, signature.requested_demand, signature.container_demands
            )
            is_never_admissible = bool(admission_error) and bool(
                kubelet_admission.find_admission_error(
                    report, allocatable_zones, signature.requested_demand, signature.container_demands
                )
            )
            return zones, allocatable_zones, (admission_error, is_never_admissible)
        names = {*accelerators, *(rail.resource for rail in rails if rail.resource)}
        if admission_error := kubelet_admission.find_admission_error(
            report, numa.read_allocatable_zones(report, names), signature.requested_demand, signature.container_demands
        ):
            return zones, allocatable_zones, (admission_error, True)
        if self_uid or assumed_requests or not self._cluster.is_reported_exactly(node.name, names):
            return zones, allocatable_zones, (None, False)
        return (
            zones,
            allocatable_zones,
            (
                kubelet_admission.find_admission_error(
                    report, zones, signature.requested_demand, signature.container_demands
                ),
                False,
            ),
        )


def _get_weight(signature: scheduling_signature.SchedulingSignature, term: str) -> float:
    return float(getattr(signature.fabric.placement.weights, term))


_MAX_AMOUNTS = 8192  # cached amounts of nodes; the cache is cleared above that
_MAX_CLASSES = 20_000  # node classes; the index is rebuilt above that
_GPU_PRODUCT = (
    "nvidia.com/gpu.product"  # NVIDIA's GPU feature discovery: tells node types apart where the policy does not
)


class NodeIndexes:
    """The node indexes of the most recently used signatures."""

    def __init__(self, cluster: cluster_state.ClusterState, assumed: assumed_pods.AssumedPods) -> None:
        self._cluster = cluster
        self._assumed = assumed
        self._indexes: OrderedDict[Hashable, NodeIndex] = OrderedDict()
        self._domain_indexes: OrderedDict[Hashable, domain_index.DomainIndex] = OrderedDict()

    def get(self, signature: scheduling_signature.SchedulingSignature) -> NodeIndex:
        """Return the node index of a signature, updated."""
        index = self._indexes.get(signature.key)
        if index is None:
            domains = self._get_domain_index(signature.domains, tuple(rail.name for rail in signature.fabric.rails))
            index = self._indexes[signature.key] = NodeIndex(signature, self._cluster, self._assumed, domains)
            if len(self._indexes) > MAX_INDEXES:
                self._indexes.popitem(last=False)
        self._indexes.move_to_end(signature.key)
        index.refresh()
        return index

    def prewarm(self, domains: tuple[str, ...], rails: tuple[str, ...]) -> None:
        """Compute in advance what all signatures of a fabric share: the leaf and the free resources of each node."""
        self._get_domain_index(domains, rails).refresh()
        for name in self._cluster.nodes:
            self._cluster.get_free(name)

    def _get_domain_index(self, domains: tuple[str, ...], rails: tuple[str, ...]) -> domain_index.DomainIndex:
        key = (domains, rails)
        index = self._domain_indexes.get(key)
        if index is None:
            index = self._domain_indexes[key] = domain_index.DomainIndex(self._cluster, domains, rails)
            if len(self._domain_indexes) > MAX_INDEXES:
                self._domain_indexes.popitem(last=False)
        return index
