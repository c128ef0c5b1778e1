"""Answers Volcano: prioritize, predicate, allocate, deallocate and session-close. Decodes, asks the decider, encodes.

Volcano sends each node with the free resources of its session, and announces what it places. So only its allocate,
deallocate and session-close requests change the assumed pods. Each of its instances has its own scope
(docs/interface.md 4.3).

Handlers that decide are generators: they yield while nodes are evaluated for a new kind of pod, and prioritize, which
sends every node, also between slices of the body. The decision itself is made at once.
"""

from collections.abc import Mapping

import msgspec

from extender import decider, scheduling_requests, volcano_wire
from railwright.fabric import resources, views
from railwright.fabric.placement import scheduling_request
from railwright.fabric.placement.state import assumed_pods
from railwright.fabric.reasons import reason, rendering
from railwright.fabric.reasons.codes import Code
from railwright.fabric.workloads import membership
from railwright.serving import turns


class Volcano:
    """The handlers of Volcano's requests."""

    def __init__(self, deciding: decider.Decider) -> None:
        self._decider = deciding

    def prioritize(self, body: bytes, scope: str, reader: volcano_wire.NodeReader | None = None) -> turns.Steps[bytes]:
        """POST /volcano/prioritize: scores of 0..100 times the policy's scale, because Volcano adds raw scores.

        `reader` has read a part of the body while it arrived.
        """
        task, nodes = yield from volcano_wire.read_prioritize(body, reader)
        request = yield from self._build_request(task, nodes, scope, evicting=True)
        if request is None:
            return volcano_wire.encode_priorities(dict.fromkeys(nodes, 0.0))
        index = yield from self._decider.prepare(request, plans=True)
        decision = self._decider.score(_format_scheduler(scope), request, index)
        self._decider.observe("prioritize", len(request.nodes), decision.unknown_nodes)
        return volcano_wire.encode_priorities(decision.node_scores.list_all(request.fabric.placement.scale))

    def predicate(self, body: bytes, scope: str) -> turns.Steps[bytes]:
        """POST /volcano/predicate: one node. Code 2 if a rail has no free device, 3 if the node never has one."""
        task, nodes = volcano_wire.read_predicate(body)
        request = yield from self._build_request(task, nodes, scope)
        if request is None:
            self._decider.observe("predicate", 1, 0)
            return volcano_wire.encode_predicate_result("", unresolvable=False)
        index = yield from self._decider.prepare(request)
        result = self._decider.filter(_format_scheduler(scope), "predicate", request, index)
        for rejection in result.rejections.values():  # at most one, of the one node
            message = rendering.render_for_scheduler(rejection.reason)
            return volcano_wire.encode_predicate_result(message, unresolvable=rejection.is_unresolvable)
        return volcano_wire.encode_predicate_result("", unresolvable=False)

    def allocate(self, body: bytes, scope: str) -> bytes:
        """POST /volcano/allocate: assume a task that Volcano has placed tentatively."""
        task, state = volcano_wire.read_event(body), self._decider.state
        self._decider.asked.record(task.uid, _format_scheduler(scope), self._decider.clock())
        bound = state.cluster.pods.get(task.uid)
        if task.node_name and not (bound and bound.node):
            assumed_pod = self._build_entry(task)
            if self._decider.sessions.check_rejection(scope, assumed_pod, state.cluster, state.assumed):
                self._decider.count_rejected(Code.SESSION_UNKNOWN, 1)
                return volcano_wire.encode_rejection(rendering.render(reason.make(Code.SESSION_UNKNOWN)))
            if conflict := self._find_conflict(assumed_pod, task.pod, scope):
                self._decider.count_rejected(conflict.code, 1)
                return volcano_wire.encode_rejection(rendering.render_for_scheduler(conflict))
            self._assume(assumed_pod, scope)
        return volcano_wire.EVENT_ACCEPTED

    def deallocate(self, body: bytes, scope: str) -> bytes:
        """POST /volcano/deallocate: forget a task whose placement is rolled back. A bound pod still counts."""
        del scope  # a uid is assumed once, in any scope
        uid, assumed = volcano_wire.read_removal(body).uid, self._decider.state.assumed
        if (assumed_pod := assumed.get(uid)) is not None:
            self._decider.drop_reservations(assumed_pod.gang)
        assumed.forget(uid)
        return volcano_wire.EVENT_ACCEPTED

    def close_session(self, body: bytes, scope: str) -> bytes:
        """POST /volcano/session-close: forget pipelined tasks. Allocated tasks wait for their binding."""
        volcano_wire.read_close(body)
        self._decider.sessions.end(scope)
        self._decider.state.assumed.end_session(scope, self._decider.clock())
        self._decider.gangs.end_session()
        return volcano_wire.EMPTY_OBJECT

    def _build_request(
        self, task: volcano_wire.Task, nodes: volcano_wire.Nodes, scope: str, *, evicting: bool = False
    ) -> turns.Steps[scheduling_request.SchedulingRequest | None]:
        request = yield from scheduling_requests.build_volcano_request(
            task,
            nodes,
            self._decider.policy(),
            self._decider.state,
            scope=scope,
            inferred=self._sum_unseen(task.uid),
            evicting=evicting,
        )
        self._decider.note_request(request)
        return request

    def _assume(self, assumed_pod: assumed_pods.AssumedPod, scope: str) -> None:
        """Assume a pod. What it requests is what the API server shows, not what the caller says."""
        cluster, assumed = self._decider.state.cluster, self._decider.state.assumed
        known = cluster.pods.get(assumed_pod.uid)
        if known is None:
            assumed.assume_unseen(assumed_pod, scope, len(cluster.pods))
        else:
            assumed.assume(msgspec.structs.replace(assumed_pod, requests=known.requests), scope)

    def _find_conflict(
        self, assumed_pod: assumed_pods.AssumedPod, pod: views.Pod | None, scope: str
    ) -> reason.Reason | None:
        if assumed_pod.state is not assumed_pods.State.ALLOCATED or pod is None:
            return None
        return scheduling_requests.find_conflict(
            assumed_pod,
            pod,
            self._decider.policy(),
            self._decider.state,
            scope=scope,
            inferred=self._sum_unseen(assumed_pod.uid),
        )

    def _sum_unseen(self, uid: str) -> Mapping[str, resources.Amounts]:
        """Return by node the requests of pods, except `uid`, that kube-scheduler is very likely placing there."""
        return self._decider.unseen.sum_requests(self._decider.state.cluster, self._decider.clock(), except_uid=uid)

    def _build_entry(self, task: volcano_wire.Task) -> assumed_pods.AssumedPod:
        pod, is_pipelined = task.pod, task.status == volcano_wire.PIPELINED
        node = self._decider.state.cluster.nodes.get(task.node_name)
        return assumed_pods.AssumedPod(
            uid=task.uid,
            key=f"{task.namespace}/{task.name}",
            gang=membership.find_gang(pod, task.job) if pod else membership.GangKey(task.job),
            rank=membership.find_rank(pod) if pod else membership.Rank(role=1, index=0, name=task.name),
            node=task.node_name if node is None else node.name,  # one object, which is found faster
            requests=scheduling_requests.get_requests(task, self._decider.state.cluster),
            state=assumed_pods.State.PIPELINED if is_pipelined else assumed_pods.State.ALLOCATED,
            since=self._decider.clock(),
        )


def _format_scheduler(scope: str) -> str:
    return f"volcano/{scope}" if scope else "volcano"
