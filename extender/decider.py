"""Decides the requests of both schedulers, and remembers what follows from them; the same for either protocol.

The adapters (`kube_scheduler`, `volcano`) decode a request into a scheduling request, have it decided here, and encode
the result. This part knows no protocol: it asks the placement engine, counts, traces, and keeps what explains the
decision. Never awaits, and takes the clock as an argument.

A filter or prioritize request never assumes a pod, because schedulers dry-run and roll back.
"""

from collections.abc import Callable, Generator, Sequence

import msgspec

from extender import asked_pods, explanations, gang_tracker, scheduling_requests, unseen_pods, volcano_sessions
from extender import state as states
from railwright.fabric import intent
from railwright.fabric.placement import engine, scheduling_request
from railwright.fabric.placement.gangs import gang_memory
from railwright.fabric.placement.nodes import node_index
from railwright.fabric.placement.state import assumed_pods, pod_usage
from railwright.fabric.policy import model
from railwright.fabric.reasons import reason
from railwright.fabric.workloads import membership
from railwright.serving import routes, turns
from railwright.serving import tracing as traces

_MAX_NAME = 253  # characters of a Kubernetes name in an attribute of a span
Observe = Callable[[str, int, int], None]
"""Called after every decision with (verb, number of candidate nodes, number of those missing in the cache)."""

CountRejected = Callable[[str, int], None]
"""Called after filtering with (reason code, number of rejected nodes)."""


def _ignore_rejected(code: str, nodes: int) -> None:
    """Count nothing."""
    del code, nodes


class Decider:
    """Decides by this process's state and the policy in force."""

    def __init__(  # noqa: PLR0913 - independent collaborators, given by name
        self,
        state: states.State,
        policy: Callable[[], model.Policy | None],
        *,
        clock: Callable[[], float],
        observe: Observe,
        count_rejected: CountRejected = _ignore_rejected,
        tracing: traces.Tracing = traces.OFF,
    ) -> None:
        self.state = state
        self.policy = policy
        self.clock = clock
        self.observe, self.count_rejected = observe, count_rejected
        self.tracing = tracing
        self._engine = engine.PlacementEngine(state.cluster, state.assumed)
        self._reset()

    def forget(self) -> None:
        """Forget everything but the cluster state, as a restart does."""
        for assumed_pod in list(self.state.assumed):
            self.state.assumed.forget(assumed_pod.uid)
        self._reset()

    def forget_sessions(self) -> None:
        """Call after an outage: running sessions may have started before this process could observe them."""
        self.sessions = volcano_sessions.Sessions()

    def _reset(self) -> None:
        self.forget_sessions()
        self.unseen = unseen_pods.UnseenPods()
        self._memory = gang_memory.EMPTY
        self.asked = asked_pods.AskedPods(self.clock())
        self.explanations = explanations.Explanations()
        self.gangs = gang_tracker.Gangs(self.state, self._engine, self.explanations.get_evaluation)

    def warm(self) -> None:
        """Update caches between requests, so that the next request is fast."""
        if (policy := self.policy()) is not None:
            self._engine.prewarm(policy.document)

    # --- requests of schedulers -------------------------------------------------------------------------------

    def note_request(self, request: scheduling_request.SchedulingRequest | None) -> None:
        """Note that a scheduler has asked about a pod. None: the pod did not opt in."""
        self.tracing.note(
            lambda: {traces.DECISION: "neutral"} if request is None else {traces.FABRIC: request.fabric_name}
        )
        if request is not None:
            self.asked.record(request.uid, request.spec.scheduler_name, self.clock())

    def prepare(
        self, request: scheduling_request.SchedulingRequest, *, plans: bool = False
    ) -> Generator[None, None, node_index.NodeIndex]:
        """Evaluate the nodes for a new kind of pod in turns. Return the index for `filter`, or `score` (`plans`)."""
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
        with self.tracing.span("filter"):
            result = self._engine.filter(request, inferred, index=index)
        self.tracing.note(
            lambda: {
                "railwright.nodes.feasible": len(result.feasible),
                traces.DECISION: "feasible" if result.feasible else "rejected",
            }
        )
        self.observe(verb, len(request.nodes), result.unknown_nodes)
        self.explanations.record_filter_result(scheduler, request, result)
        for rejection in result.rejections.values():
            self.count_rejected(rejection.reason.code, rejection.nodes)
        if not result.feasible:
            self.gangs.record_rejection(request, self.clock())
        return result

    def reject_all(self, verb: str, request: scheduling_request.SchedulingRequest, cause: reason.Reason) -> None:
        """Record that all nodes were rejected for one reason, without a look at them."""
        self.count_rejected(cause.code, len(request.nodes))
        self.observe(verb, len(request.nodes), 0)
        self.gangs.record_rejection(request, self.clock())

    def score(
        self,
        scheduler: str,
        request: scheduling_request.SchedulingRequest,
        index: node_index.NodeIndex | None,
        inferred: Sequence[assumed_pods.AssumedPod] = (),
    ) -> engine.Decision:
        """Score the candidate nodes."""
        with self.tracing.span("prioritize"):
            decision = self._engine.score(request, self._memory, inferred, index=index)
        self.tracing.note(
            lambda: {
                traces.DECISION: "placeable" if decision.plan.is_complete else "unplaceable",
                "railwright.gang.size": decision.gang_size,
                "railwright.gang.leaves": len(decision.plan.leaves),
            }
        )
        self._memory = decision.memory
        self.observe("prioritize", len(request.nodes), decision.unknown_nodes)
        self.explanations.record_decision(scheduler, request, decision)
        self.gangs.record_decision(request, decision, self.clock())
        return decision

    def drop_reservations(self, gang: membership.GangKey) -> None:
        """End the reservation of a gang whose placement is rolled back."""
        self._memory = self._memory.drop_reservations([gang])

    # --- pods that no scheduler asks about --------------------------------------------------------------------

    def record_waiting_pods(self) -> turns.Steps[None]:
        """Explain pods that no scheduler asks about, because its own plugins reject all nodes.

        Pods that the cluster can hold are left out: their scheduler has another reason not to ask.
        """
        now = self.clock()
        for pod in self.state.waiting.list_due(now, gang_tracker.WAITING_SECONDS):
            nodes = list(self.state.cluster.nodes)
            request = scheduling_requests.build_kube_request(pod, nodes, self.policy(), self.state)
            if request is None or self.explanations.has_record(request.key, request.uid):
                continue
            index = yield from self._engine.prepare(request, plans=True)
            result, decision = self._engine.filter(request, index=index), self._engine.score(request, index=index)
            if result.feasible and (decision.plan.is_complete or not decision.gang.has_domains):
                continue
            if not self.explanations.has_record(request.key, request.uid):  # the scheduler may have asked meanwhile
                self.explanations.record_unasked(request, result, decision)
                self.gangs.record_decision(request, decision, now - gang_tracker.WAITING_SECONDS)

    # --- questions about decisions ----------------------------------------------------------------------------

    def answer_asked(self, uid: str) -> routes.Reply:
        """Handle GET /asked/{uid}: whether a scheduler has asked about this pod."""
        return self.asked.answer(uid, self.clock())

    def explain_absence(self, pod: str) -> str:
        """Return why no decision on a pod (namespace/name) is stored, as a message with the fix."""
        return f"no decision on {pod} is stored (the last 1,000 are): {self.asked.describe(self.clock())}"

    def explain(self, namespace: str, name: str) -> explanations.Explanation | None:
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


def list_pod_attributes(namespace: str, name: str, nodes: int | None = None) -> traces.Attributes:
    """Return the attributes of a call's span: the pod and the number of candidate nodes."""
    attributes: traces.Attributes = {traces.NAMESPACE: namespace[:_MAX_NAME], traces.POD: name[:_MAX_NAME]}
    return attributes if nodes is None else {**attributes, "railwright.nodes": nodes}
