"""Infers where kube-scheduler has placed pods whose binding the watch has not delivered yet.

kube-scheduler announces no placements, and sends the request for the next pod before the previous binding is written.
But it does not offer a full node to the next pod: if exactly one node was offered to the previous pod and not to the
next, and nothing else explains that, the previous pod went there. Other explanations are: the two pods differ or belong
to different schedulers, time has passed, the offer is a sample, another pod was observed on the node, or the node is
not eligible any more. An inference is valid for seconds, and ends when another pod is observed in the same place. Gangs
are planned with it, and Volcano does not get the same devices. It never removes nodes from kube-scheduler's own filter.
"""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import msgspec

from railwright.fabric import resources, views
from railwright.fabric.placement.nodes import eligibility
from railwright.fabric.placement.state import assumed_pods, cluster_state

_MAX_PODS = 1000  # pods; bounded, because a pod with one feasible node gets no prioritize call
_MAX_SCHEDULERS = 64  # a cluster runs a few, but callers can send any name
SINGLE_NODE_SECONDS = 0.5  # time in which a pod with one feasible node is assumed to be on its way there
NEXT_POD_SECONDS = 1.0  # maximum time between successive pods; a node that is missing later may have other causes
BINDING_SECONDS = 5.0  # a binding takes milliseconds, unless volumes are bound before it


class FilterCall(msgspec.Struct, frozen=True):
    """A filter call of a kube-scheduler for one pod."""

    entry: assumed_pods.AssumedPod  # without a node; `since` is the time of the call
    scheduler: str  # spec.schedulerName
    spec: views.PodSpec
    constraints: Hashable  # pods with equal ones and equal requests may go to the same nodes
    offered: frozenset[str]
    feasible: frozenset[str] = frozenset()  # offered nodes that passed our filter


class InferredBindings:
    """Pods that kube-schedulers have probably placed, but that were not observed bound."""

    def __init__(self) -> None:
        self._previous_calls: dict[str, FilterCall] = {}  # by scheduler
        self._inferred: dict[str, assumed_pods.AssumedPod] = {}
        self._tried_gangs: dict[str, Hashable] = {}  # uid -> gang of pods that nodes were left to

    def record_call(self, call: FilterCall, cluster: cluster_state.ClusterState) -> bool:
        """Record a filter call: its pod is not placed yet. Infer where the previous pod went.

        Returns True if the pod is tried again, with all pods of its gang.
        """
        assumed_pod = call.entry
        self._inferred.pop(assumed_pod.uid, None)
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
            self._infer_node(previous, call, cluster)
        return is_retried

    def _infer_node(self, previous: FilterCall, call: FilterCall, cluster: cluster_state.ClusterState) -> None:
        """Infer that the pod of the previous call went to the one node that is no longer offered."""
        missing = previous.feasible.difference(call.offered)
        if len(missing) != 1:
            return
        (node,) = missing
        if _could_take(cluster, node, call):
            self._inferred[previous.entry.uid] = msgspec.structs.replace(previous.entry, node=node)
            _trim(self._inferred, _MAX_PODS)

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
            assumed_pod
            for assumed_pod in self._inferred.values()
            if assumed_pod.uid != except_uid and _is_open(assumed_pod, cluster, now)
        ]
        for previous in self._previous_calls.values():
            if (
                previous.entry.uid != except_uid
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
        return tuple(self._inferred.values())

    def _forget_retried_gang(self, assumed_pod: assumed_pods.AssumedPod) -> bool:
        """Forget the gang's inferences if its pod is retried. True if it is.

        A plugin that lets the pods of a gang wait until all have a node (Permit) releases all of them if one has none.
        """
        if assumed_pod.uid not in self._tried_gangs:
            return False
        self._tried_gangs = {uid: gang for uid, gang in self._tried_gangs.items() if gang != assumed_pod.gang}
        self._inferred = {uid: other for uid, other in self._inferred.items() if other.gang != assumed_pod.gang}
        return True


def _is_comparable(previous: FilterCall, call: FilterCall) -> bool:
    """True if the calls are successive, and would offer the same nodes but for the one that the first pod took."""
    return (
        0 <= call.entry.since - previous.entry.since <= NEXT_POD_SECONDS
        and previous.constraints == call.constraints
        and previous.entry.requests == call.entry.requests
        and call.offered <= previous.offered
    )


def _could_take(cluster: cluster_state.ClusterState, node: str, call: FilterCall) -> bool:
    """True if the node has room for the pod by the observed state, which then does not explain its absence."""
    node_info = cluster.nodes.get(node)
    return (
        node_info is not None
        and eligibility.is_eligible(node_info, call.spec)
        and _has_room(cluster, node, call.entry.requests)
    )


def _is_open(assumed_pod: assumed_pods.AssumedPod, cluster: cluster_state.ClusterState, now: float) -> bool:
    pod = cluster.pods.get(assumed_pod.uid)
    waits = pod is not None and not pod.node and now - assumed_pod.since <= BINDING_SECONDS
    return waits and assumed_pod.node in cluster.nodes and _has_room(cluster, assumed_pod.node, assumed_pod.requests)


def _has_room(cluster: cluster_state.ClusterState, node: str, requests: resources.Amounts) -> bool:
    free = cluster.get_free(node)
    return all(free[name] >= amount for name, amount in requests.items() if name in free)


def _trim(entries_by_key: dict[str, Any], limit: int) -> None:
    """Remove the oldest entry if there are too many."""
    if len(entries_by_key) > limit:
        del entries_by_key[next(iter(entries_by_key))]
