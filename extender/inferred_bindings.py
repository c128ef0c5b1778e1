"""Infers where kube-scheduler has placed pods whose binding the watch has not delivered yet.

kube-scheduler announces no placements, and sends the request for the next pod before the previous binding is written.
But it does not offer a full node to the next pod: if exactly one node was offered to the previous pod and not to the
next, and nothing else explains that, the previous pod went there. Other explanations are: the two pods differ or belong
to different schedulers, time has passed, the offer is a sample, another pod was observed on the node, or the node is
not eligible any more. An inference is valid for seconds, and ends when another pod is observed in the same place. Gangs
are planned with it, and Volcano does not get the same devices. It never removes nodes from kube-scheduler's own filter.

kube-scheduler places a PodGroup in one cycle, which it may simulate: once for each topology domain, and once without
the pods of lower priority if it has no room. So an inference ends as well when the same scheduler offers the node to a
pod that would not fit there too, and none is made for a PodGroup that does not fit: it starts as a whole or not at all.
In such a cycle pods of lower priority count as removed (`scheduling_request.Preemption`).

The cycle also shows whether kube-scheduler counts the rails, or leaves them to us (`ignoredByScheduler: true`): then it
offers a node again whose rails the previous pod took. It does not tell us which node that is, and binds nothing before
the last pod of the PodGroup, so that these pods would get the same devices.
"""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import msgspec

from railwright.fabric import resources, views
from railwright.fabric.placement.nodes import eligibility
from railwright.fabric.placement.state import assumed_pods, cluster_state, pod_usage
from railwright.fabric.workloads import membership

_MAX_PODS = 1000  # pods; bounded, because a pod with one feasible node gets no prioritize call
_MAX_SCHEDULERS = 64  # a cluster runs a few, but callers can send any name
SINGLE_NODE_SECONDS = 0.5  # time in which a pod with one feasible node is assumed to be on its way there
NEXT_POD_SECONDS = 1.0  # maximum time between successive pods; a node that is missing later may have other causes
BINDING_SECONDS = 5.0  # a binding takes milliseconds, unless volumes are bound before it
UNCOUNTED_SECONDS = 10.0  # time for which PodGroups are refused after kube-scheduler did not count rails


class FilterCall(msgspec.Struct, frozen=True):
    """A filter call of a kube-scheduler for one pod."""

    entry: assumed_pods.AssumedPod  # without a node; `since` is the time of the call
    scheduler: str  # spec.schedulerName
    spec: views.PodSpec
    constraints: Hashable  # pods with equal ones and equal requests may go to the same nodes
    offered: frozenset[str]
    feasible: frozenset[str] = frozenset()  # offered nodes that passed our filter
    is_grouped: bool = False  # its pod is of a PodGroup of Kubernetes, which is placed in one cycle
    below: int | None = None  # pods of lower priority may count as removed; None: none are
    rails: frozenset[str] = frozenset()  # resources of rails that the pod's containers request


class _InferredPod(msgspec.Struct, frozen=True):
    """A pod that a scheduler has probably placed."""

    pod: assumed_pods.AssumedPod
    scheduler: str
    below: int | None  # it has room if pods of lower priority count as removed; None: beside all pods


class InferredBindings:
    """Pods that kube-schedulers have probably placed, but that were not observed bound."""

    def __init__(self) -> None:
        self._previous_calls: dict[str, FilterCall] = {}  # by scheduler
        self._inferred: dict[str, _InferredPod] = {}
        self._unplaceable: dict[membership.GangKey, None] = {}  # PodGroups that do not fit
        self._counts_rails: dict[str, bool] = {}  # scheduler -> whether it counts rails, if that is known
        self._uncounted_at: dict[str, float] = {}  # scheduler -> when it last offered a rail twice
        self._tried_gangs: dict[str, Hashable] = {}  # uid -> gang of pods that nodes were left to

    def record_call(self, call: FilterCall, cluster: cluster_state.ClusterState) -> bool:
        """Record a filter call: its pod is not placed yet. Infer where the previous pod went.

        Returns True if the pod is tried again, with all pods of its gang.
        """
        assumed_pod = call.entry
        self._inferred.pop(assumed_pod.uid, None)
        self._forget_refuted(call, cluster)
        previous = self._previous_calls.pop(call.scheduler, None)
        if (
            previous is not None
            and previous.entry.uid == assumed_pod.uid
            and assumed_pod.since - previous.entry.since <= NEXT_POD_SECONDS
        ):
            return False  # our own retry of the filter; kube-scheduler does not retry a pod so soon
        is_retried = self._forget_retried_gang(assumed_pod)
        is_same_gang = previous is not None and previous.entry.gang == assumed_pod.gang
        if previous is not None and not (is_retried and is_same_gang) and _is_comparable(previous, call):
            below = call.below if is_same_gang else None
            if is_same_gang and call.is_grouped and call.rails:
                self._compare_rails(previous, call, cluster)
            self._infer_node(previous, call, cluster, below)
        return is_retried

    def record_plan(self, gang: membership.GangKey, *, fits: bool) -> None:
        """Record whether a PodGroup that starts as a whole fits on the nodes that were offered to one of its pods."""
        self._unplaceable.pop(gang, None)
        if not fits:
            self._unplaceable[gang] = None
            _trim(self._unplaceable, _MAX_PODS)
            self._forget_gang(gang)

    def counts_rails(self, scheduler: str) -> bool:
        """True if a scheduler was observed to count the rails that containers request."""
        return self._counts_rails.get(scheduler, False)

    def has_offered_twice(self, scheduler: str, now: float) -> bool:
        """True if a scheduler has just offered rails again that it had assigned to a pod of the same PodGroup."""
        offered_at = self._uncounted_at.get(scheduler)
        return offered_at is not None and now - offered_at < UNCOUNTED_SECONDS

    def _compare_rails(self, previous: FilterCall, call: FilterCall, cluster: cluster_state.ClusterState) -> None:
        """Learn whether kube-scheduler counts rails, from a node that can hold two such pods but for their rails."""
        twice = {name: 2 * amount for name, amount in call.entry.requests.items()}
        rails = {name: amount for name, amount in twice.items() if name in call.rails}
        others = {name: amount for name, amount in twice.items() if name not in call.rails}

        def has_room(node: str, requests: resources.Amounts) -> bool:
            return pod_usage.has_room(cluster, node, requests, below=call.below)

        missing = previous.feasible.difference(call.offered)
        if len(missing) == 1:
            (node,) = missing
            if has_room(node, others) and not has_room(node, rails):
                self._counts_rails[call.scheduler] = True
                _trim(self._counts_rails, _MAX_SCHEDULERS)
        elif not missing:
            candidates = [node for node in previous.feasible if has_room(node, others)]
            if candidates and not any(has_room(node, rails) for node in candidates):
                self._counts_rails[call.scheduler] = False
                self._uncounted_at[call.scheduler] = call.entry.since
                _trim(self._counts_rails, _MAX_SCHEDULERS)
                _trim(self._uncounted_at, _MAX_SCHEDULERS)

    def _infer_node(
        self, previous: FilterCall, call: FilterCall, cluster: cluster_state.ClusterState, below: int | None
    ) -> None:
        """Infer that the pod of the previous call went to the one node that is no longer offered."""
        missing = previous.feasible.difference(call.offered)
        if len(missing) != 1 or previous.entry.gang in self._unplaceable:
            return
        (node,) = missing
        requests = call.entry.requests
        if not _is_eligible(cluster, node, call) or not pod_usage.has_room(cluster, node, requests, below=below):
            return
        if pod_usage.has_room(cluster, node, requests):
            below = None
        pod = msgspec.structs.replace(previous.entry, node=node)
        self._inferred[pod.uid] = _InferredPod(pod, call.scheduler, below)
        _trim(self._inferred, _MAX_PODS)

    def _forget_refuted(self, call: FilterCall, cluster: cluster_state.ClusterState) -> None:
        """Forget the pods that the scheduler has not placed: it offers their node, which they would fill."""
        amounts: dict[str, Counter[str]] = {}
        for inferred in self._inferred.values():
            if inferred.scheduler == call.scheduler and inferred.pod.node in call.offered:
                amounts.setdefault(inferred.pod.node, Counter(call.entry.requests)).update(inferred.pod.requests)
        refuted = {
            node
            for node, requests in amounts.items()
            if not pod_usage.has_room(cluster, node, requests, below=call.below)
        }
        if refuted:
            self._inferred = {
                uid: inferred
                for uid, inferred in self._inferred.items()
                if inferred.scheduler != call.scheduler or inferred.pod.node not in refuted
            }

    def record_feasible(self, call: FilterCall) -> None:
        """Record the feasible nodes of a filter call."""
        self._previous_calls[call.scheduler] = call
        _trim(self._previous_calls, _MAX_SCHEDULERS)
        if call.entry.gang:
            self._tried_gangs[call.entry.uid] = call.entry.gang
            _trim(self._tried_gangs, _MAX_PODS)

    def sum_requests(
        self, cluster: cluster_state.ClusterState, now: float, *, except_uid: str
    ) -> Mapping[str, resources.Amounts]:
        """Return by node the requests of pods, except one, that are very likely there but not observed bound."""
        entries = [
            inferred.pod
            for uid, inferred in self._inferred.items()
            if uid != except_uid and _is_open(inferred, cluster, now)
        ]
        for previous in self._previous_calls.values():
            if (
                previous.entry.uid != except_uid
                and previous.entry.gang not in self._unplaceable
                and len(previous.feasible) == 1
                and now - previous.entry.since <= SINGLE_NODE_SECONDS
            ):
                assumed_pod = msgspec.structs.replace(previous.entry, node=min(previous.feasible))
                bound = cluster.pods.get(assumed_pod.uid)
                entries += [] if bound is not None and bound.node else [assumed_pod]
        amounts: dict[str, Counter[str]] = {}
        for assumed_pod in entries:
            amounts.setdefault(assumed_pod.node, Counter()).update(assumed_pod.requests)
        return amounts

    def list_pods(self, cluster: cluster_state.ClusterState, now: float) -> Sequence[assumed_pods.AssumedPod]:
        """Return the inferred pods, to count as assumed. Forget inferences that no longer hold."""
        self._inferred = {uid: pod for uid, pod in self._inferred.items() if _is_open(pod, cluster, now)}
        return tuple(inferred.pod for inferred in self._inferred.values())

    def _forget_retried_gang(self, assumed_pod: assumed_pods.AssumedPod) -> bool:
        """Forget the gang's inferences if its pod is retried. True if it is.

        A plugin that lets the pods of a gang wait until all have a node (Permit) releases all of them if one has none.
        """
        if assumed_pod.uid not in self._tried_gangs:
            return False
        self._tried_gangs = {uid: gang for uid, gang in self._tried_gangs.items() if gang != assumed_pod.gang}
        self._forget_gang(assumed_pod.gang)
        return True

    def _forget_gang(self, gang: membership.GangKey) -> None:
        self._inferred = {uid: other for uid, other in self._inferred.items() if other.pod.gang != gang}


def _is_comparable(previous: FilterCall, call: FilterCall) -> bool:
    """True if the calls are successive, and would offer the same nodes but for the one that the first pod took."""
    return (
        0 <= call.entry.since - previous.entry.since <= NEXT_POD_SECONDS
        and previous.constraints == call.constraints
        and previous.entry.requests == call.entry.requests
        and call.offered <= previous.offered
    )


def _is_eligible(cluster: cluster_state.ClusterState, node: str, call: FilterCall) -> bool:
    node_info = cluster.nodes.get(node)
    return node_info is not None and eligibility.is_eligible(node_info, call.spec)


def _is_open(inferred: _InferredPod, cluster: cluster_state.ClusterState, now: float) -> bool:
    assumed_pod = inferred.pod
    pod = cluster.pods.get(assumed_pod.uid)
    waits = pod is not None and not pod.node and now - assumed_pod.since <= BINDING_SECONDS
    return waits and pod_usage.has_room(cluster, assumed_pod.node, assumed_pod.requests, below=inferred.below)


def _trim(entries_by_key: dict[Any, Any], limit: int) -> None:
    """Remove the oldest entry if there are too many."""
    if len(entries_by_key) > limit:
        del entries_by_key[next(iter(entries_by_key))]
