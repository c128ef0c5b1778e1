"""Tracks the gangs that schedulers send requests for: the best possible plan, its limits, and the actual placement.

Decides whether a gang was placed as well as possible, worse, or not at all. The decision uses the cluster's state and
not a single call, because schedulers dry-run, and a gang may fit another HyperNode. A gang is unplaceable if its pods
have waited for WAITING_SECONDS and a new plan over the entire cluster has no room for them. `gang_events` posts the
outcomes. Times are arguments, in seconds.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import msgspec

from extender import state as states
from railwright.fabric import intent, topology
from railwright.fabric.placement import engine, scheduling_request
from railwright.fabric.placement.explain import diagnosis, placement_result
from railwright.fabric.placement.gangs import planner
from railwright.fabric.placement.nodes import node_evaluation
from railwright.fabric.placement.state import object_info
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import Code
from railwright.fabric.workloads import membership

MAX_TRACKED = 1000  # gangs, and pods without one
WAITING_SECONDS = 10.0  # long enough for a scheduler's next two sessions
REASONS_SECONDS = 1.0  # minimum between two diagnoses of a gang: each visits every leaf, and requests come pod by pod
RECHECK_SECONDS = 60.0  # between two checks of an unplaceable gang
_MAX_DOMAINS = 128  # topology domains whose plans are stored for a PodGroup
_GANGS_PER_CHECK = 50  # checking 1000 gangs at once would delay answers
_SHOWN_DIGITS = 19  # "sha256:" and 12 digits, enough to distinguish versions of the policy
UNPLACEABLE = "unplaceable"
MIXED = "mixed"  # pods were admitted under different versions of the policy; independent of the placement

GetEvaluation = Callable[[str, str], node_evaluation.NodeEvaluation | None]
"""Returns the evaluation of a node in the last decision on a pod (namespace/name)."""


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of a gang: its placement, or that it is unplaceable or has mixed policies."""

    code: str  # placement_result.COMPACT, SPREAD, DEGRADED, UNPLACEABLE, or MIXED
    gang: membership.GangKey
    namespace: str
    pod: str  # first affected pod of the gang
    uid: str
    reasons: tuple[reason.Reason, ...]  # most important first
    bandwidth: float = 0.0  # modelled, 0..1; 0 if not placed
    placement: placement_result.PlacementResult | None = None
    attained: float = 0.0  # ratio to the best possible bandwidth; 0 if not placed
    is_repeated: bool = False  # True if it was reported before


class TrackedGang(msgspec.Struct):
    """State of one gang, or of one pod without a gang."""

    request: scheduling_request.SchedulingRequest  # of one of its pods, without nodes and offers
    since: float
    check_after: float
    plan: planner.Plan = planner.NO_PLAN
    remaining: int = 0
    reasons: diagnosis.Diagnosis = diagnosis.NO_ISSUES
    diagnosed_at: float = -math.inf  # time of `reasons`
    planned: placement_result.PlannedPlacement | None = None
    # where domains come in turn: the offered leaves to which `plan` and `planned` apply
    offered_leaves: frozenset[topology.Domain] = frozenset()
    # and the offered leaves and plans of other topology domains for which the scheduler simulates a placement
    simulated: Sequence[tuple[frozenset[topology.Domain], placement_result.PlannedPlacement]] = ()
    decided_at: float = -math.inf  # time of the last decision in this domain
    session: int = 0
    outcome: Outcome | None = None
    mixed: reason.Reason | None = None  # set if pods were admitted under several versions of the policy


class Gangs:
    """The last MAX_TRACKED gangs with a request. Not thread-safe: used by one event loop."""

    def __init__(
        self, state: states.State, placement_engine: engine.PlacementEngine, get_evaluation: GetEvaluation
    ) -> None:
        self._state, self._engine, self._get_evaluation = state, placement_engine, get_evaluation
        self._gangs: OrderedDict[tuple[str, str], TrackedGang] = OrderedDict()  # by gang, or by pod
        self._session = 0
        self._next_index = 0

    # --- called for requests of schedulers --------------------------------------------------------------------

    def record_decision(
        self, request: scheduling_request.SchedulingRequest, decision: engine.Decision, now: float
    ) -> None:
        """Record a decision on a pod."""
        tracked = self._get_or_add(request, now)
        plan, remaining = decision.plan, decision.gang.remaining
        if request.has_domains_in_turn and not _enter_domain(tracked, decision, now):
            return
        if self._needs_diagnosis(tracked, plan, remaining, now):
            tracked.reasons = decision.diagnose()
            tracked.diagnosed_at = now
        tracked.plan, tracked.remaining = plan, remaining
        if plan.is_complete and not decision.part and self._is_better(tracked, request, plan, remaining):
            peer_leaves = [leaf for leaf, count in decision.gang.peers_by_leaf.items() if count]
            tracked.planned = placement_result.PlannedPlacement.build(plan, remaining, peer_leaves)
            tracked.session = self._session

    def record_rejection(self, request: scheduling_request.SchedulingRequest, now: float) -> None:
        """Record that every candidate node of a pod was rejected."""
        self._get_or_add(request, now)

    def end_session(self) -> None:
        """Record the end of a scheduler's session: plans from it may no longer be possible."""
        self._session += 1

    def _get_or_add(self, request: scheduling_request.SchedulingRequest, now: float) -> TrackedGang:
        key = _build_key(request.gang, request.key)
        tracked = self._gangs.get(key)
        if tracked is None or _get_inputs(tracked.request) != _get_inputs(request):
            tracked = self._gangs[key] = TrackedGang(
                request=_strip_request(request), since=now, check_after=now + WAITING_SECONDS
            )
            if len(self._gangs) > MAX_TRACKED:
                self._gangs.popitem(last=False)
        elif tracked.outcome is not None and tracked.outcome.code != UNPLACEABLE:
            tracked.outcome, tracked.planned = None, None  # the gang has lost or gained a pod
            tracked.since, tracked.check_after = now, now + WAITING_SECONDS
        self._gangs.move_to_end(key)
        return tracked

    def _needs_diagnosis(self, tracked: TrackedGang, plan: planner.Plan, remaining: int, now: float) -> bool:
        """True if the stored reasons do not apply to this plan."""
        if diagnosis.still_applies(tracked.plan, tracked.remaining, plan, remaining):
            return False
        return tracked.plan.is_complete != plan.is_complete or now - tracked.diagnosed_at >= REASONS_SECONDS

    def _is_better(
        self, tracked: TrackedGang, request: scheduling_request.SchedulingRequest, plan: planner.Plan, remaining: int
    ) -> bool:
        """True if this plan is a better estimate of the gang's best placement than the stored one."""
        old = tracked.planned
        if old is None or remaining > old.members:
            return True
        if remaining < old.members:
            return False
        if not request.offers or tracked.session != self._session:
            return True
        return (plan.bandwidth, -len(plan.leaves)) > (old.bandwidth, -len(old.leaves))

    # --- read by explanations and metrics ---------------------------------------------------------------------

    def find(self, gang: membership.GangKey, pod: str) -> TrackedGang | None:
        """Return the state of a gang, or of a pod (namespace/name) without a gang."""
        return self._gangs.get(_build_key(gang, pod))

    def count_waiting(self, now: float) -> tuple[int, float]:
        """Return (number of gangs with unbound pods, seconds that the longest of them has waited)."""
        waits = [now - tracked.since for tracked in self._gangs.values() if self._is_waiting(tracked)]
        return len(waits), max(waits, default=0.0)

    def _is_waiting(self, tracked: TrackedGang) -> bool:
        if not tracked.request.gang or (tracked.outcome is not None and tracked.outcome.code != UNPLACEABLE):
            return False
        return any(not pod.node for pod in self._state.cluster.get_gang(tracked.request.gang).values())

    # --- compared with the cluster ----------------------------------------------------------------------------

    def check(self, now: float) -> Sequence[Outcome]:
        """Check some of the gangs and return new outcomes. Call it about once a second."""
        keys = list(self._gangs)
        start = self._next_index if self._next_index < len(keys) else 0
        batch = keys[start : start + _GANGS_PER_CHECK]
        self._next_index = start + len(batch)
        outcomes: list[Outcome] = []
        has_checked = False
        for key in batch:
            tracked = self._gangs[key]
            members = self._state.cluster.get_gang(tracked.request.gang)
            if not tracked.request.gang or not members or (tracked.outcome and tracked.outcome.code != UNPLACEABLE):
                continue
            outcomes += self._check_mixed_policies(tracked, list(members.values()))
            size = self._state.cluster.get_gang_size(tracked.request.gang, observed=len(members))
            if len(members) >= size and all(pod.node for pod in members.values()):
                outcomes += self._check_placement(tracked, list(members.values()))
            elif now >= tracked.check_after and not has_checked:
                has_checked = True  # one per call: a large gang takes a few milliseconds
                tracked.check_after = now + RECHECK_SECONDS
                outcomes += self._check_unplaceable(tracked, list(members.values()))
        return outcomes

    def _check_mixed_policies(self, tracked: TrackedGang, members: Sequence[object_info.PodInfo]) -> Sequence[Outcome]:
        """Report once for each mixture if pods were admitted under different versions of the policy."""
        mixed = _describe_mixture(_group_by_policy(members), tracked.request.policy)
        is_new, tracked.mixed = mixed != tracked.mixed, mixed
        return (_build_outcome(MIXED, tracked.request.gang, members, (mixed,)),) if is_new and mixed else ()

    def _check_placement(self, tracked: TrackedGang, members: Sequence[object_info.PodInfo]) -> Sequence[Outcome]:
        evaluations = self._engine.get_index(tracked.request)
        tracked.planned = _find_planned(tracked, {evaluations.leaf_by_node.get(pod.node) for pod in members})
        if tracked.planned is None or len(members) < 2:
            return ()
        pod_places = [
            placement_result.PlacedPod(
                pod=pod.key.partition("/")[2],
                node=pod.node,
                leaf=evaluations.leaf_by_node.get(pod.node, topology.NO_DOMAIN),
                evaluation=self._get_evaluation(pod.key, pod.node),
            )
            for pod in placement_result.select_workers(members, tracked.request.devices)
        ]
        placement = placement_result.assess(pod_places, tracked.planned, evaluations.uplinks)
        tracked.outcome = _build_outcome(
            placement_result.classify(placement, tracked.planned),
            tracked.request.gang,
            members,
            (placement_result.describe(placement, tracked.planned), *tracked.reasons.why[:1]),
            bandwidth=placement.bandwidth,
            placement=placement,
            attained=placement.bandwidth / tracked.planned.bandwidth if tracked.planned.bandwidth > 0 else 1.0,
        )
        return (tracked.outcome,)

    def _check_unplaceable(self, tracked: TrackedGang, members: Sequence[object_info.PodInfo]) -> Sequence[Outcome]:
        """Report if the cluster has no room for the pods that wait."""
        waiting = [pod for pod in members if not pod.node and self._state.assumed.get(pod.uid) is None]
        if not waiting:
            return ()
        request = self._build_request(tracked.request, min(waiting, key=lambda pod: pod.rank))
        decision = self._engine.score(request)
        if decision.plan.is_complete or not decision.gang.has_domains:
            tracked.outcome = None
            return ()
        tracked.plan, tracked.remaining, tracked.reasons = decision.plan, decision.gang.remaining, decision.diagnose()
        is_repeated = tracked.outcome is not None
        tracked.outcome = _build_outcome(
            UNPLACEABLE, request.gang, waiting, tracked.reasons.why, is_repeated=is_repeated
        )
        return (tracked.outcome,)

    def _build_request(
        self, previous: scheduling_request.SchedulingRequest, pod: object_info.PodInfo
    ) -> scheduling_request.SchedulingRequest:
        """Return the request of a waiting pod with all nodes as candidates."""
        namespace, _, name = pod.key.partition("/")
        needs = previous.needs
        if pod.requests != previous.requests:
            needs = intent.find_requested(pod.requests, previous.fabric.rails) or needs
        return msgspec.structs.replace(
            previous,
            uid=pod.uid,
            pairs=self._state.cluster.read_pairs(pod.claims),
            namespace=namespace,
            name=name,
            rank=pod.rank,
            requests=previous.requests if pod.requests == previous.requests else pod.requests,
            needs=needs,
            nodes=tuple(self._state.cluster.nodes),
        )


def _enter_domain(tracked: TrackedGang, decision: engine.Decision, now: float) -> bool:
    """Make the topology domain of a decision the tracked one. False if a better one was simulated before.

    The scheduler simulates the placement in one domain after the other. Of the domains that cannot hold the gang, the
    one with the most slots is kept. Which of the others the scheduler takes is known when the pods are bound.
    """
    leaves, plan = decision.offered_leaves, decision.plan
    if now - tracked.decided_at > WAITING_SECONDS:
        tracked.offered_leaves, tracked.simulated = leaves, ()
    if not leaves.isdisjoint(tracked.offered_leaves):
        tracked.offered_leaves, tracked.decided_at = tracked.offered_leaves | leaves, now
        return True
    if not plan.is_complete:
        missing = decision.gang.remaining_slots - sum(plan.slots_by_leaf.values())
        if tracked.plan.is_complete or tracked.remaining - sum(tracked.plan.slots_by_leaf.values()) <= missing:
            return False
    others = [row for row in tracked.simulated if row[0].isdisjoint(leaves | tracked.offered_leaves)]
    if tracked.planned is not None:
        others.append((tracked.offered_leaves, tracked.planned))
    tracked.simulated = others[-_MAX_DOMAINS:]
    tracked.offered_leaves, tracked.decided_at = leaves, now
    tracked.planned, tracked.diagnosed_at = None, -math.inf
    return True


def _find_planned(
    tracked: TrackedGang, leaves: Collection[topology.Domain | None]
) -> placement_result.PlannedPlacement | None:
    """Return the plan for the topology domain that has the most of the pods' leaves."""
    others = [(row[0].intersection(leaves), row[1]) for row in tracked.simulated]
    best = max(others, key=lambda row: len(row[0]), default=None)
    own = tracked.offered_leaves.intersection(leaves)
    return best[1] if best is not None and len(best[0]) > len(own) else tracked.planned


def _build_outcome(
    code: str,
    gang: membership.GangKey,
    pods: Sequence[object_info.PodInfo],
    reasons: tuple[reason.Reason, ...],
    **result: Any,
) -> Outcome:
    """Return an outcome for the first of some pods of a gang. `result` are the fields of a placement."""
    first = min(pods, key=lambda pod: pod.rank)
    namespace, _, name = first.key.partition("/")
    return Outcome(code=code, gang=gang, namespace=namespace, pod=name, uid=first.uid, reasons=reasons, **result)


def _get_inputs(request: scheduling_request.SchedulingRequest) -> tuple[object, ...]:
    """Return the inputs whose change invalidates the stored state: policy and rail resources."""
    return request.policy, request.fabric.rails


def _build_key(gang: membership.GangKey, pod: str) -> tuple[str, str]:
    """Return the key of a gang or pod. A pod without a gang may have the same name as a PodGroup."""
    return (gang, "") if gang else ("", pod)


def _strip_request(request: scheduling_request.SchedulingRequest) -> scheduling_request.SchedulingRequest:
    """Return the request without the parts that may have megabytes: nodes, offers and unused fields of the pod."""
    return msgspec.structs.replace(
        request, spec=scheduling_request.trim_spec(request.spec), nodes=(), offers={}, preemption=None
    )


# --- pods that were admitted under different versions of the policy -----------------------------------------
# Their injected settings may differ. Scores do not depend on it: placement uses the current policy for all pods.


def _group_by_policy(members: Collection[object_info.PodInfo]) -> Mapping[str, Sequence[object_info.PodInfo]]:
    """Group the pods of a gang by the digest of the policy they were admitted under, in rank order.

    Pods without injection are left out.
    """
    pods_by_policy: dict[str, list[object_info.PodInfo]] = {}
    for pod in sorted((pod for pod in members if pod.policy), key=lambda pod: pod.rank):
        pods_by_policy.setdefault(pod.policy, []).append(pod)
    return pods_by_policy


def _describe_mixture(
    pods_by_policy: Mapping[str, Sequence[object_info.PodInfo]], current: str
) -> reason.Reason | None:
    """Return the reason for a gang with several policy versions; None if there is only one. `current` is in force."""
    if len(pods_by_policy) < 2:
        return None
    versions = tuple(
        (_shorten_digest(policy), len(pods), reason.take_first(pod.key.partition("/")[2] for pod in pods))
        for policy, pods in pods_by_policy.items()
    )
    return reason.make(Code.POLICIES_DIFFER, versions=versions, current=_shorten_digest(current))


def _shorten_digest(policy: str) -> str:
    return policy[:_SHOWN_DIGITS]
