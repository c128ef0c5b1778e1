"""Handles the requests of both schedulers: decodes, decides, encodes. Never awaits, and takes the clock as an argument.

A filter or prioritize request never assumes a pod, because schedulers dry-run and roll back. Only Volcano's allocate,
deallocate and session-close requests change the assumed pods.
"""

from collections.abc import Callable, Mapping

import msgspec

from extender import (
    explanations,
    gang_tracker,
    inferred_bindings,
    kube_wire,
    scheduling_requests,
    sessions,
    trace_steps,
    volcano_wire,
)
from extender import state as states
from railwright.fabric import resources, views, workload
from railwright.fabric.placement import ask, decide, ledger
from railwright.fabric.policy import model
from railwright.serving import tracing as traces

Observe = Callable[[str, int, int], None]
"""Called after every decision with (verb, number of candidate nodes, number of those missing in the cache)."""


class Schedulers:
    """The handlers of all scheduling requests. They use this process's state and the policy in force."""

    def __init__(
        self,
        state: states.State,
        policy: Callable[[], model.Policy | None],
        *,
        clock: Callable[[], float],
        observe: Observe,
        tracing: traces.Tracing = traces.OFF,
    ) -> None:
        self._state = state
        self._policy = policy
        self._clock = clock
        self._observe = observe
        self._engine = decide.Desk(state.fleet, state.ledger)
        self._steps = trace_steps.build_steps(tracing, self._engine, state.ledger)
        self._reset()

    def forget(self) -> None:
        """Forget everything but the cluster state, as a restart does."""
        for entry in list(self._state.ledger):
            self._state.ledger.deallocate(entry.uid)
        self._reset()

    def forget_sessions(self) -> None:
        """Call after an outage: running sessions may have started before this process could observe them."""
        self._sessions = sessions.Sessions()

    def _reset(self) -> None:
        self.forget_sessions()
        self._inferred_bindings = inferred_bindings.InferredBindings()
        self.explanations = explanations.Explanations()
        self.gangs = gang_tracker.Gangs(self._state, self._engine, self.explanations.get_evaluation)

    def warm(self) -> None:
        """Update caches between requests, so that the next request is fast."""
        if (policy := self._policy()) is not None:
            self._engine.warm(policy.document)

    # --- kube-scheduler -------------------------------------------------------------------------------

    def filter(self, body: bytes) -> bytes:
        """POST /scheduler/filter."""
        return self.filter_nodes(body)[0]

    def filter_nodes(self, body: bytes) -> tuple[bytes, bool]:
        """Return the answer of filter, and True if it rejects every candidate node."""
        pod, nodes = self._steps.read(body)
        request = self._steps.from_kube(pod, nodes, self._policy(), self._state.pools)
        if request is None:
            return kube_wire.encode_filter_result(nodes, {}, {}), False
        filter_call = self._build_filter_call(request, kube_wire.read_constraints(body))
        self._inferred_bindings.record_call(filter_call, self._state.fleet)
        result = self._steps.filter(request)
        feasible = filter_call.offered if len(result.kept) == len(filter_call.offered) else frozenset(result.kept)
        self._inferred_bindings.record_feasible(msgspec.structs.replace(filter_call, feasible=feasible))
        self._observe("filter", len(nodes), result.unknown)
        self._record_filter_result("kube-scheduler", request, result)
        return kube_wire.encode_filter_result(result.kept, result.busy, result.never), bool(nodes) and not result.kept

    def prioritize(self, body: bytes) -> bytes:
        """POST /scheduler/prioritize."""
        pod, nodes = self._steps.read(body)
        request = self._steps.from_kube(pod, nodes, self._policy(), self._state.pools)
        if request is None:
            return kube_wire.encode_priorities(dict.fromkeys(nodes, 0.0))
        with self._inferred_bindings.assume_inferred(self._state.ledger, self._state.fleet, self._clock()):
            scores = self._decide("kube-scheduler", "prioritize", request).scores
        return kube_wire.encode_priorities(scores)

    # --- Volcano --------------------------------------------------------------------------------------

    def volcano_prioritize(self, body: bytes, scope: str) -> bytes:
        """POST /volcano/prioritize: scores of 0..100 times the policy's scale, because Volcano adds raw scores."""
        task, nodes = self._steps.read_prioritize(body)
        request = self._steps.from_volcano(
            task, nodes, self._policy(), self._state, scope=scope, inferred=self._get_inferred(task.uid), evicting=True
        )
        if request is None:
            return volcano_wire.encode_priorities(dict.fromkeys((node.name for node in nodes), 0.0))
        scores = self._decide(_format_scheduler(scope), "prioritize", request).scores
        scale = request.fabric.placement.scale
        return volcano_wire.encode_priorities({name: score * scale for name, score in scores.items()})

    def volcano_predicate(self, body: bytes, scope: str) -> bytes:
        """POST /volcano/predicate: one node. Code 2 if a rail has no free device, 3 if the node never has one."""
        task, node = self._steps.read_predicate(body)
        request = self._steps.from_volcano(
            task, [node], self._policy(), self._state, scope=scope, inferred=self._get_inferred(task.uid)
        )
        if request is None:
            self._observe("predicate", 1, 0)
            return volcano_wire.encode_predicate_result("", unresolvable=False)
        result = self._steps.filter(request)
        self._observe("predicate", 1, result.unknown)
        self._record_filter_result(_format_scheduler(scope), request, result)
        refusal = result.busy.get(node.name) or result.never.get(node.name, "")
        return volcano_wire.encode_predicate_result(refusal, unresolvable=node.name in result.never)

    def volcano_allocate(self, body: bytes, scope: str) -> bytes:
        """POST /volcano/allocate: assume a task that Volcano has placed tentatively."""
        task = self._steps.read_event(body)
        bound = self._state.fleet.pods.get(task.uid)
        if task.node_name and not (bound and bound.node):
            entry = self._build_entry(task)
            if self._sessions.check_rejection(scope, entry, self._state.fleet, self._state.ledger):
                return volcano_wire.EVENT_SESSION_UNKNOWN
            if conflict := self._find_conflict(entry, task.pod, scope):
                return volcano_wire.encode_rejection(conflict)
            self._steps.allocate(entry, scope)
        return volcano_wire.EVENT_ACCEPTED

    def volcano_deallocate(self, body: bytes, scope: str) -> bytes:
        """POST /volcano/deallocate: forget a task whose placement is rolled back. A bound pod still counts."""
        del scope  # a uid is assumed once, in any scope
        uid = self._steps.read_event(body).uid
        if (entry := self._state.ledger.entry(uid)) is not None:
            self._engine.taken_back(entry.gang)
        self._steps.deallocate(uid)
        return volcano_wire.EVENT_ACCEPTED

    def volcano_close(self, body: bytes, scope: str) -> bytes:
        """POST /volcano/session-close: forget pipelined tasks. Allocated tasks wait for their binding."""
        volcano_wire.read_close(body)
        self._sessions.end(scope)
        self._state.ledger.close(scope, self._clock())
        self.gangs.end_session()
        return volcano_wire.NOTHING

    def _find_conflict(self, entry: ledger.Entry, pod: views.Pod | None, scope: str) -> str:
        if entry.state is not ledger.State.ALLOCATED or pod is None:
            return ""
        return scheduling_requests.find_conflict(
            entry, pod, self._policy(), self._state, scope=scope, inferred=self._get_inferred(entry.uid)
        )

    def _get_inferred(self, uid: str) -> Mapping[str, resources.Amounts]:
        """Return by node the requests of pods, except `uid`, that kube-scheduler is very likely placing there."""
        return self._inferred_bindings.sum_requests(self._state.fleet, self._clock(), except_uid=uid)

    def _build_entry(self, task: volcano_wire.Task) -> ledger.Entry:
        pod = task.pod
        return ledger.Entry(
            uid=task.uid,
            key=f"{task.namespace}/{task.name}",
            gang=workload.gang_of(pod, task.job) if pod else workload.GangKey(task.job),
            rank=workload.rank_of(pod) if pod else workload.Rank(role=1, index=0, name=task.name),
            node=task.node_name,
            requests=scheduling_requests.get_requests(task),
            state=ledger.State.PIPELINED if task.status == volcano_wire.PIPELINED else ledger.State.ALLOCATED,
            since=self._clock(),
        )

    def _build_filter_call(self, request: ask.Ask, constraints: kube_wire.Constraints) -> inferred_bindings.FilterCall:
        entry = ledger.Entry(
            uid=request.uid,
            key=request.key,
            gang=request.gang,
            rank=request.rank,
            node="",
            requests=request.requests,
            state=ledger.State.UNCONFIRMED,
            since=self._clock(),
        )
        return inferred_bindings.FilterCall(
            entry=entry,
            scheduler=request.spec.scheduler_name,
            spec=ask.slim(request.spec),
            constraints=constraints,
            offered=frozenset(request.nodes),
        )

    def _decide(self, scheduler: str, verb: str, request: ask.Ask) -> decide.Decision:
        decision = self._steps.prioritize(request)
        self._observe(verb, len(request.nodes), decision.unknown)
        self.explanations.record_decision(scheduler, request, decision)
        self.gangs.record_decision(request, decision, self._clock())
        return decision

    def _record_filter_result(self, scheduler: str, request: ask.Ask, result: decide.Screening) -> None:
        self.explanations.record_filter_result(scheduler, request, result)
        if not result.kept:
            self.gangs.record_rejection(request, self._clock())


def _format_scheduler(scope: str) -> str:
    return f"volcano/{scope}" if scope else "volcano"
