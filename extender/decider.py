"""Refuses and scores nodes for both schedulers, independent of their protocols.

The adapters (`kube_scheduler`, `volcano`) decode a scheduling request, call the decider, and encode the result. The
decider calls the placement engine, counts refusals, and stores the memory of gangs. Never awaits, and takes the clock
as an argument.
"""

from collections import Counter
from collections.abc import Callable, Mapping

from extender import state as states
from railwright.fabric.placement import decisions, engine, scheduling_request
from railwright.fabric.placement.gangs import gang_memory
from railwright.fabric.placement.state import assumed_pods, cluster_state
from railwright.fabric.policy import model
from railwright.fabric.reasons import reason

CountRejected = Callable[[str, int], None]
"""Counts refused nodes for metrics: (code of the reason, number of nodes)."""


class Decider:
    """Refuses and scores nodes by the cached cluster state and the current policy."""

    def __init__(
        self,
        state: states.State,
        policy: Callable[[], model.Policy | None],
        *,
        clock: Callable[[], float],
        count_rejected: CountRejected,
    ) -> None:
        self.state = state
        self.policy = policy
        self.clock = clock
        self.count_rejected = count_rejected
        self.engine = engine.PlacementEngine(state.cluster)
        self.scored = ScoredPods(state.cluster)
        self.memory = gang_memory.EMPTY

    def warm_caches(self) -> None:
        """Update the states of changed nodes in advance, to make the next request faster."""
        if (policy := self.policy()) is not None:
            self.engine.warm_caches(policy, self.state.pools)

    def find_refusals(self, request: scheduling_request.SchedulingRequest) -> Mapping[str, reason.Reason]:
        """Return the refused candidate nodes, each with the reason."""
        refusals = self.engine.find_refusals(request)
        for code, nodes in Counter(refusal.code for refusal in refusals.values()).items():
            self.count_rejected(code, nodes)
        return refusals

    def score(self, request: scheduling_request.SchedulingRequest) -> decisions.Decision:
        """Return the decision on a request: the plan of the gang, and the score of each candidate node."""
        decision = self.engine.score(request, self.memory)
        self.memory = decision.memory
        return decision


# --- pods that kube-scheduler may have placed ------------------------------------------------------------------

SCORED_SECONDS = 2.0  # on a busy machine a binding is seen after 0.03 s in the median, 99 % within 0.7 s


class ScoredPods:
    """The pods of kube-scheduler's latest requests, each counted on its best node for a short time.

    kube-scheduler announces no placements, and sends the request for the next pod before the previous binding is
    written. So a pod counts on the node with its best score, or on the only node that filter returned. It stops
    counting when the watch shows it, after two seconds, or when the node is offered again: an offered node either does
    not have the pod, or has room beside it. A pod of a segment counts even if its node is offered again, because it may
    be on another node of the domain. Only plans and scores depend on scored pods, and the NVLink domain of a segment.
    """

    def __init__(self, cluster: cluster_state.ClusterState) -> None:
        self._cluster, self._assumed = cluster, cluster.assumed
        self._pods: dict[str, assumed_pods.AssumedPod] = {}  # by UID, the oldest first

    def assume(
        self, request: scheduling_request.SchedulingRequest, node: str, now: float, *, is_confined: bool = False
    ) -> None:
        """Assume the pod of a request on a node, unless Volcano has announced the pod.

        `is_confined`: filter returned only nodes of this node's NVLink domain.

        Callers are not always authenticated, so only pods that the watch has shown are assumed.
        """
        known = self._assumed.get(request.uid)
        if (known is not None and known is not self._pods.get(request.uid)) or request.uid not in self._cluster.pods:
            return
        pod = self._pods[request.uid] = assumed_pods.AssumedPod(
            uid=request.uid,
            key=f"{request.namespace}/{request.name}",
            gang=request.gang,
            rank=request.rank,
            node=node,
            requests=request.requests,
            state=assumed_pods.State.CONFINED if is_confined else assumed_pods.State.SCORED,
            since=now,
        )
        self._assumed.assume(pod)

    def forget(self, now: float, request: scheduling_request.SchedulingRequest | None = None) -> None:
        """Stop counting scored pods that expired, whose node is offered again, or that are scheduled again.

        A node that is offered again does not hold the pod, or has room beside it; pods of a segment still count there.
        `request` starts an attempt to schedule a pod: filter of kube-scheduler, or prioritize of Volcano. If its pod is
        still remembered, the attempt before has failed, maybe for the whole gang, so the gang's scored pods stop
        counting too: kube-scheduler releases all pods of a gang that starts as a whole, or tries another domain.
        """
        offered = frozenset[str]() if request is None else request.offered
        back = self._pods.get(request.uid) if request is not None else None
        for uid, pod in list(self._pods.items()):
            is_back = back is not None and (pod is back or (pod.gang and pod.gang == back.gang))
            is_over = is_back or now - pod.since > SCORED_SECONDS
            if is_over:
                del self._pods[uid]
            is_elsewhere = pod.node in offered and pod.state is assumed_pods.State.SCORED
            if (is_over or is_elsewhere) and self._assumed.get(uid) is pod:
                self._assumed.forget(uid)
