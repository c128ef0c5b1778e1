"""Expects pods of gangs on the nodes that the extender scored best for kube-scheduler, until their place is observed.

kube-scheduler decides pod after pod, and asks for the next one before the allocation and the binding of the last are
seen. Most pods of a gang go to one of the best nodes of the leaf that is planned for them. Such a pod counts on one of
these, so that its gang's plan has one slot less to fill, and other gangs do not get the slot. Which of the nodes it is
does not matter to a plan, because they are equal.

An expectation only changes scores. It never removes a node from a filter. It ends after a second, or as soon as the pod
is observed, deleted or tried again. A node is not expected that its scheduler offers to a pod that would not fit there
too.
"""

from collections import Counter
from collections.abc import Sequence

import msgspec

from railwright.fabric.placement import engine, scheduling_request
from railwright.fabric.placement.state import assumed_pods, cluster_state, pod_usage
from railwright.fabric.workloads import membership

EXPECTED_SECONDS = 1.0  # an allocation is seen after 0.03 s in the median, 99 % within 0.7 s (make bench-claim-view)
_SAME_PRIORITY = 0.25  # scores that differ by less get one integer of kube-scheduler (`placement.nodes.priorities`)
_NOTHING: Counter[str] = Counter()
_MAX_PODS = 200  # pods that kube-scheduler places within EXPECTED_SECONDS


class _Expected(msgspec.Struct, frozen=True):
    """A pod, and the equal nodes of which it very likely goes to one."""

    pod: assumed_pods.AssumedPod
    nodes: tuple[str, ...]
    scheduler: str
    below: int | None  # pods of lower priority count as removed; None except for pods of a PodGroup


class ExpectedNodes:
    """The pods that kube-schedulers are very likely placing on the best nodes."""

    def __init__(self) -> None:
        self._expected: dict[str, _Expected] = {}  # by uid, the oldest first

    def forget(self, uid: str) -> None:
        """Forget a pod: it is tried again, or its node is known."""
        self._expected.pop(uid, None)

    def forget_gang(self, gang: membership.GangKey) -> None:
        """Forget the pods of a gang that is tried again."""
        self._expected = {uid: entry for uid, entry in self._expected.items() if entry.pod.gang != gang}

    def record_decision(
        self,
        request: scheduling_request.SchedulingRequest,
        entry: assumed_pods.AssumedPod,
        decision: engine.Decision,
    ) -> None:
        """Record the scores of a pod's candidate nodes. `entry` is the pod without a node."""
        self.forget(entry.uid)
        nodes = decision.list_best_planned(_SAME_PRIORITY) if entry.gang else ()
        if nodes:
            below = None if request.preemption is None else request.preemption.simulated_below
            self._expected[entry.uid] = _Expected(entry, nodes, request.spec.scheduler_name, below)
        if len(self._expected) > _MAX_PODS:
            del self._expected[next(iter(self._expected))]

    def list_pods(
        self,
        request: scheduling_request.SchedulingRequest,
        cluster: cluster_state.ClusterState,
        now: float,
        inferred: Sequence[assumed_pods.AssumedPod],
    ) -> Sequence[assumed_pods.AssumedPod]:
        """Return the pods to count as placed for a request: the `inferred` ones, and each expected one on a node."""
        self._expected = {uid: entry for uid, entry in self._expected.items() if _is_open(entry.pod, cluster, now)}
        known = {request.uid, *(pod.uid for pod in inferred)}
        expected = [entry for uid, entry in self._expected.items() if uid not in known]
        if not expected:
            return inferred
        offered = set(request.nodes)
        pods = list(inferred)
        taken: dict[str, Counter[str]] = {}
        for pod in inferred:
            taken.setdefault(pod.node, Counter()).update(pod.requests)
        for entry in expected:
            needed = entry.pod.requests
            both = Counter(needed)
            both.update(request.requests)
            is_own = entry.scheduler == request.spec.scheduler_name
            for node in entry.nodes:
                others = taken.get(node, _NOTHING)
                if not pod_usage.has_room(cluster, node, needed, taken=others, below=entry.below):
                    continue
                if (
                    is_own
                    and node in offered
                    and not pod_usage.has_room(cluster, node, both, taken=others, below=entry.below)
                ):
                    continue  # the scheduler would not offer it
                taken.setdefault(node, Counter()).update(needed)
                pods.append(msgspec.structs.replace(entry.pod, node=node))
                break
        return pods


def _is_open(pod: assumed_pods.AssumedPod, cluster: cluster_state.ClusterState, now: float) -> bool:
    """True if the pod's place is not known yet: neither bound, nor with an allocated claim, nor deleted."""
    known = cluster.pods.get(pod.uid)
    if known is None or known.node or now - pod.since > EXPECTED_SECONDS:
        return False
    return not cluster.claimed.inventory.has_allocated(pod.uid, known.claim_names)
