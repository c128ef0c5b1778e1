"""Filters and scores nodes for one pod, the same way for both schedulers.

The result depends only on the request, the cluster state and the assumed pods; `PlacementEngine` only caches. The wire
modules of the extender translate it into the scales and status codes of Volcano and kube-scheduler.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from railwright.fabric import resources, topology
from railwright.fabric.placement import scheduling_request
from railwright.fabric.placement.explain import diagnosis, node_explainer
from railwright.fabric.placement.gangs import gang_status, plan_cache, planner, single_pods, soft_reservations
from railwright.fabric.placement.nodes import node_index, request_view, scheduling_signature, scoring
from railwright.fabric.placement.nodes.terms import locality
from railwright.fabric.placement.state import assumed_pods, cluster_state
from railwright.fabric.policy import model, presets
from railwright.fabric.reasons import reason
from railwright.fabric.workloads import membership

MAX_ROWS = 50  # feasible nodes stored for explanations, and as many infeasible ones


class Decision:
    """The scores of all candidate nodes of one pod. Explanations are formatted on demand."""

    def __init__(
        self,
        view: request_view.RequestView,
        planning: request_view.RequestView,
        scores: dict[str, float],
        explainer: node_explainer.Explainer,
        size: int,
    ) -> None:
        self.scores = scores  # node -> 0..100; 0 for infeasible nodes and for nodes that the cache does not contain
        self.explainer = explainer
        self.gang_size = size
        self._view = view
        self._planning = planning  # the view for the pod size that the plan is based on

    @property
    def plan(self) -> planner.Plan:
        """Return the leaves for the unplaced pods of the gang."""
        return self.explainer.plan

    @property
    def gang(self) -> locality.GangSummary:
        """Return the summary of the gang that locality scores use."""
        return self.explainer.gang

    @property
    def unknown_nodes(self) -> int:
        """Return the number of candidate nodes that the cache does not contain."""
        return self._view.count_unknown()

    def diagnose(self) -> diagnosis.Diagnosis:
        """Explain why the plan is no better. Call it right after the decision, before the node index changes."""
        view, gang = self._planning, self.explainer.gang
        return diagnosis.diagnose(
            diagnosis.DiagnosisInput(
                remaining=gang.remaining_slots,
                unplaced=gang.remaining,
                plan=self.plan,
                capacity=request_view.build_capacity(view.request, view),
                evaluations=view.index.evaluations,
                class_of_node=view.index.class_of_node,
                peers_by_leaf=gang.peers_by_leaf,
                list_pods_on=view.holders,
                list_offered_leaves=view.list_offered_leaves,
                is_single_pod=view.index.signature.is_single_pod,
            )
        )

    def build_rows(self, max_rows: int) -> list[node_explainer.NodeRow]:
        """Return up to `max_rows` feasible nodes, and as many others: target leaf first, then planned leaves."""
        return self._view.build_rows(self._list_nodes_to_explain(), max_rows, self.scores)

    def build_row(self, node: str) -> node_explainer.NodeRow:
        """Return one candidate node."""
        return self._view.build_row(node, self.scores.get(node, 0.0))

    def _list_nodes_to_explain(self) -> Iterable[str]:
        leaves = self._view.index.nodes_by_leaf
        for leaf in (self.gang.target_leaf, *self.gang.planned_leaves):
            if leaf is not None:
                yield from leaves.get(leaf, ())
        yield from self.scores

    @property
    def explanations(self) -> Mapping[str, node_explainer.NodeExplanation]:
        """Return the explanation of each candidate node, by name."""
        return {name: self.explainer.explain(self._view.build_row(name, score)) for name, score in self.scores.items()}


class Rejection(msgspec.Struct, frozen=True):
    """Why nodes of one class are filtered."""

    reason: reason.Reason
    is_unresolvable: bool  # the pod would not fit even if all other pods left
    nodes: int


class FilterResult(msgspec.Struct, frozen=True):
    """The result of filtering."""

    feasible: Sequence[str]
    rejected: Mapping[str, int]  # filtered node -> its class
    rejections: Mapping[int, Rejection]  # by class
    unknown_nodes: int  # nodes that the cache does not contain; they are feasible
    rows: Sequence[node_explainer.NodeRow]  # a few of the infeasible nodes


class PlacementEngine:
    """The placement engine of one cluster. Caches node indexes, gang plans and soft reservations between requests."""

    def __init__(self, cluster: cluster_state.ClusterState, assumed: assumed_pods.AssumedPods) -> None:
        self._cluster = cluster
        self._assumed = assumed
        self._indexes = node_index.NodeIndexes(cluster, assumed)
        self._reservations = soft_reservations.SoftReservations(cluster, assumed)
        self._plans = plan_cache.PlanCache(cluster, assumed)

    def prewarm(self, document: model.FabricPolicy) -> None:
        """Compute the domains and free resources of all nodes in advance, for each fabric; about a millisecond."""
        for fabric in document.fabrics.values():
            if fabric.rails:
                self._indexes.prewarm(presets.domains(fabric.placement), tuple(rail.name for rail in fabric.rails))

    def score(self, request: scheduling_request.SchedulingRequest) -> Decision:
        """Score every candidate node."""
        gang = gang_status.build_status(request, self._cluster, self._assumed)
        is_single_pod = gang_status.is_single_pod(request, self._cluster)
        view = self._build_view(request, request.requests, gang, is_single_pod=is_single_pod)
        planning = view
        if gang.planning_request is not request.requests:
            planning = self._build_view(request, gang.planning_request, gang, is_single_pod=is_single_pod)
        plan, summary = self._plan(request, gang, planning)
        wording = node_explainer.Explainer(plan=plan, gang=summary, terms=view.index.terms)
        return Decision(view, planning, scoring.score_nodes(request, view, plan, summary), wording, gang.size)

    def on_rollback(self, gang: membership.GangKey) -> None:
        """Drop the soft reservation of a gang whose scheduler rolled back its allocations."""
        self._reservations.drop(gang)

    def get_index(self, request: scheduling_request.SchedulingRequest) -> node_index.NodeIndex:
        """Return the current node index for pods like the requesting one."""
        is_single_pod = gang_status.is_single_pod(request, self._cluster)
        return self._indexes.get(
            scheduling_signature.build_signature(request, request.requests, is_single_pod=is_single_pod)
        )

    def filter(self, request: scheduling_request.SchedulingRequest) -> FilterResult:
        """Filter the candidate nodes without planning the gang."""
        retried_uids = self._assumed.find_stale_assumptions(request.uid)
        no_gang = gang_status.GangStatus(
            size=1,
            placed=(),
            slot_ranks=(),
            missing=0,
            unplaced=0,
            planning_request=request.requests,
            placed_workers=(),
            retried_uids=retried_uids,
        )
        view = self._build_view(
            request, request.requests, no_gang, is_single_pod=gang_status.is_single_pod(request, self._cluster)
        )
        nodes, evaluations = request.nodes, view.index.evaluations
        refusals = [evaluation.refusal for evaluation in evaluations]
        if not any(refusals) and not view.overrides:
            return FilterResult(feasible=nodes, rejected={}, rejections={}, unknown_nodes=view.count_unknown(), rows=())
        class_of_node = view.map_classes()
        classes = [class_of_node.get(name, -1) for name in nodes]
        is_feasible = [
            *(not refusal for refusal in refusals),
            True,
        ]  # the last item is for index -1, a node not in the cache
        feasible = list(itertools.compress(nodes, map(is_feasible.__getitem__, classes)))
        infeasible = {
            name: node_class for name, node_class in zip(nodes, classes, strict=True) if not is_feasible[node_class]
        }
        return FilterResult(
            feasible=feasible,
            rejected=infeasible,
            rejections={
                node_class: Rejection(refusal, evaluations[node_class].is_unresolvable, count)
                for node_class, count in Counter(infeasible.values()).items()
                if (refusal := refusals[node_class]) is not None
            },
            unknown_nodes=classes.count(-1),
            rows=[view.build_refused_row(name) for name in itertools.islice(infeasible, MAX_ROWS)],
        )

    def _build_view(
        self,
        request: scheduling_request.SchedulingRequest,
        requests: resources.Amounts,
        gang: gang_status.GangStatus,
        *,
        is_single_pod: bool,
    ) -> request_view.RequestView:
        index = self._indexes.get(scheduling_signature.build_signature(request, requests, is_single_pod=is_single_pod))
        overrides = request_view.find_overrides(request, index, gang, self._cluster, self._assumed)

        def holders(node: str) -> tuple[node_explainer.Holder, ...]:
            pods: tuple[node_explainer.Holder, ...] = (
                *self._cluster.list_pods_on(node),
                *self._assumed.list_on_node(node),
            )
            return tuple(pod for pod in pods if pod.uid != request.uid)

        return request_view.RequestView(request, index, overrides, holders)

    def _plan(
        self,
        request: scheduling_request.SchedulingRequest,
        gang: gang_status.GangStatus,
        view: request_view.RequestView,
    ) -> tuple[planner.Plan, locality.GangSummary]:
        peers_by_leaf: dict[topology.Domain, int] = {}
        for _, _, node in gang.placed:
            leaf = view.get_leaf(node)
            peers_by_leaf[leaf] = peers_by_leaf.get(leaf, 0) + 1
        if not request.domains:
            summary = locality.GangSummary(
                target_leaf=None,
                planned_leaves=(),
                slots_by_leaf={},
                peers_by_leaf=peers_by_leaf,
                remaining=gang.unplaced,
                remaining_slots=gang.remaining_slots,
                has_domains=False,
            )
            return planner.NO_PLAN, summary
        is_cacheable = len(request.nodes) >= request_view.MAX_FULL_OFFER
        preferred = single_pods.choose_nodes(view) if view.index.signature.is_single_pod else None
        is_cacheable = is_cacheable and preferred is None
        capacity = request_view.build_capacity(request, view) if preferred is None else preferred.capacity
        plan = self._plans.find(request.gang, view.index, gang, capacity) if is_cacheable else None
        if plan is None:
            bandwidth_of_placed = self._plans.get_bandwidth_of_placed(request.gang, gang)
            peers = _summarize_peers(request, gang, view, bandwidth_of_placed)
            plan = planner.solve(gang.remaining_slots, capacity, peers)
            plan = self._reservations.avoid_reserved(request.gang, plan, gang, capacity, peers, view.index.leaf_by_node)
            if is_cacheable:
                self._plans.store(request.gang, view.index, gang, capacity, plan)
        self._plans.record_bandwidth(request.gang, gang, plan)
        self._reservations.reserve(
            request.gang,
            gang.remaining_slots,
            plan,
            max((len(each.slot_numa_factors) for each in capacity.node_capacities), default=1),
        )
        if preferred is not None:
            plan = msgspec.structs.replace(plan, upper_bound=max(plan.upper_bound, preferred.upper_bound))
        target_leaf = gang_status.find_target_leaf(
            gang.find_slot(request.rank), gang, plan.leaves, plan.slots_by_leaf, view.index.leaf_by_node
        )
        if target_leaf is not None and view.index.nodes_by_leaf[target_leaf].keys().isdisjoint(request.nodes):
            # the scheduler offered a sample without this rank's target leaf: plan on the offered leaves only
            offered = view.list_offered_leaves()
            class_counts = {leaf: kinds for leaf, kinds in capacity.class_counts.items() if leaf in offered}
            offered_capacity = msgspec.structs.replace(capacity, class_counts=class_counts)
            plan = planner.solve(gang.remaining_slots, offered_capacity, _summarize_peers(request, gang, view))
            target_leaf = next(iter(plan.leaves), None)
        return plan, locality.GangSummary(
            target_leaf=target_leaf,
            planned_leaves=plan.leaves,
            slots_by_leaf=plan.slots_by_leaf,
            peers_by_leaf=peers_by_leaf,
            remaining=gang.unplaced,
            remaining_slots=gang.remaining_slots,
            fills_used_nodes=preferred is not None and preferred.are_partly_used,
            is_planned=gang.planning_request is request.requests,
            max_fill_priority=locality.NO_FILL_LIMIT
            if target_leaf is None
            else scoring.find_min_fill_priority(capacity, target_leaf, plan),
        )


def _summarize_peers(
    request: scheduling_request.SchedulingRequest,
    gang: gang_status.GangStatus,
    view: request_view.RequestView,
    bandwidth: planner.Bandwidth = 1.0,
) -> planner.PlacedPeers:
    """Summarize the placed peers for the planner."""
    near, next_leaf = gang_status.list_nearest_leaves(request.rank, gang, view.index.leaf_by_node)
    shapes: set[str] = set()
    rails = planner.ALL_RAILS
    classes = {node_class for _, _, node in gang.placed_workers if (node_class := view.get_class(node)) is not None}
    for node_class in classes:
        evaluation = view.index.evaluations[node_class]
        shapes.add(evaluation.facts.shape)
        rails &= evaluation.available_rails
    return planner.PlacedPeers(leaves=near, next_leaf=next_leaf, bandwidth=bandwidth, shapes=shapes, rails=rails)


def score_once(
    request: scheduling_request.SchedulingRequest,
    cluster: cluster_state.ClusterState,
    assumed: assumed_pods.AssumedPods,
) -> Decision:
    """Score every candidate node with empty caches."""
    return PlacementEngine(cluster, assumed).score(request)
