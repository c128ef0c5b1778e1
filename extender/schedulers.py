"""The verbs of both schedulers: bytes in, one decision, bytes out. No await, no clock of its own.

A filter or prioritize call never commits anything: schedulers dry-run and roll back. Only Volcano's allocate and
deallocate events touch the ledger.
"""

from collections.abc import Callable, Mapping

import msgspec

from extender import asks, explain, gangs, kube_wire, sessions, traced, unseen, volcano_wire
from extender import state as states
from railwright.fabric import resources, views, workload
from railwright.fabric.placement import ask, decide, ledger
from railwright.fabric.policy import model
from railwright.serving import tracing as traces

Counted = Callable[[str, int, int], None]
"""Called with (verb, nodes judged, of them unknown to the cache) after every decision."""


class Schedulers:
    """The handlers, over the state of this process and the policy in force."""

    def __init__(
        self,
        state: states.State,
        policy: Callable[[], model.Policy | None],
        *,
        clock: Callable[[], float],
        counted: Counted,
        tracing: traces.Tracing = traces.OFF,
    ) -> None:
        self._state = state
        self._policy = policy
        self._clock = clock
        self._counted = counted
        self._desk = decide.Desk(state.fleet, state.ledger)
        self._steps = traced.steps(tracing, self._desk, state.ledger)
        self._begin()

    def forget(self) -> None:
        """As after a restart: what schedulers have told is gone, what the cluster shows stays."""
        for entry in list(self._state.ledger):
            self._state.ledger.deallocate(entry.uid)
        self._begin()

    def interrupted(self) -> None:
        """For a while schedulers were not answered: a session that runs now is not known from its start."""
        self._sessions = sessions.Sessions()

    def _begin(self) -> None:
        self.interrupted()
        self._unseen = unseen.Unseen()
        self.explanations = explain.Explanations()
        self.gangs = gangs.Gangs(self._state, self._desk, self.explanations.standing)

    def warm(self) -> None:
        """Work out between requests what the next one would have to."""
        if (policy := self._policy()) is not None:
            self._desk.warm(policy.document)

    # --- kube-scheduler -------------------------------------------------------------------------------

    def filter(self, body: bytes) -> bytes:
        """POST /scheduler/filter."""
        return self.judge(body)[0]

    def judge(self, body: bytes) -> tuple[bytes, bool]:
        """The answer of filter, and whether it refuses every node there was."""
        pod, nodes = self._steps.read(body)
        question = self._steps.from_kube(pod, nodes, self._policy(), self._state.pools)
        if question is None:
            return kube_wire.filtered(nodes, {}, {}), False
        asked = self._asked(question, kube_wire.read_constraints(body))
        self._unseen.asked(asked, self._state.fleet)
        found = self._steps.filter(question)
        left = asked.offered if len(found.kept) == len(asked.offered) else frozenset(found.kept)
        self._unseen.left(msgspec.structs.replace(asked, left=left))
        self._counted("filter", len(nodes), found.unknown)
        self._screened("kube-scheduler", question, found)
        return kube_wire.filtered(found.kept, found.busy, found.never), bool(nodes) and not found.kept

    def prioritize(self, body: bytes) -> bytes:
        """POST /scheduler/prioritize."""
        pod, nodes = self._steps.read(body)
        question = self._steps.from_kube(pod, nodes, self._policy(), self._state.pools)
        if question is None:
            return kube_wire.prioritized(dict.fromkeys(nodes, 0.0))
        with self._unseen.counted(self._state.ledger, self._state.fleet, self._clock()):
            scores = self._decide("kube-scheduler", "prioritize", question).scores
        return kube_wire.prioritized(scores)

    # --- Volcano --------------------------------------------------------------------------------------

    def volcano_prioritize(self, body: bytes, scope: str) -> bytes:
        """POST /volcano/prioritize: scores of 0..100 times the policy's scale, for Volcano adds raw scores."""
        task, nodes = self._steps.read_prioritize(body)
        question = self._steps.from_volcano(
            task, nodes, self._policy(), self._state, scope=scope, inferred=self._inferred(task.uid), evicting=True
        )
        if question is None:
            return volcano_wire.prioritized(dict.fromkeys((node.name for node in nodes), 0.0))
        scores = self._decide(_volcano(scope), "prioritize", question).scores
        scale = question.fabric.placement.scale
        return volcano_wire.prioritized({name: score * scale for name, score in scores.items()})

    def volcano_predicate(self, body: bytes, scope: str) -> bytes:
        """POST /volcano/predicate: one node; 2 where a rail is busy, 3 where the node can never give it."""
        task, node = self._steps.read_predicate(body)
        question = self._steps.from_volcano(
            task, [node], self._policy(), self._state, scope=scope, inferred=self._inferred(task.uid)
        )
        if question is None:
            self._counted("predicate", 1, 0)
            return volcano_wire.predicated("", unresolvable=False)
        found = self._steps.filter(question)
        self._counted("predicate", 1, found.unknown)
        self._screened(_volcano(scope), question, found)
        refusal = found.busy.get(node.name) or found.never.get(node.name, "")
        return volcano_wire.predicated(refusal, unresolvable=node.name in found.never)

    def volcano_allocate(self, body: bytes, scope: str) -> bytes:
        """POST /volcano/allocate: the scheduler placed a task, tentatively."""
        task = self._steps.read_event(body)
        bound = self._state.fleet.pods.get(task.uid)
        if task.node_name and not (bound and bound.node):
            entry = self._entry(task)
            if self._sessions.sends_back(scope, entry, self._state.fleet, self._state.ledger):
                return volcano_wire.EVENT_SENT_BACK
            if lost := self._given_away(entry, task.pod, scope):
                return volcano_wire.sent_back(lost)
            self._steps.allocate(entry, scope)
        return volcano_wire.EVENT_TAKEN

    def volcano_deallocate(self, body: bytes, scope: str) -> bytes:
        """POST /volcano/deallocate: it took the placement back; a bound pod stays counted till it ends."""
        del scope  # a uid is placed once, whoever placed it
        uid = self._steps.read_event(body).uid
        if (entry := self._state.ledger.entry(uid)) is not None:
            self._desk.taken_back(entry.gang)
        self._steps.deallocate(uid)
        return volcano_wire.EVENT_TAKEN

    def volcano_close(self, body: bytes, scope: str) -> bytes:
        """POST /volcano/session-close: what was pipelined is void, what was allocated awaits its binding."""
        volcano_wire.read_close(body)
        self._sessions.ended(scope)
        self._state.ledger.close(scope, self._clock())
        self.gangs.closed()
        return volcano_wire.NOTHING

    def _given_away(self, entry: ledger.Entry, pod: views.Pod | None, scope: str) -> str:
        if entry.state is not ledger.State.ALLOCATED or pod is None:
            return ""
        return asks.given_away(entry, pod, self._policy(), self._state, scope=scope, inferred=self._inferred(entry.uid))

    def _inferred(self, asking: str) -> Mapping[str, resources.Amounts]:
        """By node, what other pods than the asking one take that kube-scheduler is very likely placing there."""
        return self._unseen.taken(self._state.fleet, self._clock(), but=asking)

    def _entry(self, task: volcano_wire.Task) -> ledger.Entry:
        pod = task.pod
        return ledger.Entry(
            uid=task.uid,
            key=f"{task.namespace}/{task.name}",
            gang=workload.gang_of(pod, task.job) if pod else workload.GangKey(task.job),
            rank=workload.rank_of(pod) if pod else workload.Rank(role=1, index=0, name=task.name),
            node=task.node_name,
            requests=asks.requested(task),
            state=ledger.State.PIPELINED if task.status == volcano_wire.PIPELINED else ledger.State.ALLOCATED,
            since=self._clock(),
        )

    def _asked(self, question: ask.Ask, constraints: kube_wire.Constraints) -> unseen.Asked:
        entry = ledger.Entry(
            uid=question.uid,
            key=question.key,
            gang=question.gang,
            rank=question.rank,
            node="",
            requests=question.requests,
            state=ledger.State.UNCONFIRMED,
            since=self._clock(),
        )
        return unseen.Asked(
            entry=entry,
            scheduler=question.spec.scheduler_name,
            spec=ask.slim(question.spec),
            constraints=constraints,
            offered=frozenset(question.nodes),
        )

    def _decide(self, scheduler: str, verb: str, question: ask.Ask) -> decide.Decision:
        decision = self._steps.prioritize(question)
        self._counted(verb, len(question.nodes), decision.unknown)
        self.explanations.decided(scheduler, question, decision)
        self.gangs.decided(question, decision, self._clock())
        return decision

    def _screened(self, scheduler: str, question: ask.Ask, found: decide.Screening) -> None:
        self.explanations.screened(scheduler, question, found)
        if not found.kept:
            self.gangs.refused(question, self._clock())


def _volcano(scope: str) -> str:
    return f"volcano/{scope}" if scope else "volcano"
