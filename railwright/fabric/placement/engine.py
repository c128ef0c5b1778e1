"""Filters and scores nodes for one pod, the same way for both schedulers.

A decision follows from the request, the cluster state, the assumed pods and the memory of gangs that
earlier decisions returned (`gang_memory`). Each decision returns the next memory. `PlacementEngine` itself stores only
caches. `PlacementEngine.score` goes forward through the packages: what is known of the cluster and of the gang
(`state`), the candidate nodes (`nodes`), the gang's plan (`gangs`), scores (`locality`), reasons (`explain`). The
adapters of the extender translate results into the scales and status codes of Volcano and kube-scheduler.
"""

import functools
import itertools
from collections import Counter
from collections.abc import Container, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from railwright.fabric import resources, topology
from railwright.fabric.claims import device_pairs
from railwright.fabric.placement import locality, scheduling_request
from railwright.fabric.placement.explain import diagnosis, node_explainer
from railwright.fabric.placement.gangs import gang_capacity, gang_memory, gang_planning, planner, segments
from railwright.fabric.placement.nodes import node_evaluation, node_index, request_view, scheduling_signature
from railwright.fabric.placement.state import assumed_pods, cluster_state, gang_status, pod_usage
from railwright.fabric.policy import model, presets
from railwright.fabric.reasons import reason
from railwright.fabric.workloads import membership


class Decision(msgspec.Struct, frozen=True, dict=True):
    """The scores of all candidate nodes of one pod, and what explains them. Texts are formatted on demand."""

    node_scores: locality.NodeScores
    memory: gang_memory.PlacementMemory  # for the next decision
    gang_size: int
    unknown_nodes: int  # candidate nodes that the cache does not contain
    nodes_of_target: tuple[str, ...]  # of the target leaf, candidates or not
    offered_leaves: frozenset[topology.Domain]  # with at least one candidate node; only where domains come in turn
    part: str  # of the gang, for which the plan is; "" for the whole gang
    explainer: node_explainer.Explainer
    rows: Sequence[node_explainer.NodeRow]  # a few nodes, those of planned leaves first
    limits: diagnosis.DiagnosisInput | None  # what limits the plan; None if it is optimal

    @functools.cached_property
    def scores(self) -> Mapping[str, float]:
        """Return the score of each candidate node, 0..100.

        It is 0 for infeasible nodes and for nodes that the cache does not contain.
        """
        return self.node_scores.list_all()

    @property
    def plan(self) -> planner.Plan:
        """Return the leaves for the unplaced pods of the gang."""
        return self.explainer.plan

    @property
    def gang(self) -> gang_planning.GangSummary:
        """Return the summary of the gang that locality scores use."""
        return self.explainer.gang

    def list_best_planned(self, tolerance: float) -> tuple[str, ...]:
        """Return the candidate nodes of the target leaf whose score is less than `tolerance` below the best of all."""
        best = self.node_scores.best
        if best <= 0:
            return ()
        # the target leaf is in the highest tier, so that all of its candidate nodes have scores of their own
        scores = self.scores if self.gang.fills_used_nodes else self.node_scores.of_nodes
        return tuple([name for name in self.nodes_of_target if best - scores.get(name, -tolerance) < tolerance])

    def diagnose(self) -> diagnosis.Diagnosis:
        """Explain why the plan is no better."""
        return diagnosis.diagnose(self.limits)


class Rejection(msgspec.Struct, frozen=True):
    """The rejection of all nodes of one class, with the reason."""

    reason: reason.Reason
    is_unresolvable: bool  # the pod would not fit even if all other pods left
    nodes: int


class FilterResult(msgspec.Struct, frozen=True):
    """The result of filtering. The candidate nodes are those that are feasible and those that are rejected."""

    nodes: Sequence[str]
    classes: request_view.Classes  # of these, if one is rejected
    feasible: Sequence[str]
    feasible_nodes: frozenset[str]  # the same nodes
    feasible_classes: request_view.Classes | None  # of these in the index; None: they were not looked up
    rejections: Mapping[node_evaluation.NodeClass, Rejection]
    unknown_nodes: int  # nodes that the cache does not contain; they are feasible
    rows: Sequence[node_explainer.NodeRow]  # a few of the infeasible nodes

    @property
    def rejected(self) -> Mapping[str, node_evaluation.NodeClass]:
        """Return the class of each rejected node."""
        return dict(_select_rejected(self.nodes, self.classes, self.rejections))


def _select_rejected(
    nodes: Sequence[str], classes: request_view.Classes, refused: Container[node_evaluation.NodeClass]
) -> Iterator[tuple[str, node_evaluation.NodeClass]]:
    """Return the nodes of refused classes, each with its class."""
    pairs: Iterator[tuple[str, Any]] = zip(nodes, classes, strict=False)
    return itertools.compress(pairs, map(refused.__contains__, classes))


class _Together(NamedTuple):
    """The pods of a segment, which must share a domain, as the requesting pod sees them."""

    segmented: segments.Segments | None
    slots_by_leaf: Mapping[topology.Domain, int]

    def find_refusal(self, leaf: topology.Domain) -> reason.Reason | None:
        """Return why the requesting pod may not go to a leaf; None if it may."""
        if self.segmented is None:
            return None
        return self.segmented.find_refusal(leaf, self.slots_by_leaf.get(leaf, 0))


class _LatestDecision(NamedTuple):
    """The latest decision on a pod of a gang that waits, of which no candidate node was refused, and its basis.

    kube-scheduler simulates the placement of a PodGroup in one topology domain after the other. It asks about each pod
    of the gang, with the nodes of the domain that the pods before it have left.
    """

    decision: Decision
    planned: gang_planning.PlannedGang
    gang: gang_status.GangStatus  # of an incomplete plan
    view: request_view.RequestView
    positions: tuple[int, ...]  # of the cluster state and the assumed pods
    inferred: frozenset[tuple[str, str]]  # (uid, node)
    waiting: set[str]  # UIDs of pods that are known to be on no node, while the positions stay

    def is_current(self, gang: membership.GangKey, key: Hashable, positions: tuple[int, ...]) -> bool:
        """True if the index is that of such pods of the gang, and nothing has changed since the decision."""
        is_same = self.view.request.gang == gang and self.view.index.signature.key == key
        return is_same and self.positions == positions

    def plan_next(
        self, request: scheduling_request.SchedulingRequest, inferred: frozenset[tuple[str, str]]
    ) -> gang_planning.PlannedGang | None:
        """Return the plan for another pod and fewer nodes without running the planner. Return None if it has to run.

        Either no pod was placed since, because the gang does not fit, or the pod of this decision on the missing node.
        """
        planned, index, latest, gone = self.planned, self.view.index, self.view.request, self._list_gone(request)
        if not gone:
            return None
        if not planned.plan.is_complete:
            is_same = inferred == self.inferred and len(latest.nodes) < gang_capacity.MAX_FULL_OFFER
            is_same = is_same and planned.has_target(request.rank, self.gang, index.leaf_by_node)
            return planned._replace(memory=planned.memory.record(request.gang, None)) if is_same else None
        node = min(gone)
        node_class = self.view.get_class(node)
        is_placed = inferred == self.inferred | {(latest.uid, node)} and request.uid != latest.uid
        is_in_target = index.leaf_by_node.get(node) == planned.summary.target_leaf
        if not is_placed or not is_in_target or node_class is None or self.decision.limits is not None:
            return None
        return planned.fill_node(request.gang, node_class)

    def _list_gone(self, request: scheduling_request.SchedulingRequest) -> frozenset[str]:
        """Return the candidate nodes that a request lacks; none if it differs in others, or the leaves are fewer."""
        latest, most = self.view.request, gang_capacity.MAX_FULL_OFFER
        if len(request.nodes) < most <= len(latest.nodes) or not request.offered < latest.offered:
            return frozenset()
        gone = latest.offered - request.offered
        leaves = {self.view.get_leaf(name) for name in gone}
        has_others = (not self.view.index.nodes_by_leaf[leaf].keys().isdisjoint(request.offered) for leaf in leaves)
        return gone if all(has_others) else frozenset()


class PlacementEngine:
    """The placement engine of one cluster. Caches node indexes and gang plans between requests."""

    def __init__(self, cluster: cluster_state.ClusterState, assumed: assumed_pods.AssumedPods) -> None:
        self._cluster = cluster
        self._assumed = assumed
        self._indexes = node_index.NodeIndexes(cluster, assumed)
        self._statuses = gang_status.GangStatuses(cluster, assumed)
        self._planner = gang_planning.GangPlanner(cluster, assumed)
        self._different_key: Hashable = None  # of the gang that `_are_different` is about
        self._are_different = False
        self._together = _Together(None, {})
        self._together_key: Hashable = None  # of the request that `_together` is for
        self._latest: _LatestDecision | None = None
        self._signature: scheduling_signature.SchedulingSignature | None = None  # of the latest request
        self._signature_inputs: tuple[object, ...] = ()

    def prewarm(self, document: model.PolicyDocument) -> None:
        """Compute the domains and free resources of all nodes in advance, for each fabric; about a millisecond."""
        for fabric in document.fabrics.values():
            if fabric.rails:
                self._indexes.prewarm(
                    presets.list_domain_keys(fabric.placement), tuple(rail.name for rail in fabric.rails)
                )

    def prepare(
        self, request: scheduling_request.SchedulingRequest, *, plans: bool = False
    ) -> Generator[None, None, node_index.NodeIndex]:
        """Evaluate the nodes for a new kind of pod, and yield after some, so that a server can answer others meanwhile.

        Returns the index to pass to `filter` or `score` (`plans`) at once. Without it, these evaluate all nodes at
        once.
        """
        signature, latest = self._build_signature(request, request.requests), self._latest
        if latest is not None and latest.is_current(request.gang, signature.key, self._read_positions()):
            index, plans = latest.view.index, False  # by which the gang was planned
        else:
            index = yield from self._indexes.prepare(signature)
        others: list[tuple[scheduling_signature.SchedulingSignature, int | None]] = []
        if request.preemption is not None and request_view.offers_full_nodes(request, index):
            others.append((signature, request.preemption.below))
        if plans and self._has_different_pods(request.gang):
            planning_request = gang_status.build_status(request, self._cluster, self._assumed).planning_request
            if planning_request != request.requests:
                others.append((self._build_signature(request, planning_request), None))
        for other, below in others:
            yield from self._indexes.prepare(other, below)
            index.refresh()  # nodes may have changed meanwhile
        return index

    def _has_different_pods(self, gang: membership.GangKey) -> bool:
        """True if pods of a gang may differ in what they request. Equal amounts are mostly one object."""
        key = gang, self._cluster.get_gang_change(gang)
        if key != self._different_key:
            self._different_key = key
            self._are_different = len({id(pod.requests) for pod in self._cluster.get_gang(gang).values()}) > 1
        return self._are_different

    def get_index(self, request: scheduling_request.SchedulingRequest) -> node_index.NodeIndex:
        """Return the current node index for pods like the requesting one."""
        return self._indexes.get(self._build_signature(request, request.requests))

    def score(  # noqa: PLR0913 - one argument a fact
        self,
        request: scheduling_request.SchedulingRequest,
        memory: gang_memory.PlacementMemory = gang_memory.EMPTY,
        inferred: Sequence[assumed_pods.AssumedPod] = (),
        *,
        index: node_index.NodeIndex | None = None,
        classes: request_view.Classes | None = None,
        explained: Iterable[str] = (),
    ) -> Decision:
        """Score every candidate node.

        `memory` is that of the last decision. `inferred` are pods of kube-scheduler that count as assumed for this
        request only. `index` is that of `prepare`, `classes` are those of `filter` with this index. `explained` are
        candidate nodes whose rows come first.
        """
        index = self.get_index(request) if index is None else index
        if not explained and (decision := self._decide_next(request, memory, inferred, index)) is not None:
            return decision
        assumed = assumed_pods.InferredPods(self._assumed, inferred) if inferred else self._assumed
        gang = self._statuses.build(request, assumed)

        emptied = self._find_emptied(request, index, inferred)
        if request.offers and classes is None:
            classes = list(map(index.class_of_node.get, request.nodes))
        overrides = self._find_overrides(request, index, assumed, emptied, gang.retried_uids, gang.placed, classes)
        view = planning_view = request_view.RequestView(request, index, overrides, classes)
        if gang.planning_request != request.requests:
            signature = self._build_signature(request, gang.planning_request)
            other_index = self._indexes.get(signature)
            overrides = self._find_overrides(request, other_index, assumed, emptied, gang.retried_uids, gang.placed)
            planning_view = request_view.RequestView(request, other_index, overrides)

        planned = self._planner.plan(gang, planning_view, memory, assumed)

        scores = locality.score_nodes(view, planned.summary, planned.plan)

        list_holders = self._build_list_holders(request, assumed)
        decision = Decision(
            node_scores=scores,
            memory=planned.memory,
            gang_size=gang.size,
            unknown_nodes=view.count_unknown(),
            nodes_of_target=tuple(index.nodes_by_leaf.get(planned.summary.target_leaf, ()))
            if planned.summary.target_leaf is not None
            else (),
            offered_leaves=view.offered_leaves if request.has_domains_in_turn else frozenset(),
            part=planned.part,
            explainer=node_explainer.Explainer(planned.plan, planned.summary, index.weights.terms),
            rows=self._build_rows(view, planned.summary, scores, list_holders, explained),
            limits=diagnosis.build_input(planning_view, planned, list_holders),
        )
        self._latest = None
        is_planned = planned.capacity is not None and view is planning_view and not index.signature.is_single_pod
        is_feasible = all(known is not None and known.evaluation.refusal is None for known in view.distinct_classes)
        if is_planned and is_feasible and not emptied.names and self._is_waiting(request, inferred):
            positions, places = self._read_positions(), gang_planning.list_places(inferred)
            self._latest = _LatestDecision(decision, planned, gang, view, positions, places, {request.uid})
        return decision

    def _decide_next(
        self,
        request: scheduling_request.SchedulingRequest,
        memory: gang_memory.PlacementMemory,
        inferred: Sequence[assumed_pods.AssumedPod],
        index: node_index.NodeIndex,
    ) -> Decision | None:
        """Return the decision that follows from the latest one, if nothing has changed but the pod and fewer nodes."""
        latest = self._find_latest(request, inferred, index)
        if latest is None or memory is not latest.decision.memory:
            return None
        places = gang_planning.list_places(inferred)
        planned = latest.plan_next(request, places)
        if planned is None:
            return None
        old, view = latest.decision, request_view.RequestView(request, index, latest.view.overrides)
        of_nodes = dict(zip(request.nodes, map(old.scores.__getitem__, request.nodes), strict=True))
        scores = locality.NodeScores((), (), {}, of_nodes)
        rows: Sequence[node_explainer.NodeRow] = [row for row in old.rows if row.node in of_nodes]
        if len(old.rows) >= node_explainer.MAX_ROWS:  # others may have been left out
            assumed = assumed_pods.InferredPods(self._assumed, inferred)
            rows = self._build_rows(view, planned.summary, scores, self._build_list_holders(request, assumed))
        decision = msgspec.structs.replace(
            old,
            node_scores=scores,
            memory=planned.memory,
            explainer=msgspec.structs.replace(old.explainer, plan=planned.plan, gang=planned.summary),
            rows=rows,
        )
        vars(decision)["scores"] = of_nodes  # the cached property
        self._latest = _LatestDecision(decision, planned, latest.gang, view, latest.positions, places, latest.waiting)
        return decision

    def _find_latest(
        self,
        request: scheduling_request.SchedulingRequest,
        inferred: Sequence[assumed_pods.AssumedPod],
        index: node_index.NodeIndex,
    ) -> _LatestDecision | None:
        """Return the latest decision if it is on a pod like this one, of the same gang, and the cluster is the same."""
        latest = self._latest
        if latest is None or latest.view.index is not index or latest.positions != self._read_positions():
            return None
        previous = latest.view.request
        is_alike = (previous.gang, previous.preemption) == (request.gang, request.preemption)
        is_alike = is_alike and previous.has_domains_in_turn == request.has_domains_in_turn
        if not is_alike or not self._is_waiting(request, inferred, latest.waiting):
            return None
        latest.waiting.add(request.uid)
        return latest

    def _is_waiting(
        self,
        request: scheduling_request.SchedulingRequest,
        inferred: Sequence[assumed_pods.AssumedPod],
        waiting: Container[str] = (),
    ) -> bool:
        """True if kube-scheduler asks about a known pod of a gang which, by all that is known, is on no node.

        `waiting` are pods of which it is known already that they are neither observed nor assumed on a node.
        """
        uid = request.uid
        if request.offers or request.must_stay_together or uid in [pod.uid for pod in inferred]:
            return False
        if uid in waiting:
            return True
        is_placed = uid not in self._cluster.get_unbound(request.gang) or self._assumed.get(uid) is not None
        return not is_placed and not pod_usage.list_nodes(self._cluster, uid)

    def _read_positions(self) -> tuple[int, ...]:
        return self._cluster.version, self._cluster.change_log.position, self._assumed.change_log.position

    def filter(
        self,
        request: scheduling_request.SchedulingRequest,
        inferred: Sequence[assumed_pods.AssumedPod] = (),
        *,
        index: node_index.NodeIndex | None = None,
        peers: Sequence[assumed_pods.AssumedPod] = (),
    ) -> FilterResult:
        """Filter the candidate nodes without planning the gang.

        `inferred` are pods of kube-scheduler; those of the gang only show whether it simulates a preemption. `index` is
        that of `prepare`. `peers` are pods that also count as placed where segments must share a leaf.
        """
        index = self.get_index(request) if index is None else index
        latest = self._find_latest(request, inferred, index)
        if latest is not None and request.offered <= latest.view.request.offered:  # none of which was refused
            return FilterResult(request.nodes, (), request.nodes, request.offered, None, {}, 0, ())
        retried_uids = assumed_pods.find_stale(self._assumed, request.uid)
        emptied = self._find_emptied(request, index, inferred)
        overrides = self._find_overrides(request, index, self._assumed, emptied, retried_uids)
        view = request_view.RequestView(request, index, overrides)
        if request.must_stay_together:
            view = self._keep_together(view, emptied, retried_uids, peers)
        refusals = {
            known: refusal
            for known in view.distinct_classes
            if known is not None and (refusal := known.evaluation.refusal) is not None
        }
        nodes, unknown = request.nodes, view.count_unknown()
        if not refusals:
            return FilterResult(nodes, (), nodes, request.offered, view.classes_in_index, {}, unknown, ())
        is_feasible = [known not in refusals for known in view.classes]
        feasible = list(itertools.compress(nodes, is_feasible))
        counts = dict.fromkeys(refusals, len(nodes) - len(feasible))
        if len(refusals) > 1:
            counts = Counter([known for known in view.classes if known in refusals])
        list_holders = self._build_list_holders(request, self._assumed)
        return FilterResult(
            nodes=nodes,
            classes=view.classes,
            feasible=feasible,
            feasible_nodes=frozenset(feasible),
            feasible_classes=list(itertools.compress(view.classes_in_index, is_feasible)),
            rejections={
                known: Rejection(refusals[known], known.evaluation.is_unresolvable, count)
                for known, count in counts.items()
            },
            unknown_nodes=unknown,
            rows=[
                node_explainer.NodeRow(
                    node=name,
                    score=0.0,
                    evaluation=node_class.evaluation,
                    leaf=view.get_leaf(name),
                    holders=list_holders(name),
                    reports=self._cluster.health.list_states(name, request.fabric_name),
                )
                for name, node_class in itertools.islice(
                    _select_rejected(nodes, view.classes, refusals), node_explainer.MAX_ROWS
                )
            ],
        )

    def _keep_together(
        self,
        view: request_view.RequestView,
        emptied: request_view.EmptiedNodes,
        retried_uids: frozenset[str],
        peers: Sequence[assumed_pods.AssumedPod],
    ) -> request_view.RequestView:
        """Return the view in which nodes are refused that keep a segment out of one domain."""
        request = view.request
        # Volcano asks about one node of a pod after the other
        key = (request.uid, request.policy, self._read_positions(), tuple(peers), emptied.names)
        if key != self._together_key:
            assumed = assumed_pods.InferredPods(self._assumed, peers) if peers else self._assumed
            on_all_nodes = msgspec.structs.replace(request, offers={})
            overrides = self._find_overrides(on_all_nodes, view.index, assumed, emptied, retried_uids)
            whole_view = request_view.RequestView(on_all_nodes, view.index, overrides)
            slots_by_leaf = gang_capacity.build_of_all(whole_view).count_all_slots()
            self._together = _Together(
                segments.find_segments(request, self._cluster, assumed, view.get_leaf), slots_by_leaf
            )
            self._together_key = key
        refusal_by_leaf = {leaf: self._together.find_refusal(leaf) for leaf in set(map(view.get_leaf, request.nodes))}
        return view.refuse(lambda name: refusal_by_leaf[view.get_leaf(name)])

    def _build_rows(
        self,
        view: request_view.RequestView,
        gang: gang_planning.GangSummary,
        scores: locality.NodeScores,
        list_holders: node_explainer.ListHolders,
        first: Iterable[str] = (),
    ) -> Sequence[node_explainer.NodeRow]:
        list_reports = functools.partial(self._cluster.health.list_states, fabric=view.request.fabric_name)
        return node_explainer.build_rows(view, list_holders, list_reports, gang, scores, first=first)

    def _build_list_holders(
        self, request: scheduling_request.SchedulingRequest, assumed: assumed_pods.Assumptions
    ) -> node_explainer.ListHolders:
        return functools.partial(pod_usage.list_holders, cluster=self._cluster, assumed=assumed, except_uid=request.uid)

    def _find_emptied(
        self,
        request: scheduling_request.SchedulingRequest,
        index: node_index.NodeIndex,
        inferred: Sequence[assumed_pods.AssumedPod],
    ) -> request_view.EmptiedNodes:
        get_reduced_index = functools.partial(self._indexes.get, index.signature)
        return request_view.find_emptied(request, index, get_reduced_index, self._cluster, inferred)

    def _build_signature(
        self, request: scheduling_request.SchedulingRequest, requests: resources.Amounts
    ) -> scheduling_signature.SchedulingSignature:
        is_single_pod = gang_status.is_single_pod(request, self._cluster)
        pairs = request.pairs if requests == request.requests else self._find_pairs(request, requests)
        of_policy = (request.policy, request.fabric_name, request.fabric, request.domains, request.accelerators)
        of_pod = (request.spec, request.needs, request.uncounted_rails, requests, pairs, is_single_pod)
        inputs = (*of_policy, request.shapes, *of_pod)
        if self._signature is None or inputs != self._signature_inputs:
            self._signature_inputs = inputs
            self._signature = scheduling_signature.build_signature(
                request, requests, pairs, is_single_pod=is_single_pod
            )
        return self._signature

    def _find_pairs(
        self, request: scheduling_request.SchedulingRequest, requests: resources.Amounts
    ) -> device_pairs.PairDemand:
        """Return the pairs of the pods with these requests in the requesting pod's gang."""
        pods = self._cluster.get_gang(request.gang).values()
        claims = next((pod.claims for pod in pods if pod.requests == requests), None)
        return device_pairs.NO_PAIRS if claims is None else self._cluster.read_pairs(claims)

    def _find_overrides(  # noqa: PLR0913, PLR0917 - one argument a fact
        self,
        request: scheduling_request.SchedulingRequest,
        index: node_index.NodeIndex,
        assumed: assumed_pods.Assumptions,
        emptied: request_view.EmptiedNodes,
        retried_uids: frozenset[str],
        placed: Sequence[gang_status.PlacedPeer] = (),
        classes: request_view.Classes | None = None,
    ) -> request_view.Overrides:
        if emptied.reduced_index is not None:
            emptied = emptied._replace(reduced_index=self._indexes.get(index.signature, emptied.below))
        return request_view.find_overrides(
            request,
            index,
            self._cluster,
            assumed,
            placed=placed,
            retried_uids=retried_uids,
            emptied=emptied,
            classes=classes,
        )
