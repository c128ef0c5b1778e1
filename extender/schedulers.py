"""Handles the requests of both schedulers: decodes, decides, encodes. Never awaits, and takes the clock as an argument.

Handlers that decide are generators: they yield while nodes are evaluated for a new kind of pod, and Volcano's
prioritize, which sends every node, also between slices of the body. The decision itself is made at once.

A filter or prioritize request never assumes a pod, because schedulers dry-run and roll back. Only Volcano's allocate,
deallocate and session-close requests change the assumed pods.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from extender import (
    asked_pods,
    expected_nodes,
    explanations,
    gang_tracker,
    inferred_bindings,
    kube_wire,
    scheduling_requests,
    sessions,
    trace_attributes,
    volcano_wire,
)
from extender import state as states
from railwright.fabric import intent, resources, scheduling_views, views
from railwright.fabric.placement import engine, scheduling_request
from railwright.fabric.placement.gangs import gang_memory
from railwright.fabric.placement.state import assumed_pods, device_holders
from railwright.fabric.policy import model
from railwright.fabric.reasons import reason, rendering
from railwright.fabric.reasons.codes import Code
from railwright.fabric.workloads import membership
from railwright.serving import routes, turns
from railwright.serving import tracing as traces

Result = TypeVar("Result")
Observe = Callable[[str, int, int], None]
"""Called after every decision with (verb, number of candidate nodes, number of those missing in the cache)."""

CountRejected = Callable[[str, int], None]
"""Called after filtering with (reason code, number of rejected nodes)."""


def _ignore_rejected(code: str, nodes: int) -> None:
    """Count nothing."""
    del code, nodes


class Schedulers:
    """The handlers of all scheduling requests. They use this process's state and the policy in force."""

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
        self._state = state
        self._policy = policy
        self._clock = clock
        self._observe, self._count_rejected = observe, count_rejected
        self._engine = engine.PlacementEngine(state.cluster, state.assumed)
        self._tracing = tracing
        self._reset()

    def forget(self) -> None:
        """Forget everything but the cluster state, as a restart does."""
        for assumed_pod in list(self._state.assumed):
            self._state.assumed.forget(assumed_pod.uid)
        self._reset()

    def forget_sessions(self) -> None:
        """Call after an outage: running sessions may have started before this process could observe them."""
        self._sessions = sessions.Sessions()

    def _reset(self) -> None:
        self.forget_sessions()
        self._inferred_bindings = inferred_bindings.InferredBindings()
        self._expected_nodes = expected_nodes.ExpectedNodes()
        self._memory = gang_memory.EMPTY
        self.asked = asked_pods.AskedPods(self._clock())
        self.explanations = explanations.Explanations()
        self.gangs = gang_tracker.Gangs(self._state, self._engine, self.explanations.get_evaluation)

    def warm(self) -> None:
        """Update caches between requests, so that the next request is fast."""
        if (policy := self._policy()) is not None:
            self._engine.prewarm(policy.document)

    def record_waiting_pods(self) -> turns.Steps[None]:
        """Explain pods that no scheduler asks about, because its own plugins reject all nodes.

        Pods that the cluster can hold are left out: their scheduler has another reason not to ask.
        """
        now = self._clock()
        for pod in self._state.waiting.list_due(now, gang_tracker.WAITING_SECONDS):
            nodes = list(self._state.cluster.nodes)
            request = scheduling_requests.build_kube_request(pod, nodes, self._policy(), self._state)
            if request is None or self.explanations.has_record(request.key, request.uid):
                continue
            yield from self._engine.prepare(request, plans=True)
            result, decision = self._engine.filter(request), self._engine.score(request)
            if result.feasible and (decision.plan.is_complete or not decision.gang.has_domains):
                continue
            if not self.explanations.has_record(request.key, request.uid):  # the scheduler may have asked meanwhile
                self.explanations.record_unasked(request, result, decision)
                self.gangs.record_decision(request, decision, now - gang_tracker.WAITING_SECONDS)

    def answer_asked(self, uid: str) -> routes.Reply:
        """Handle GET /asked/{uid}: whether a scheduler has asked about this pod."""
        return self.asked.answer(uid, self._clock())

    def explain_absence(self, pod: str) -> str:
        """Return why no decision on a pod (namespace/name) is stored, as a message with the fix."""
        return f"no decision on {pod} is stored (the last 1,000 are): {self.asked.describe(self._clock())}"

    def explain(self, namespace: str, name: str) -> explanations.Explanation | None:
        """Explain the last decision on a pod, with the rails that its claims hold now; None if none is stored."""
        policy, cluster, key = self._policy(), self._state.cluster, f"{namespace}/{name}"
        pod = next((pod for pod in cluster.pods.values() if pod.key == key), None)
        uid, node = (pod.uid, pod.node) if pod else ("", "")
        explanation = self.explanations.explain(namespace, name, self.gangs, uid=uid, node=node)
        if explanation is None or policy is None or explanation.fabric not in policy.document.fabrics:
            return explanation
        fabric = intent.fill_resources(
            explanation.fabric, policy.document.fabrics[explanation.fabric], self._state.pools
        )
        return msgspec.structs.replace(explanation, devices=device_holders.list_held_rails(fabric, pod, cluster))

    # --- kube-scheduler -------------------------------------------------------------------------------

    def filter(self, body: bytes) -> bytes:
        """POST /scheduler/filter, at once."""
        return turns.complete(self.filter_nodes(body))[0]

    def filter_nodes(self, body: bytes) -> turns.Steps[tuple[bytes, bool]]:
        """POST /scheduler/filter. Return the answer, and True if it rejects every candidate node."""
        pod, nodes, constraints = self._read_kube(body)
        request = yield from self._build_kube_request(pod, nodes)
        if request is None:
            return kube_wire.encode_filter_result(nodes, {}, {}), False
        filter_call = self._build_filter_call(request, constraints)
        if self._inferred_bindings.record_call(filter_call, self._state.cluster):
            self._expected_nodes.forget_gang(request.gang)
        self._expected_nodes.forget(request.uid)
        if refusal := self._find_uncounted_rails(filter_call):
            self._count_rejected(refusal.code, len(nodes))
            self._observe("filter", len(nodes), 0)
            self.gangs.record_rejection(request, self._clock())
            message = rendering.render_for_scheduler(refusal)
            return kube_wire.encode_filter_result([], dict.fromkeys(nodes, message), {}), False
        inferred = self._inferred_bindings.list_pods(self._state.cluster, self._clock())
        result = self._filter(request, inferred)
        feasible = (
            filter_call.offered if len(result.feasible) == len(filter_call.offered) else frozenset(result.feasible)
        )
        self._inferred_bindings.record_feasible(msgspec.structs.replace(filter_call, feasible=feasible))
        self._observe("filter", len(nodes), result.unknown_nodes)
        self._record_filter_result(explanations.KUBE_SCHEDULER, request, result)
        answer = kube_wire.encode_filter_result(result.feasible, *_render_rejections(result))
        return answer, bool(nodes) and not result.feasible

    def prioritize(self, body: bytes) -> turns.Steps[bytes]:
        """POST /scheduler/prioritize."""
        pod, nodes, _ = self._read_kube(body)
        request = yield from self._build_kube_request(pod, nodes, plans=True)
        if request is None:
            return kube_wire.encode_priorities(dict.fromkeys(nodes, 0.0))
        decision = self._decide(explanations.KUBE_SCHEDULER, "prioritize", request, self.list_unseen(request))
        if self._starts_as_a_whole(request) and decision.gang.has_domains and not decision.plan.is_complete:
            self._inferred_bindings.record_plan(request.gang, fits=False)
            self._expected_nodes.forget_gang(request.gang)
        else:
            self._inferred_bindings.record_plan(request.gang, fits=True)
            self._expected_nodes.record_decision(request, self._build_assumed(request), decision)
        return kube_wire.encode_priorities(decision.scores)

    def _starts_as_a_whole(self, request: scheduling_request.SchedulingRequest) -> bool:
        return request.spec.scheduling_group is not None and self._state.cluster.has_min_count(request.gang)

    def _find_uncounted_rails(self, call: inferred_bindings.FilterCall) -> reason.Reason | None:
        """Return the reason to refuse all nodes to a pod of a PodGroup whose rails kube-scheduler does not count."""
        if not call.is_grouped or not call.rails:
            return None
        if not self._inferred_bindings.has_offered_twice(call.scheduler, call.entry.since):
            return None
        return reason.make(Code.RAILS_UNCOUNTED, resources=reason.take_first(sorted(call.rails)))

    def list_unseen(self, request: scheduling_request.SchedulingRequest) -> Sequence[assumed_pods.AssumedPod]:
        """Return the pods that kube-scheduler has very likely placed before this request, and that are not seen yet."""
        cluster, now = self._state.cluster, self._clock()
        inferred = self._inferred_bindings.list_pods(cluster, now)
        return self._expected_nodes.list_pods(request, cluster, now, inferred)

    # --- Volcano --------------------------------------------------------------------------------------

    def volcano_prioritize(self, body: bytes, scope: str) -> turns.Steps[bytes]:
        """POST /volcano/prioritize: scores of 0..100 times the policy's scale, because Volcano adds raw scores."""
        task, nodes = yield from self._decode(volcano_wire.read_prioritize(body))
        self._tracing.note(lambda: trace_attributes.list_task(task, len(nodes)))
        request = yield from self._build_volcano_request(task, nodes, scope, evicting=True)
        if request is None:
            return volcano_wire.encode_priorities(dict.fromkeys((node.name for node in nodes), 0.0))
        yield from self._engine.prepare(request, plans=True)
        scores = self._decide(_format_scheduler(scope), "prioritize", request).scores
        scale = request.fabric.placement.scale
        return volcano_wire.encode_priorities({name: score * scale for name, score in scores.items()})

    def _decode(self, steps: turns.Steps[Result]) -> turns.Steps[Result]:
        """Decode in turns, each in a trace span of its own, because other requests run between two turns."""
        while True:
            with self._tracing.span("decode"):
                try:
                    next(steps)
                except StopIteration as end:
                    result: Result = end.value
                    return result
            yield

    def volcano_predicate(self, body: bytes, scope: str) -> turns.Steps[bytes]:
        """POST /volcano/predicate: one node. Code 2 if a rail has no free device, 3 if the node never has one."""
        with self._tracing.span("decode"):
            task, node = volcano_wire.read_predicate(body)
        self._tracing.note(lambda: trace_attributes.list_task(task))
        request = yield from self._build_volcano_request(task, [node], scope)
        if request is None:
            self._observe("predicate", 1, 0)
            return volcano_wire.encode_predicate_result("", unresolvable=False)
        yield from self._engine.prepare(request)
        result = self._filter(request)
        self._observe("predicate", 1, result.unknown_nodes)
        self._record_filter_result(_format_scheduler(scope), request, result)
        for rejection in result.rejections.values():  # at most one, of the one node
            message = rendering.render_for_scheduler(rejection.reason)
            return volcano_wire.encode_predicate_result(message, unresolvable=rejection.is_unresolvable)
        return volcano_wire.encode_predicate_result("", unresolvable=False)

    def volcano_allocate(self, body: bytes, scope: str) -> bytes:
        """POST /volcano/allocate: assume a task that Volcano has placed tentatively."""
        task = self._read_event(body)
        self.asked.record(task.uid, _format_scheduler(scope), self._clock())
        bound = self._state.cluster.pods.get(task.uid)
        if task.node_name and not (bound and bound.node):
            assumed_pod = self._build_entry(task)
            if self._sessions.check_rejection(scope, assumed_pod, self._state.cluster, self._state.assumed):
                self._count_rejected(Code.SESSION_UNKNOWN, 1)
                return volcano_wire.encode_rejection(rendering.render(reason.make(Code.SESSION_UNKNOWN)))
            if conflict := self._find_conflict(assumed_pod, task.pod, scope):
                self._count_rejected(conflict.code, 1)
                return volcano_wire.encode_rejection(rendering.render_for_scheduler(conflict))
            with self._tracing.span("events"):
                self._assume(assumed_pod, scope)
        return volcano_wire.EVENT_ACCEPTED

    def _assume(self, assumed_pod: assumed_pods.AssumedPod, scope: str) -> None:
        """Assume a pod. What it requests is what the API server shows, not what the caller says."""
        cluster, assumed = self._state.cluster, self._state.assumed
        known = cluster.pods.get(assumed_pod.uid)
        if known is None:
            assumed.assume_unseen(assumed_pod, scope, len(cluster.pods))
        else:
            assumed.assume(msgspec.structs.replace(assumed_pod, requests=known.requests), scope)

    def volcano_deallocate(self, body: bytes, scope: str) -> bytes:
        """POST /volcano/deallocate: forget a task whose placement is rolled back. A bound pod still counts."""
        del scope  # a uid is assumed once, in any scope
        uid = self._read_event(body).uid
        if (assumed_pod := self._state.assumed.get(uid)) is not None:
            self._memory = self._memory.drop_reservations([assumed_pod.gang])
        with self._tracing.span("events"):
            self._state.assumed.forget(uid)
        return volcano_wire.EVENT_ACCEPTED

    def volcano_close(self, body: bytes, scope: str) -> bytes:
        """POST /volcano/session-close: forget pipelined tasks. Allocated tasks wait for their binding."""
        volcano_wire.read_close(body)
        self._sessions.end(scope)
        self._state.assumed.end_session(scope, self._clock())
        self.gangs.end_session()
        return volcano_wire.EMPTY_OBJECT

    def _find_conflict(
        self, assumed_pod: assumed_pods.AssumedPod, pod: views.Pod | None, scope: str
    ) -> reason.Reason | None:
        if assumed_pod.state is not assumed_pods.State.ALLOCATED or pod is None:
            return None
        return scheduling_requests.find_conflict(
            assumed_pod, pod, self._policy(), self._state, scope=scope, inferred=self._get_inferred(assumed_pod.uid)
        )

    def _get_inferred(self, uid: str) -> Mapping[str, resources.Amounts]:
        """Return by node the requests of pods, except `uid`, that kube-scheduler is very likely placing there."""
        return self._inferred_bindings.sum_requests(self._state.cluster, self._clock(), except_uid=uid)

    def _build_entry(self, task: volcano_wire.Task) -> assumed_pods.AssumedPod:
        pod = task.pod
        return assumed_pods.AssumedPod(
            uid=task.uid,
            key=f"{task.namespace}/{task.name}",
            gang=membership.find_gang(pod, task.job) if pod else membership.GangKey(task.job),
            rank=membership.find_rank(pod) if pod else membership.Rank(role=1, index=0, name=task.name),
            node=task.node_name,
            requests=scheduling_requests.get_requests(task, self._state.cluster),
            state=assumed_pods.State.PIPELINED
            if task.status == volcano_wire.PIPELINED
            else assumed_pods.State.ALLOCATED,
            since=self._clock(),
        )

    def _build_filter_call(
        self, request: scheduling_request.SchedulingRequest, constraints: bytes
    ) -> inferred_bindings.FilterCall:
        return inferred_bindings.FilterCall(
            entry=self._build_assumed(request),
            scheduler=request.spec.scheduler_name,
            spec=scheduling_request.trim_spec(request.spec),
            constraints=constraints,
            offered=frozenset(request.nodes),
            is_grouped=request.spec.scheduling_group is not None,
            below=None if request.preemption is None else request.preemption.simulated_below,
            rails=_list_requested_rails(request),
        )

    def _build_assumed(self, request: scheduling_request.SchedulingRequest) -> assumed_pods.AssumedPod:
        """Return the pod of a request of kube-scheduler, without a node."""
        return assumed_pods.AssumedPod(
            uid=request.uid,
            key=request.key,
            gang=request.gang,
            rank=request.rank,
            node="",
            requests=request.requests,
            state=assumed_pods.State.UNCONFIRMED,
            since=self._clock(),
        )

    def _read_kube(self, body: bytes) -> kube_wire.Arguments:
        with self._tracing.span("decode"):
            arguments = kube_wire.read_arguments(body)
        self._tracing.note(lambda: trace_attributes.list_kube(arguments.pod, arguments.nodes))
        return arguments

    def _read_event(self, body: bytes) -> volcano_wire.Task:
        with self._tracing.span("decode"):
            task = volcano_wire.read_event(body)
        self._tracing.note(lambda: trace_attributes.list_task(task))
        return task

    def _build_kube_request(
        self, pod: scheduling_views.Pod, nodes: list[str], *, plans: bool = False
    ) -> turns.Steps[scheduling_request.SchedulingRequest | None]:
        """Build the request, and prepare the engine for it; build it again if time has passed meanwhile."""
        request = self._read_kube_request(pod, nodes)
        steps = self._engine.prepare(request, plans=plans) if request is not None else iter(())
        is_interrupted = False
        for _ in steps:
            is_interrupted = True
            yield
        if is_interrupted:
            request = self._read_kube_request(pod, nodes)
        self._tracing.note(lambda: trace_attributes.list_request(request))
        self._record_asked(request)
        return request

    def _read_kube_request(
        self, pod: scheduling_views.Pod, nodes: list[str]
    ) -> scheduling_request.SchedulingRequest | None:
        request = scheduling_requests.build_kube_request(pod, nodes, self._policy(), self._state)
        nominated = "" if pod.spec.scheduling_group else pod.status.nominated_node_name
        may_preempt = pod.spec.preemption_policy != "Never" and (pod.spec.scheduling_group or nominated)
        if request is not None and may_preempt:
            scheduler = pod.spec.scheduler_name
            preemption = scheduling_request.Preemption(
                below=pod.spec.priority or 0,
                uncounted=frozenset()
                if self._inferred_bindings.counts_rails(scheduler)
                else _list_requested_rails(request),
                bound_elsewhere=self._state.recent_bindings.list_nodes(self._clock(), except_scheduler=scheduler),
                nominated=nominated,
            )
            request = msgspec.structs.replace(request, preemption=preemption)
        return request

    def _build_volcano_request(
        self, task: volcano_wire.Task, nodes: list[volcano_wire.Node], scope: str, *, evicting: bool = False
    ) -> turns.Steps[scheduling_request.SchedulingRequest | None]:
        inferred = self._get_inferred(task.uid)
        request = yield from scheduling_requests.build_volcano_request(
            task, nodes, self._policy(), self._state, scope=scope, inferred=inferred, evicting=evicting
        )
        self._tracing.note(lambda: trace_attributes.list_request(request))
        self._record_asked(request)
        return request

    def _record_asked(self, request: scheduling_request.SchedulingRequest | None) -> None:
        if request is not None:
            self.asked.record(request.uid, request.spec.scheduler_name, self._clock())

    def _filter(
        self, request: scheduling_request.SchedulingRequest, inferred: Sequence[assumed_pods.AssumedPod] = ()
    ) -> engine.FilterResult:
        with self._tracing.span("filter"):
            result = self._engine.filter(request, inferred)
        self._tracing.note(lambda: trace_attributes.list_filter_result(result))
        return result

    def _decide(
        self,
        scheduler: str,
        verb: str,
        request: scheduling_request.SchedulingRequest,
        inferred: Sequence[assumed_pods.AssumedPod] = (),
    ) -> engine.Decision:
        with self._tracing.span("prioritize"):
            decision = self._engine.score(request, self._memory, inferred)
        self._tracing.note(lambda: trace_attributes.list_decision(decision))
        self._memory = decision.memory
        self._observe(verb, len(request.nodes), decision.unknown_nodes)
        self.explanations.record_decision(scheduler, request, decision)
        self.gangs.record_decision(request, decision, self._clock())
        return decision

    def _record_filter_result(
        self, scheduler: str, request: scheduling_request.SchedulingRequest, result: engine.FilterResult
    ) -> None:
        self.explanations.record_filter_result(scheduler, request, result)
        for rejection in result.rejections.values():
            self._count_rejected(rejection.reason.code, rejection.nodes)
        if not result.feasible:
            self.gangs.record_rejection(request, self._clock())


def _list_requested_rails(request: scheduling_request.SchedulingRequest) -> frozenset[str]:
    """Return the resources of rails that the containers request, not those of claims."""
    requested = resources.compute_requests(request.spec)
    return frozenset([need.resource for need in request.needs if need.resource in requested])


def _render_rejections(result: engine.FilterResult) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return the messages of nodes that are filtered now, and of those that would be without any other pod."""
    messages = {
        node_class: rendering.render_for_scheduler(rejection.reason)
        for node_class, rejection in result.rejections.items()
    }
    unresolvable = {node_class for node_class, rejection in result.rejections.items() if rejection.is_unresolvable}
    if not unresolvable:
        return {name: messages[node_class] for name, node_class in result.rejected.items()}, {}
    by_finality: tuple[dict[str, str], dict[str, str]] = {}, {}
    for name, node_class in result.rejected.items():
        by_finality[node_class in unresolvable][name] = messages[node_class]
    return by_finality


def _format_scheduler(scope: str) -> str:
    return f"volcano/{scope}" if scope else "volcano"
