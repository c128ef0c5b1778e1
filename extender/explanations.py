"""Stores the last decisions, bounded in number and size, and explains them for `/explain`.

Defines the explanation's JSON. The texts are built on request, by `node_explainer` for nodes and by `diagnosis` and
`placement_result` for gangs.
"""

import operator
from collections import OrderedDict
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import msgspec

from extender import gang_tracker
from railwright.fabric import intent, resources, topology
from railwright.fabric.placement import engine, scheduling_request
from railwright.fabric.placement.explain import node_explainer, placement_result
from railwright.fabric.placement.gangs import gang_planning, planner
from railwright.fabric.placement.nodes import node_evaluation
from railwright.fabric.placement.state import pod_usage
from railwright.fabric.reasons import reason, rendering
from railwright.fabric.reasons.codes import Code
from railwright.fabric.workloads import membership

MAX_EXPLAINED = 1000  # pods, each with up to MAX_ROWS rows that share evaluations with the placement engine
MAX_LEAVES = 50
KUBE_SCHEDULER = "kube-scheduler"
_MAX_DECISIONS = 2 * MAX_EXPLAINED  # of all pods
_MAX_DOMAIN_NODES = 100  # of a topology domain whose nodes are stored with each decision
_MAX_DOMAINS = 8  # topology domains for which kube-scheduler has simulated the placement of a PodGroup
PLACEABLE = "placeable"  # the outcome of a gang that is not complete yet, and of a pod without a gang

_get_node = operator.attrgetter("node")  # of a row

_NO_GANG = gang_planning.GangSummary(peers_by_leaf={}, remaining=0, remaining_slots=0, has_domains=False)
_NO_PLAN = node_explainer.Explainer(plan=planner.NO_PLAN, gang=_NO_GANG, terms=())


class Explanation(msgspec.Struct, frozen=True):
    """The explanation of the last decision on a pod, as in `/explain`. Bandwidths are modelled, 0..1."""

    pod: str
    scheduler: str
    fabric: str
    gang: str
    gang_size: int
    remaining: int
    needs: Sequence[str]
    outcome: str  # placeable | unplaceable | compact | spread | degraded
    why: Sequence[rendering.Message]  # why the plan is not better or the gang does not fit
    leaves_planned: Sequence[str]
    leaves_used: int
    min_leaves: int
    bandwidth: float
    bound: float
    exact: bool
    complete: bool
    placement: dict[str, Any] | None  # placement of the gang, once it is complete
    candidate_nodes: int
    nodes: Sequence[dict[str, Any]]
    devices: Sequence[pod_usage.HeldRail] = ()  # of the rails that its claims hold now
    node: str = ""  # on which the pod is; "" while it waits


class _PodRecord(msgspec.Struct):
    """The stored part of the decisions on one pod, without offers and the pod, which may have megabytes."""

    pod: str
    uid: str
    scheduler: str = ""
    fabric: str = ""
    gang: membership.GangKey = membership.GangKey("")
    needs: Sequence[intent.Need] = ()
    candidates: int = 0
    domain: frozenset[str] = frozenset()  # the nodes of the last request, and of fields below, if the request has few
    size: int = 0
    is_scored: bool = False
    is_unasked: bool = False  # the scheduler has not asked; the extender has looked at all nodes itself
    feasible: Sequence[str] = ()  # some of the nodes that passed the filter
    wording: node_explainer.Explainer = _NO_PLAN
    scored_rows: Sequence[node_explainer.NodeRow] = ()
    rejected_rows: Sequence[node_explainer.NodeRow] = ()  # by filter or predicate

    def knows_any(self, nodes: AbstractSet[str]) -> bool:
        """True if one of these nodes is known to have been a candidate."""
        if self.domain:
            return not self.domain.isdisjoint(nodes)
        rows = map(_get_node, (*self.scored_rows, *self.rejected_rows))
        return not (nodes.isdisjoint(self.feasible) and nodes.isdisjoint(rows))

    def record_domain(self, request: scheduling_request.SchedulingRequest) -> None:
        """Note which nodes are known to be candidates, once the rows are those after this request."""
        is_domain = request.has_domains_in_turn and not request.offers and len(request.nodes) <= _MAX_DOMAIN_NODES
        rows = (*self.scored_rows, *self.rejected_rows)
        self.domain = request.offered.union(self.feasible, map(_get_node, rows)) if is_domain else frozenset()

    @property
    def spare_slots(self) -> int:
        """Return the slots that the plan has beyond those that the gang needs; negative if it is not complete."""
        plan, gang = self.wording.plan, self.wording.gang
        return 0 if plan.is_complete else sum(plan.slots_by_leaf.values()) - gang.remaining_slots


class Explanations:
    """The last decision on each of the last MAX_EXPLAINED pods.

    kube-scheduler simulates the placement of a PodGroup in one topology domain after the other, and then takes one of
    them. So there is a decision for each of these domains: sets of candidate nodes that have none in common.
    """

    def __init__(self) -> None:
        self._records: OrderedDict[str, list[_PodRecord]] = OrderedDict()  # the last decision is the last one
        self._decisions = 0

    def record_decision(
        self, scheduler: str, request: scheduling_request.SchedulingRequest, decision: engine.Decision
    ) -> None:
        """Record a decision, without building its texts."""
        record = self._get_or_add(scheduler, request)
        record.is_scored, record.size, record.candidates = True, decision.gang_size, len(request.nodes)
        record.wording, record.scored_rows = decision.explainer, decision.rows
        record.record_domain(request)

    def record_filter_result(
        self, scheduler: str, request: scheduling_request.SchedulingRequest, result: engine.FilterResult
    ) -> None:
        """Record a filter result. Volcano calls predicate once for each node, so results accumulate."""
        record = self._get_or_add(scheduler, request)
        is_single_node = len(request.nodes) == 1  # Volcano's predicate
        record.feasible = (*result.feasible[: node_explainer.MAX_ROWS], *(record.feasible if is_single_node else ()))[
            : node_explainer.MAX_ROWS
        ]
        if not record.is_scored:
            record.candidates = len(request.nodes)
        if result.rejections and (record.is_scored or is_single_node):  # what is older of these nodes is outdated
            rejected = result.rejected
            record.scored_rows = [row for row in record.scored_rows if row.node not in rejected]
            record.is_scored = bool(record.scored_rows)
            record.feasible = [name for name in record.feasible if name not in rejected]
        old_rows = [row for row in record.rejected_rows if row.node not in request.offered]
        record.rejected_rows = (*result.rows, *old_rows)[: node_explainer.MAX_ROWS]
        record.record_domain(request)

    def record_unasked(
        self, request: scheduling_request.SchedulingRequest, result: engine.FilterResult, decision: engine.Decision
    ) -> None:
        """Record why no node can take a pod that its scheduler does not ask about, until the scheduler does."""
        scheduler = request.spec.scheduler_name
        self.record_decision(scheduler, request, decision)
        self.record_filter_result(scheduler, request, result)
        self._records[request.key][-1].is_unasked = True

    def has_record(self, pod: str, uid: str) -> bool:
        """True if a decision on a pod (namespace/name) is stored, and not on an earlier pod of its name."""
        records = self._records.get(pod)
        return records is not None and records[0].uid == uid

    def get_evaluation(self, pod: str, node: str) -> node_evaluation.NodeEvaluation | None:
        """Return a node's evaluation in the last decision on a pod (namespace/name), or None if it is not stored."""
        rows = (row for record in self._records.get(pod, ()) for row in record.scored_rows)
        return next((row.evaluation for row in rows if row.node == node), None)

    def explain(
        self, namespace: str, name: str, tracked: gang_tracker.Gangs | None = None, *, uid: str = "", node: str = ""
    ) -> Explanation | None:
        """Explain the decision on a pod: the one by which it is on its `node`, otherwise the last one.

        Of the domains for which a placement was simulated, the one with the most slots counts while the pod waits.
        Return None if no decision is stored on the pod with this UID ("" for any).
        """
        records = self._records.get(f"{namespace}/{name}")
        if not records or uid not in ("", records[0].uid):
            return None
        latest_first = records[::-1]
        best = max(latest_first, key=lambda record: record.spare_slots)
        record = next((record for record in latest_first if record.knows_any({node})), best)
        if node and record.is_unasked:  # its scheduler has placed it since, without a question that is explained
            return None
        rows = {row.node: row for row in (*record.rejected_rows, *record.scored_rows)}
        unscored = [] if record.is_scored else [name for name in dict.fromkeys(record.feasible) if name not in rows]
        explained = sorted(rows.values(), key=lambda row: (bool(row.refusal), -row.score, row.node))
        gang = tracked.find(record.gang, record.pod) if tracked is not None else None
        described = [*map(_describe_feasible, unscored), *map(record.wording.describe, explained)]
        explanation = _build_explanation(record, gang, described)
        if node and gang is not None and gang.request.has_domains_in_turn and explanation.complete:
            # a domain that was tried later may have been too small
            why = () if not gang.plan.is_complete else explanation.why
            explanation = msgspec.structs.replace(explanation, why=why)
        return msgspec.structs.replace(explanation, node=node)

    def _get_or_add(self, scheduler: str, request: scheduling_request.SchedulingRequest) -> _PodRecord:
        records = self._records.get(request.key, [])
        if records and records[0].uid != request.uid:
            records = []
        record = _find_record(records, request) or _PodRecord(request.key, request.uid)
        self._decisions -= len(self._records.get(request.key, ()))
        records = [*(other for other in records if other is not record), record][-_MAX_DOMAINS:]
        self._records[request.key] = records
        self._records.move_to_end(request.key)
        self._decisions += len(records)
        while len(self._records) > MAX_EXPLAINED or self._decisions > _MAX_DECISIONS:
            self._decisions -= len(self._records.popitem(last=False)[1])
        record.scheduler, record.fabric, record.is_unasked = scheduler, request.fabric_name, False
        record.gang, record.needs = request.gang, request.needs
        return record


def _find_record(records: Sequence[_PodRecord], request: scheduling_request.SchedulingRequest) -> _PodRecord | None:
    """Return the record of the last decision; where domains come in turn, that on the same topology domain.

    Volcano's predicate names one node, of whichever domain.
    """
    if not records or not request.has_domains_in_turn or (request.offers and len(request.nodes) == 1):
        return records[-1] if records else None
    return next((record for record in reversed(records) if record.knows_any(request.offered)), None)


def _build_explanation(
    record: _PodRecord, tracked: gang_tracker.TrackedGang | None, nodes: Sequence[dict[str, Any]]
) -> Explanation:
    plan, gang = record.wording.plan, record.wording.gang
    leaves = dict.fromkeys((*(leaf for leaf, peers in gang.peers_by_leaf.items() if peers and leaf), *plan.leaves))
    return Explanation(
        pod=record.pod,
        scheduler=record.scheduler,
        fabric=record.fabric,
        gang=record.gang,
        gang_size=record.size,
        remaining=gang.remaining,
        needs=[
            f"{need.label}: {need.amount // resources.UNIT} {intent.format_resource(need.resource)}"
            for need in record.needs
        ],
        outcome=_get_outcome(record, tracked),
        why=rendering.describe_all(_list_reasons(record, tracked)),
        leaves_planned=[topology.format_domain(leaf) for leaf in plan.leaves[:MAX_LEAVES]],
        leaves_used=len(leaves),
        min_leaves=plan.min_leaves_with_placed,
        bandwidth=round(plan.bandwidth, 3),
        bound=round(plan.upper_bound, 3),
        exact=plan.is_exact,
        complete=plan.is_complete,
        placement=_describe_placement(tracked),
        candidate_nodes=record.candidates,
        nodes=nodes,
    )


def _get_outcome(record: _PodRecord, tracked: gang_tracker.TrackedGang | None) -> str:
    if not record.is_scored and not record.feasible:
        return gang_tracker.UNPLACEABLE
    if tracked is not None and tracked.outcome is not None and tracked.outcome.code != gang_tracker.UNPLACEABLE:
        return tracked.outcome.code
    fits = tracked.reasons.fits if tracked is not None else record.wording.plan.is_complete
    return (
        PLACEABLE if fits or not record.is_scored or not record.wording.gang.has_domains else gang_tracker.UNPLACEABLE
    )


def _list_reasons(record: _PodRecord, tracked: gang_tracker.TrackedGang | None) -> Sequence[reason.Reason]:
    reasons = _list_limits(record, tracked)
    return (reason.make(Code.NOT_ASKED, scheduler=record.scheduler), *reasons) if record.is_unasked else reasons


def _list_limits(record: _PodRecord, tracked: gang_tracker.TrackedGang | None) -> Sequence[reason.Reason]:
    if not record.is_scored and not record.feasible:
        return (reason.make(Code.ALL_NODES_REJECTED),)
    if not record.is_scored and record.scheduler == KUBE_SCHEDULER and len(record.feasible) == 1:
        return (reason.make(Code.ONE_NODE_LEFT, node=record.feasible[0]),)
    if tracked is None:
        return ()
    return (tracked.mixed, *tracked.reasons.why) if tracked.mixed else tracked.reasons.why


def _describe_placement(tracked: gang_tracker.TrackedGang | None) -> dict[str, Any] | None:
    if tracked is None or tracked.outcome is None or tracked.outcome.placement is None or tracked.planned is None:
        return None
    placement, planned = tracked.outcome.placement, tracked.planned
    return {
        "members": placement.members,
        "leaves": {topology.format_domain(leaf): count for leaf, count in [*placement.leaves.items()][:MAX_LEAVES]},
        "leaves_used": len(placement.leaves),
        "leaves_possible": len(planned.leaves),
        "bandwidth": round(placement.bandwidth, 3),
        "bandwidth_possible": round(planned.bandwidth, 3),
        "why": rendering.describe_all(placement.causes),
        "outside_plan": placement.outside_plan[:MAX_LEAVES],
        "summary": rendering.describe(placement_result.describe(placement, planned)),
    }


def _describe_feasible(name: str) -> dict[str, Any]:
    """Return the row of a node that passed the filter without a score: a scheduler with one choice requests none."""
    return {"node": name, "reason": rendering.describe(reason.make(Code.NODE_NOT_SCORED))}
