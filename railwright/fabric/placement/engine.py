"""Filters and scores nodes for one pod, the same way for both schedulers.

A decision follows from the request, the cluster state, the assumed pods and the memory of gangs that
earlier decisions returned (`gang_memory`). Each decision returns the next memory. `PlacementEngine` itself stores only
caches. The wire modules of the extender translate results into the scales and status codes of Volcano and
kube-scheduler.
"""

import itertools
import operator
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from railwright.fabric import resources, topology
from railwright.fabric.claims import pair_demand
from railwright.fabric.placement import scheduling_request
from railwright.fabric.placement.explain import diagnosis, diagnosis_input, node_explainer, node_rows
from railwright.fabric.placement.gangs import gang_capacity, gang_memory, gang_planning, gang_status, planner
from railwright.fabric.placement.nodes import (
    node_classes,
    node_index,
    request_view,
    scheduling_signature,
    scoring,
)
from railwright.fabric.placement.nodes.terms import locality
from railwright.fabric.placement.state import assumed_pods, cluster_state, device_holders
from railwright.fabric.policy import model, presets
from railwright.fabric.reasons import reason

MAX_ROWS = 50  # feasible nodes stored for explanations, and as many infeasible ones


class Decision:
    """The scores of all candidate nodes of one pod. Explanations are formatted on demand."""

    def __init__(
        self,
        view: request_view.RequestView,
        planning_view: request_view.RequestView,
        list_holders: node_rows.ListHolders,
        planned: gang_planning.PlannedGang,
        gang_size: int,
    ) -> None:
        # node -> 0..100; 0 for infeasible nodes and for nodes that the cache does not contain
        self.scores = scoring.score_nodes(view, planned.plan, planned.summary)
        self.explainer = node_explainer.Explainer(planned.plan, planned.summary, view.index.weights.terms)
        self.memory = planned.memory  # for the next decision
        self.gang_size = gang_size
        self._planned = planned
        self._view = view
        self._planning_view = planning_view  # for the pod size that the plan is based on
        self._list_holders = list_holders

    @property
    def plan(self) -> planner.Plan:
        """Return the leaves for the unplaced pods of the gang."""
        return self.explainer.plan

    @property
    def gang(self) -> locality.GangSummary:
        """Return the summary of the gang that locality scores use."""
        return self.explainer.gang

    def list_best_planned(self, tolerance: float) -> tuple[str, ...]:
        """Return the candidate nodes of the target leaf whose score is less than `tolerance` below the best of all."""
        leaf = self.gang.target_leaf
        best = max(self.scores.values(), default=0.0)
        if leaf is None or best <= 0:
            return ()
        scores = self.scores
        nodes = self._view.index.nodes_by_leaf.get(leaf, {})
        return tuple([name for name in nodes if best - scores.get(name, -tolerance) < tolerance])

    @property
    def unknown_nodes(self) -> int:
        """Return the number of candidate nodes that the cache does not contain."""
        return self._view.count_unknown()

    def list_offered_leaves(self) -> set[topology.Domain]:
        """Return the leaves that contain at least one offered node."""
        return self._view.list_offered_leaves()

    def diagnose(self) -> diagnosis.Diagnosis:
        """Explain why the plan is no better. Call it right after the decision, before the node index changes."""
        view, gang = self._planning_view, self.explainer.gang
        # kube-scheduler offers a PodGroup one topology domain at a time
        is_short = not self.plan.is_complete and not view.request.offers and not self._planned.begun
        capacity = gang_capacity.build_of_all(view) if is_short else self._planned.capacity
        capacity = capacity or gang_capacity.build(view)
        return diagnosis.diagnose(
            diagnosis_input.DiagnosisInput(
                remaining=gang.remaining_slots,
                unplaced=gang.remaining,
                plan=self.plan,
                capacity=capacity,
                begun=self._planned.begun,
                class_of_node=view.index.class_of_node,
                peers_by_leaf=gang.peers_by_leaf,
                list_pods_on=self._list_holders,
                list_offered_leaves=view.list_offered_leaves,
                is_single_pod=view.index.signature.is_single_pod,
                same_rails=view.index.signature.same_rails,
            )
        )

    def build_rows(self, max_rows: int) -> list[node_explainer.NodeRow]:
        """Return the rows of at most `max_rows` feasible and `max_rows` other nodes, those of planned leaves first."""
        return node_rows.build_rows(
            self._view, self._list_holders, self._list_nodes_to_explain(), max_rows, self.scores
        )

    def build_row(self, node: str) -> node_explainer.NodeRow:
        """Return the row of one candidate node."""
        return node_rows.build_row(self._view, self._list_holders, node, self.scores.get(node, 0.0))

    def _list_nodes_to_explain(self) -> Iterable[str]:
        leaves = self._view.index.nodes_by_leaf
        for leaf in (self.gang.target_leaf, *self.gang.planned_leaves):
            if leaf is not None:
                yield from leaves.get(leaf, ())
        yield from self.scores

    @property
    def explanations(self) -> Mapping[str, node_explainer.NodeExplanation]:
        """Return the explanation of each candidate node, by name."""
        return {name: self.explainer.explain(self.build_row(name)) for name in self.scores}


class Rejection(msgspec.Struct, frozen=True):
    """The rejection of all nodes of one class, with the reason."""

    reason: reason.Reason
    is_unresolvable: bool  # the pod would not fit even if all other pods left
    nodes: int


class FilterResult(msgspec.Struct, frozen=True):
    """The result of filtering."""

    feasible: Sequence[str]
    rejected: Mapping[str, node_classes.NodeClass]  # filtered node -> its class
    rejections: Mapping[node_classes.NodeClass, Rejection]
    unknown_nodes: int  # nodes that the cache does not contain; they are feasible
    rows: Sequence[node_explainer.NodeRow]  # a few of the infeasible nodes


class PlacementEngine:
    """The placement engine of one cluster. Caches node indexes and gang plans between requests."""

    def __init__(self, cluster: cluster_state.ClusterState, assumed: assumed_pods.AssumedPods) -> None:
        self._cluster = cluster
        self._assumed = assumed
        self._indexes = node_index.NodeIndexes(cluster, assumed)
        self._planner = gang_planning.GangPlanner(cluster, assumed)

    def prewarm(self, document: model.FabricPolicy) -> None:
        """Compute the domains and free resources of all nodes in advance, for each fabric; about a millisecond."""
        for fabric in document.fabrics.values():
            if fabric.rails:
                self._indexes.prewarm(
                    presets.list_domain_keys(fabric.placement), tuple(rail.name for rail in fabric.rails)
                )

    def prepare(self, request: scheduling_request.SchedulingRequest, *, plans: bool = False) -> Iterator[None]:
        """Evaluate the nodes for a new kind of pod, and yield after some, so that a server can answer others meanwhile.

        Without it, `filter` and `score` (`plans`) evaluate all nodes at once.
        """
        signature = self._build_signature(request, request.requests)
        yield from self._indexes.prepare(signature)
        if request.preemption is not None:
            index = self._indexes.get(signature)
            if request_view.offers_full_nodes(request, index):
                yield from self._indexes.prepare(signature, below=request.preemption.below)
        if plans and len({pod.requests for pod in self._cluster.get_gang(request.gang).values()}) > 1:
            planning_request = gang_status.build_status(request, self._cluster, self._assumed).planning_request
            if planning_request != request.requests:
                yield from self._indexes.prepare(self._build_signature(request, planning_request))

    def score(
        self,
        request: scheduling_request.SchedulingRequest,
        memory: gang_memory.PlacementMemory = gang_memory.EMPTY,
        inferred: Sequence[assumed_pods.AssumedPod] = (),
    ) -> Decision:
        """Score every candidate node.

        `memory` is that of the last decision. `inferred` are pods of kube-scheduler that count as assumed for this
        request only.
        """
        assumed = assumed_pods.InferredPods(self._assumed, inferred) if inferred else self._assumed
        gang = gang_status.build_status(request, self._cluster, assumed)
        emptied = self._find_emptied(request, inferred)
        view = self._build_view(request, request.requests, gang, assumed, emptied)
        planning_view = view
        if gang.planning_request != request.requests:
            planning_view = self._build_view(request, gang.planning_request, gang, assumed, emptied)
        planned = self._planner.plan(gang, planning_view, memory, assumed)
        return Decision(view, planning_view, self._build_lister(request, assumed), planned, gang.size)

    def get_index(self, request: scheduling_request.SchedulingRequest) -> node_index.NodeIndex:
        """Return the current node index for pods like the requesting one."""
        return self._get_index(request, request.requests)

    def filter(
        self, request: scheduling_request.SchedulingRequest, inferred: Sequence[assumed_pods.AssumedPod] = ()
    ) -> FilterResult:
        """Filter the candidate nodes without planning the gang.

        `inferred` are pods of kube-scheduler; those of the gang only show whether it simulates a preemption.
        """
        index = self._get_index(request, request.requests)
        retried_uids = self._assumed.find_stale_assumptions(request.uid)
        overrides = request_view.find_overrides(
            request,
            index,
            self._cluster,
            self._assumed,
            placed=(),
            retried_uids=retried_uids,
            emptied=self._find_emptied(request, inferred),
        )
        view = request_view.RequestView(request, index, overrides)
        # None: a node that the cache does not contain; it is feasible
        is_feasible: dict[node_classes.NodeClass | None, bool] = {None: True}
        is_feasible |= {node_class: not node_class.evaluation.refusal for node_class in index.classes}
        if all(is_feasible.values()):
            return FilterResult(request.nodes, {}, {}, view.count_unknown(), ())
        classes = list(map(view.map_classes().get, request.nodes))
        selectors = list(map(is_feasible.__getitem__, classes))
        feasible = list(itertools.compress(request.nodes, selectors))
        pairs = itertools.compress(zip(request.nodes, classes, strict=True), map(operator.not_, selectors))
        rejected = {name: node_class for name, node_class in pairs if node_class is not None}
        list_holders = self._build_lister(request, self._assumed)
        return FilterResult(
            feasible=feasible,
            rejected=rejected,
            rejections={
                node_class: Rejection(refusal, node_class.evaluation.is_unresolvable, nodes)
                for node_class, nodes in Counter(rejected.values()).items()
                if (refusal := node_class.evaluation.refusal) is not None
            },
            unknown_nodes=classes.count(None) if None in set(classes) else 0,
            rows=[
                node_rows.build_infeasible_row(view, list_holders, name)
                for name in itertools.islice(rejected, MAX_ROWS)
            ],
        )

    def _find_emptied(
        self, request: scheduling_request.SchedulingRequest, inferred: Sequence[assumed_pods.AssumedPod]
    ) -> request_view.EmptiedNodes:
        if request.preemption is None:
            return request_view.NONE_EMPTIED
        index = self._get_index(request, request.requests)
        return request_view.find_emptied(
            request,
            index,
            lambda below: self._indexes.get(index.signature, below=below),
            self._cluster,
            inferred,
        )

    def _get_index(
        self, request: scheduling_request.SchedulingRequest, requests: resources.Amounts
    ) -> node_index.NodeIndex:
        return self._indexes.get(self._build_signature(request, requests))

    def _build_signature(
        self, request: scheduling_request.SchedulingRequest, requests: resources.Amounts
    ) -> scheduling_signature.SchedulingSignature:
        is_single_pod = gang_status.is_single_pod(request, self._cluster)
        pairs = request.pairs if requests == request.requests else self._find_pairs(request, requests)
        return scheduling_signature.build_signature(request, requests, pairs, is_single_pod=is_single_pod)

    def _find_pairs(
        self, request: scheduling_request.SchedulingRequest, requests: resources.Amounts
    ) -> pair_demand.PairDemand:
        """Return the pairs of the pods with these requests in the requesting pod's gang."""
        pods = self._cluster.get_gang(request.gang).values()
        claims = next((pod.claims for pod in pods if pod.requests == requests), None)
        return pair_demand.NO_PAIRS if claims is None else self._cluster.read_pairs(claims)

    def _build_view(
        self,
        request: scheduling_request.SchedulingRequest,
        requests: resources.Amounts,
        gang: gang_status.GangStatus,
        assumed: assumed_pods.Assumptions,
        emptied: request_view.EmptiedNodes,
    ) -> request_view.RequestView:
        index = self._get_index(request, requests)
        if emptied.reduced_index is not None:
            emptied = emptied._replace(reduced_index=self._indexes.get(index.signature, below=emptied.below))
        overrides = request_view.find_overrides(
            request,
            index,
            self._cluster,
            assumed,
            placed=gang.placed,
            retried_uids=gang.retried_uids,
            emptied=emptied,
        )
        return request_view.RequestView(request, index, overrides)

    def _build_lister(
        self, request: scheduling_request.SchedulingRequest, assumed: assumed_pods.Assumptions
    ) -> node_rows.ListHolders:
        def list_holders(node: str) -> tuple[device_holders.Holder, ...]:
            return device_holders.list_holders(node, self._cluster, assumed, except_uid=request.uid)

        return list_holders
