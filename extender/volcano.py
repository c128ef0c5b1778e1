"""Answers Volcano: prioritize, predicate, allocate, deallocate and session-close. Decodes, asks the decider, encodes.

Volcano sends each node with the free resources of its session, and announces what it places. So only its allocate,
deallocate and session-close requests change the assumed pods. Each of its instances has its own scope
(docs/interface.md 4.3).

The handler of prioritize is a generator: it yields while nodes and offers are read. The decision is made at once.
"""

from collections.abc import Sequence

import msgspec

from extender import decider, scheduling_requests, volcano_wire
from railwright.fabric.placement import scheduling_request
from railwright.fabric.placement.state import assumed_pods
from railwright.fabric.workloads import membership
from railwright.serving import turns

_FACTOR = 10.0  # that of binpack in Volcano's own example: locality outweighs the plugins that spread


class Volcano:
    """The handlers of Volcano's requests."""

    def __init__(self, deciding: decider.Decider) -> None:
        self._decider = deciding

    def prioritize(self, body: volcano_wire.Body) -> turns.Steps[bytes]:
        """POST /volcano/prioritize: scores of 0..100 times 10, because Volcano adds the raw scores of its plugins."""
        task, nodes = yield from volcano_wire.read_prioritize(body)
        request = self._build_request(task, list(nodes))
        if request is None:
            return volcano_wire.encode_priorities(dict.fromkeys(nodes, 0.0))
        offers = yield from scheduling_requests.build_offers(nodes, request.requests, self._decider.state)
        request = msgspec.structs.replace(request, offers=offers)
        decision = self._decider.score(request)
        scores = {name: score * _FACTOR for name, score in decision.scores.items()}
        return volcano_wire.encode_priorities(scores)

    def predicate(self, body: bytes) -> bytes:
        """POST /volcano/predicate: one node. Code 3 if the pod may not go there."""
        task, node = volcano_wire.read_predicate(body)
        request = self._build_request(task, [node])
        if request is None:
            return volcano_wire.encode_predicate_result("")
        refusals = self._decider.find_refusals(request).values()
        return volcano_wire.encode_predicate_result("".join([f"railwright: {refusal.text}" for refusal in refusals]))

    def allocate(self, body: bytes, scope: str) -> bytes:
        """POST /volcano/allocate: assume a task that Volcano has placed tentatively."""
        task, state = volcano_wire.read_event(body), self._decider.state
        bound = state.cluster.pods.get(task.uid)
        if task.node_name and not (bound and bound.node):
            self._assume(self._build_entry(task), scope)
        return volcano_wire.EVENT_ACCEPTED

    def deallocate(self, body: bytes) -> bytes:
        """POST /volcano/deallocate: forget a task whose placement is rolled back. A bound pod still counts."""
        uid, assumed = volcano_wire.read_removal(body).uid, self._decider.state.assumed
        if (assumed_pod := assumed.get(uid)) is not None:
            self._decider.memory = self._decider.memory.drop_reservations([assumed_pod.gang])
        assumed.forget(uid)
        return volcano_wire.EVENT_ACCEPTED

    def close_session(self, body: bytes, scope: str) -> bytes:
        """POST /volcano/session-close: forget pipelined tasks. Allocated tasks wait for their binding."""
        volcano_wire.read_close(body)
        self._decider.state.assumed.end_session(scope, self._decider.clock())
        return volcano_wire.EMPTY_OBJECT

    def _build_request(
        self, task: volcano_wire.Task, nodes: Sequence[str]
    ) -> scheduling_request.SchedulingRequest | None:
        return scheduling_requests.build_volcano_request(task, nodes, self._decider.policy(), self._decider.state)

    def _assume(self, assumed_pod: assumed_pods.AssumedPod, scope: str) -> None:
        """Assume a pod. What it requests is what the API server shows, not what the caller says."""
        cluster, assumed = self._decider.state.cluster, self._decider.state.assumed
        known = cluster.pods.get(assumed_pod.uid)
        if known is None:
            assumed.assume_unseen(assumed_pod, scope, len(cluster.pods))
        else:
            assumed.assume(msgspec.structs.replace(assumed_pod, requests=known.requests), scope)

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
