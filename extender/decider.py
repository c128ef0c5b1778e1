"""Decides the requests of both schedulers, and remembers what follows from them; the same for either protocol.

The adapters (`kube_scheduler`, `volcano`) decode a request into a scheduling request, have it decided here, and encode
the result. This part knows no protocol: it asks the placement engine, counts, and keeps what explains the
decision. Never awaits, and takes the clock as an argument.

A filter or prioritize request never assumes a pod, because schedulers dry-run and roll back.

What only explains decisions is recorded once the answer has been sent (`record_decisions`), because schedulers wait
for the answer. Whoever reads it finds all decisions recorded.

The webhook asks which pods schedulers have asked about when a pod is bound: a pod that no scheduler has asked about was
placed without a view of its rails.

Volcano announces a gang task by task within one session, and never announces an earlier task again. An extender that
starts in the middle of a gang does not know where its first pods are, and would plan the rest without them. An error
for one of the remaining tasks makes Volcano roll the gang back. The next session, a moment later, places all of it.
"""

import functools
from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from typing import Any

import msgspec

from extender import explanations as explaining
from extender import gang_tracker, scheduling_requests, unseen_pods
from extender import state as states
from railwright.fabric import bounded_cache, intent
from railwright.fabric.placement import engine, scheduling_request
from railwright.fabric.placement.gangs import gang_memory
from railwright.fabric.placement.nodes import node_index, request_view
from railwright.fabric.placement.state import assumed_pods, cluster_state, gang_status, pod_usage
from railwright.fabric.policy import model
from railwright.fabric.reasons import reason
from railwright.fabric.workloads import membership
from railwright.serving import routes, turns

# --- pods that schedulers have asked about --------------------------------------------------------------------

_MAX_PODS = 65_536  # of 100 bytes each; more than schedulers place between the requests for a pod and its binding
_MAX_UID = 64  # characters; a UID has 36
_MAX_SCHEDULERS = 8  # names of schedulers that are remembered
_MAX_SCHEDULER_NAME = 63  # characters


class Answer(msgspec.Struct, frozen=True):
    """The answer about one pod. `answering_seconds` says for how long this process has remembered requests."""

    asked: bool
    answering_seconds: float


class AskedPods:
    """UIDs of the pods of recent requests, and their schedulers. `since` is the time from which they are remembered."""

    def __init__(self, since: float) -> None:
        self._since = since
        self._schedulers: set[str] = set()
        self._uids: bounded_cache.BoundedCache[str, bool] = bounded_cache.BoundedCache(_MAX_PODS)

    def record(self, uid: str, scheduler: str, now: float) -> None:
        """Remember that a scheduler (`spec.schedulerName`) has asked about this pod."""
        if len(uid) > _MAX_UID:
            return
        if len(self._schedulers) < _MAX_SCHEDULERS:
            self._schedulers.add(scheduler[:_MAX_SCHEDULER_NAME] or "default-scheduler")
        if len(self._uids) >= _MAX_PODS:  # adding one more clears the cache
            self._since = now
        self._uids.add(uid, True)

    def describe(self, now: float) -> str:
        """Return which schedulers have asked, and since when this process would know."""
        asked = f"about pods of {', '.join(sorted(self._schedulers))}" if self._schedulers else "about no pod"
        return f"this extender has answered for {_format_seconds(now - self._since)} and was asked {asked}"

    def answer(self, uid: str, now: float) -> routes.Reply:
        """Answer whether a scheduler has asked about this pod."""
        seconds = max(0.0, now - self._since)
        return routes.Reply(msgspec.json.encode(Answer(self._uids.get(uid) is not None, round(seconds, 1))))


def _format_seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


# --- sessions of Volcano --------------------------------------------------------------------------------------

_MAX_TRACKED = 1000  # scopes and gangs; a scope is part of a path that callers choose, so the number must be bounded


class Sessions:
    """The scopes that have had a session end since this process started, and the gangs rejected once."""

    def __init__(self) -> None:
        self._observed_scopes: set[str] = set()
        self._rejected_gangs: set[membership.GangKey] = set()

    def end(self, scope: str) -> None:
        """Record the end of a session: the scope's next session is observed from its start."""
        if len(self._observed_scopes) < _MAX_TRACKED:
            self._observed_scopes.add(scope)

    def check_rejection(
        self,
        scope: str,
        assumed_pod: assumed_pods.AssumedPod,
        cluster: cluster_state.ClusterState,
        assumed: assumed_pods.AssumedPods,
    ) -> bool:
        """True (once for each gang) if earlier peers may have been placed before this process observed the session."""
        if (
            scope in self._observed_scopes
            or assumed_pod.state is not assumed_pods.State.ALLOCATED
            or len(self._rejected_gangs) >= _MAX_TRACKED
        ):
            return False
        if assumed_pod.gang in self._rejected_gangs or not _has_unplaced_predecessor(assumed_pod, cluster, assumed):
            return False
        self._rejected_gangs.add(assumed_pod.gang)
        return True


def _has_unplaced_predecessor(
    assumed_pod: assumed_pods.AssumedPod, cluster: cluster_state.ClusterState, assumed: assumed_pods.AssumedPods
) -> bool:
    """True if a peer with a lower index is neither bound nor assumed. Volcano orders tasks by index, not by role."""
    return any(
        peer.rank.index < assumed_pod.rank.index
        for peer in gang_status.list_unplaced(assumed_pod.gang, cluster, assumed)
    )


# --- decisions ------------------------------------------------------------------------------------------------

_MAX_WARMED = 8  # gangs; with 5,000 nodes, a new kind of pod takes 10 ms, or seconds if it selects nodes at length
Observe = Callable[[str, int, int], None]
"""Called after every decision with (verb, number of candidate nodes, number of those missing in the cache)."""

CountRejected = Callable[[str, int], None]
"""Called after filtering with (reason code, number of rejected nodes)."""


class Decider:
    """Decides by this process's state and the policy in force."""

    def __init__(
        self,
        state: states.State,
        policy: Callable[[], model.Policy | None],
        *,
        clock: Callable[[], float],
        observe: Observe,
        count_rejected: CountRejected,
    ) -> None:
        self.state = state
        self.policy = policy
        self.clock = clock
        self.observe, self.count_rejected = observe, count_rejected
        self._engine = engine.PlacementEngine(state.cluster, state.assumed)
        self._evaluation: turns.Steps[None] | None = None  # of the nodes, for gangs that wait
        self._unrecorded: deque[Callable[[], None]] = deque()
        self._reset()

    def forget(self) -> None:
        """Forget everything but the cluster state, as a restart does."""
        for assumed_pod in list(self.state.assumed):
            self.state.assumed.forget(assumed_pod.uid)
        self._reset()

    def forget_sessions(self) -> None:
        """Call after an outage: running sessions may have started before this process could observe them."""
        self.sessions = Sessions()

    def _reset(self) -> None:
        self.forget_sessions()
        self._unrecorded.clear()
        self.unseen = unseen_pods.UnseenPods()
        self._memory = gang_memory.EMPTY
        self.asked = AskedPods(self.clock())
        self._explanations = explaining.Explanations()
        self._gangs = gang_tracker.Gangs(self.state, self._engine, self._explanations.get_evaluation)

    # --- what explains decisions ------------------------------------------------------------------------------

    @property
    def explanations(self) -> explaining.Explanations:
        """Return the explanations of all decisions so far."""
        self.record_decisions()
        return self._explanations

    @property
    def gangs(self) -> gang_tracker.Gangs:
        """Return the gangs of all decisions so far."""
        self.record_decisions()
        return self._gangs

    def record_decisions(self) -> None:
        """Record the decisions that are not recorded yet, for explanations. Call it once their answer has been sent."""
        while self._unrecorded:
            self._unrecorded.popleft()()

    def warm(self) -> None:
        """Update caches between requests, so that the next request is fast."""
        if (policy := self.policy()) is not None:
            self._engine.prewarm(policy.document)

    @property
    def has_begun_evaluation(self) -> bool:
        """True once nodes are being evaluated, or were, for gangs that wait."""
        return self._evaluation is not None

    def warm_for_waiting_gangs(self) -> Iterator[None]:
        """Evaluate the nodes once for gangs that wait, because schedulers will ask about these first.

        A further call returns the steps that are left.
        """
        if self._evaluation is None and self.policy() is not None:
            self._evaluation = self._evaluate_for_waiting_gangs()
        return self._evaluation or iter(())

    def _evaluate_for_waiting_gangs(self) -> turns.Steps[None]:
        for pod in self.state.waiting.list_gangs(self.state.cluster)[:_MAX_WARMED]:
            nodes = list(self.state.cluster.nodes)
            request = scheduling_requests.build_kube_request(pod, nodes, self.policy(), self.state)
            if request is not None:
                yield from self._engine.prepare(request)

    # --- requests of schedulers -------------------------------------------------------------------------------

    def note_request(self, request: scheduling_request.SchedulingRequest | None) -> None:
        """Note that a scheduler has asked about a pod. None: the pod did not opt in."""
        if request is not None:
            self.asked.record(request.uid, request.spec.scheduler_name, self.clock())

    def prepare(
        self, request: scheduling_request.SchedulingRequest, *, plans: bool = False
    ) -> Generator[None, None, node_index.NodeIndex]:
        """Evaluate the nodes for a new kind of pod in turns. Return the index for `filter`, or `score` (`plans`)."""
        self.record_decisions()
        return self._engine.prepare(request, plans=plans)

    def filter(
        self,
        scheduler: str,
        verb: str,
        request: scheduling_request.SchedulingRequest,
        index: node_index.NodeIndex | None,
        inferred: Sequence[assumed_pods.AssumedPod] = (),
    ) -> engine.FilterResult:
        """Filter the candidate nodes."""
        peers = self.unseen.list_pods(request, self.state.cluster, self.clock()) if request.must_stay_together else ()
        result = self._engine.filter(request, inferred, index=index, peers=peers)
        self.observe(verb, len(request.nodes), result.unknown_nodes)
        self._record_later(self._explanations.record_filter_result, scheduler, request, result)
        for rejection in result.rejections.values():
            self.count_rejected(rejection.reason.code, rejection.nodes)
        if not result.feasible:
            self._record_later(self._gangs.record_rejection, request, self.clock())
        return result

    def reject_all(self, verb: str, request: scheduling_request.SchedulingRequest, cause: reason.Reason) -> None:
        """Record that all nodes were rejected for one reason, without a look at them."""
        self.count_rejected(cause.code, len(request.nodes))
        self.observe(verb, len(request.nodes), 0)
        self._record_later(self._gangs.record_rejection, request, self.clock())

    def score(
        self,
        scheduler: str,
        request: scheduling_request.SchedulingRequest,
        index: node_index.NodeIndex | None,
        inferred: Sequence[assumed_pods.AssumedPod] = (),
        *,
        classes: request_view.Classes | None = None,
    ) -> engine.Decision:
        """Score the candidate nodes. `classes` are theirs in the result of `filter`."""
        decision = self._engine.score(request, self._memory, inferred, index=index, classes=classes)
        self._memory = decision.memory
        self._record_later(self._explanations.record_decision, scheduler, request, decision)
        self._record_later(self._gangs.record_decision, request, decision, self.clock())
        return decision

    def _record_later(self, record: Callable[..., None], *arguments: Any) -> None:
        self._unrecorded.append(functools.partial(record, *arguments))

    def drop_reservations(self, gang: membership.GangKey) -> None:
        """End the reservation of a gang whose placement is rolled back."""
        self._memory = self._memory.drop_reservations([gang])

    # --- pods that no scheduler asks about --------------------------------------------------------------------

    def record_waiting_pods(self) -> turns.Steps[None]:
        """Explain pods that no scheduler asks about, because its own plugins reject all nodes.

        Pods that the cluster can hold are left out: their scheduler has another reason not to ask. Hundreds of pods of
        one gang wait together, and while one fits, so do the others of its kind, unless their segments differ.
        """
        now, placeable = self.clock(), set[Hashable]()
        for pod in self.state.waiting.list_due(now, gang_tracker.WAITING_SECONDS):
            nodes = list(self.state.cluster.nodes)
            request = scheduling_requests.build_kube_request(pod, nodes, self.policy(), self.state)
            if request is None or self.explanations.has_record(request.key, request.uid):
                continue
            index = yield from self._engine.prepare(request, plans=True)
            kind = (request.gang or request.uid, request.segment > 1 and request.uid, index.signature.key)
            if kind in placeable:
                continue
            result, decision = self._engine.filter(request, index=index), self._engine.score(request, index=index)
            if result.feasible and (decision.plan.is_complete or not decision.gang.has_domains):
                placeable.add(kind)
                continue
            if not self.explanations.has_record(request.key, request.uid):  # the scheduler may have asked meanwhile
                self.explanations.record_unasked(request, result, decision)
                self.gangs.record_decision(request, decision, now - gang_tracker.WAITING_SECONDS)

    # --- questions about decisions ----------------------------------------------------------------------------

    def explain_absence(self, pod: str) -> str:
        """Return why no decision on a pod (namespace/name) is stored, as a message with the fix."""
        return f"no decision on {pod} is stored (the last 1,000 are): {self.asked.describe(self.clock())}"

    def explain(self, namespace: str, name: str) -> explaining.Explanation | None:
        """Explain the last decision on a pod, with the rails that its claims hold now; None if none is stored."""
        policy, cluster, key = self.policy(), self.state.cluster, f"{namespace}/{name}"
        pod = next((pod for pod in cluster.pods.values() if pod.key == key), None)
        uid, node = (pod.uid, pod.node) if pod else ("", "")
        explanation = self.explanations.explain(namespace, name, self.gangs, uid=uid, node=node)
        if explanation is None or policy is None or explanation.fabric not in policy.document.fabrics:
            return explanation
        fabric = intent.fill_resources(
            explanation.fabric, policy.document.fabrics[explanation.fabric], self.state.pools
        )
        return msgspec.structs.replace(explanation, devices=pod_usage.list_held_rails(fabric, pod, cluster))
