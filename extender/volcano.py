"""Answers Volcano: prioritize, predicate, allocate, deallocate and session-close. Decodes, asks the decider, encodes.

Volcano announces what it places by allocate, deallocate and session-close. A later prioritize or predicate for such a
pod shows that its gang was not bound (`forget_retried_gang`). Each instance of Volcano has its own scope
(docs/interface.md 4.3).
"""

from collections.abc import Sequence

import msgspec

from extender import decider, volcano_wire
from railwright.fabric.placement import scheduling_request
from railwright.fabric.placement.state import assumed_pods

_FACTOR = 10.0  # that of binpack in Volcano's own example: locality outweighs the plugins that spread


class Volcano:
    """The handlers of Volcano's requests."""

    def __init__(self, deciding: decider.Decider) -> None:
        self._decider = deciding

    def prioritize(self, body: volcano_wire.PrioritizeBody) -> bytes:
        """Answer POST /volcano/prioritize: scores of 0..100, times 10 to outweigh those of Volcano's plugins."""
        task, nodes = body.read()
        request = self._build_request(task, nodes)
        if request is None:
            return volcano_wire.encode_priorities(dict.fromkeys(nodes, 0.0))
        # Volcano does not count what kube-scheduler may be about to place: each scheduler counts its own
        self._decider.scored.forget(self._decider.clock(), request)
        decision = self._decider.score(request)
        scores = {name: score * _FACTOR for name, score in decision.scores.items()}
        return volcano_wire.encode_priorities(scores)

    def predicate(self, body: bytes) -> bytes:
        """Answer POST /volcano/predicate: code 0 if the pod may use the node, 3 if the node is refused."""
        task, node = volcano_wire.read_predicate(body)
        request = self._build_request(task, [node])
        if request is None:
            return volcano_wire.encode_predicate_result("")
        refusals = self._decider.find_refusals(request).values()
        return volcano_wire.encode_predicate_result("".join([f"railwright: {refusal.text}" for refusal in refusals]))

    def allocate(self, body: bytes, scope: str) -> bytes:
        """Answer POST /volcano/allocate: assume the pod of a placed task, if the watch has shown the pod."""
        task, cluster = volcano_wire.read_event(body), self._decider.state.cluster
        pod, node = cluster.pods.get(task.uid), cluster.nodes.get(task.node_name)
        if pod is None or pod.node or not task.node_name:
            return volcano_wire.EVENT_ACCEPTED
        is_pipelined = task.status == volcano_wire.PIPELINED
        assumed_pod = assumed_pods.AssumedPod(
            uid=pod.uid,
            key=pod.key,
            gang=pod.gang,
            rank=pod.rank,
            node=task.node_name if node is None else node.name,  # one object, which is found faster
            requests=pod.requests,
            state=assumed_pods.State.PIPELINED if is_pipelined else assumed_pods.State.ALLOCATED,
            since=self._decider.clock(),
            scope=scope,
        )
        cluster.assumed.assume(assumed_pod)
        return volcano_wire.EVENT_ACCEPTED

    def deallocate(self, body: bytes) -> bytes:
        """Answer POST /volcano/deallocate: forget a task whose placement was rolled back. A bound pod still counts."""
        self._decider.state.assumed.forget(volcano_wire.read_event(body).uid)
        return volcano_wire.EVENT_ACCEPTED

    def close_session(self, body: bytes, scope: str) -> bytes:
        """Answer POST /volcano/session-close: forget pipelined tasks. Allocated tasks wait for their binding."""
        volcano_wire.check_session_close(body)
        self._decider.state.assumed.end_session(scope, self._decider.clock())
        return volcano_wire.EMPTY_OBJECT

    def _build_request(
        self, task: volcano_wire.Task, nodes: Sequence[str]
    ) -> scheduling_request.SchedulingRequest | None:
        """Return the request for a task. Volcano's node contents are ignored: they only repeat its announcements."""
        if task.pod is None:
            return None
        state = self._decider.state
        state.assumed.forget_retried_gang(task.uid)
        request = scheduling_request.build_request(
            task.pod,
            self._decider.policy(),
            state.pools,
            nodes,
            requests=state.cluster.compute_requests(task.pod),
            volcano_job=task.job,
            uid=task.uid,
            is_announced=True,
        )
        if request is None or not state.cluster.sizes.is_confined(request.gang):
            return request
        return msgspec.structs.replace(request, is_confined=True)
