"""Guesses where kube-scheduler has placed pods that the watch has not shown there yet.

kube-scheduler announces no placements, and sends the request for the next pod before the previous binding is written.
Three observations show where a pod went, each for a time only:

| observation | node | for | counts for |
|---|---|---|---|
| one node was left by our filter, so that no scores were asked for | that node | 0.5 s | Volcano |
| we planned its gang, which goes on | the node that we left, or one of the best, which are equal | 1 s | plans |
| the next pod is not offered exactly one node that this pod was | that node | 5 s | plans, Volcano |

*Missing node.* kube-scheduler does not offer a full node to the next pod. Other explanations of a missing node are: the
two pods differ or belong to different schedulers, time has passed, the offer is a sample, another pod was observed on
the node, or the node is not eligible any more.

*Best nodes.* Most pods of a gang go to one of the best nodes of the leaf that is planned for them. Counted there, the
gang's plan has one slot less to fill, and other gangs do not get the slot.

A guess never removes nodes from kube-scheduler's own filter. It ends when its time has passed, when the pod is observed
bound or is tried again, when another pod is observed in its place, and when the same scheduler offers the node to a pod
that would not fit there too.

kube-scheduler places a PodGroup in one cycle, which it may simulate: once for each topology domain, and once without
the pods of lower priority if it has no room. So nothing is guessed of a PodGroup that does not fit: it starts as a
whole or not at all. In such a cycle pods of lower priority count as removed (`scheduling_request.Preemption`).

The cycle also shows whether kube-scheduler counts the rails, or leaves them to us (`ignoredByScheduler: true`): then it
offers a node again whose rails the previous pod took. It does not tell us which node that is, and binds nothing before
the last pod of the PodGroup, so that these pods would get the same devices.
"""

import math
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from railwright.fabric import resources, views
from railwright.fabric.placement import scheduling_request
from railwright.fabric.placement.nodes import eligibility
from railwright.fabric.placement.state import assumed_pods, cluster_state, pod_usage
from railwright.fabric.workloads import membership

SINGLE_NODE_SECONDS = 0.5  # time in which a pod with one feasible node is assumed to be on its way there
BEST_NODES_SECONDS = 1.0  # an allocation is seen after 0.03 s in the median, 99 % within 0.7 s (bench claim_staleness)
BINDING_SECONDS = 5.0  # a binding takes milliseconds, unless volumes are bound before it
NEXT_POD_SECONDS = 1.0  # maximum time between successive pods; a node that is missing later may have other causes
UNCOUNTED_SECONDS = 10.0  # time for which PodGroups are refused after kube-scheduler did not count rails
_MAX_PODS = 1000  # pods; bounded, because a pod with one feasible node gets no prioritize call
_MAX_SCORED = 200  # pods that kube-scheduler places within BEST_NODES_SECONDS
_MAX_SCHEDULERS = 64  # a cluster runs a few, but callers can send any name


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


class _Guess(msgspec.Struct, frozen=True):
    """A pod that is very likely on `node`, as long as that holds; otherwise on one of `best_nodes`."""

    pod: assumed_pods.AssumedPod  # without a node
    scheduler: str
    best_nodes: tuple[str, ...] = ()
    below_scored: int | None = None  # pods of lower priority count as removed from these; None: none do
    scored_at: float = 0.0
    placed: assumed_pods.AssumedPod | None = None  # the pod on `node`
    below: int | None = None  # it has room if pods of lower priority count as removed; None: beside all pods

    @property
    def node(self) -> str:
        """Return the node that the next pod was not offered; "" if there is none."""
        return "" if self.placed is None else self.placed.node


class UnseenPods:
    """The pods that kube-schedulers have very likely placed, but that were not observed there."""

    def __init__(self) -> None:
        self._guesses: dict[str, _Guess] = {}  # by UID, the oldest first
        self._previous_calls: dict[str, FilterCall] = {}  # by scheduler
        self._unplaceable: dict[membership.GangKey, None] = {}  # PodGroups that do not fit
        self._counts_rails: dict[str, bool] = {}  # scheduler -> whether it counts rails, if that is known
        self._uncounted_at: dict[str, float] = {}  # scheduler -> when it last offered a rail twice
        self._tried_gangs: dict[str, Hashable] = {}  # uid -> gang of pods that nodes were left to
        self._checked_version = -1  # of the cluster state, which agrees with all guesses except these:
        self._unchecked: set[str] = set()  # by UID
        self._none_ends_before = math.inf  # time at which the first guess may end

    # --- observations -----------------------------------------------------------------------------------------

    def record_call(self, call: FilterCall, cluster: cluster_state.ClusterState) -> None:
        """Record a filter call: its pod is not placed yet. Infer where the previous pod went."""
        pod = call.entry
        self._guesses.pop(pod.uid, None)
        self._forget_refuted(call, cluster)
        previous = self._previous_calls.pop(call.scheduler, None)
        if (
            previous is not None
            and previous.entry.uid == pod.uid
            and pod.since - previous.entry.since <= NEXT_POD_SECONDS
        ):
            return  # our own retry of the filter; kube-scheduler does not retry a pod so soon
        is_retried = self._forget_retried_gang(pod)
        is_same_gang = previous is not None and previous.entry.gang == pod.gang
        if previous is None or (is_retried and is_same_gang) or not _is_successive(previous, call):
            return
        missing = previous.feasible.difference(call.offered)
        shows_rails = is_same_gang and call.is_grouped and bool(call.rails)
        if (len(missing) != 1 and not shows_rails) or not call.offered <= previous.offered:
            return  # nothing follows, or nodes were offered that the previous pod was not
        if shows_rails:
            self._compare_rails(previous, call, cluster, missing)
        self._infer_node(previous, call, cluster, call.below if is_same_gang else None, missing)

    def record_feasible(self, call: FilterCall) -> None:
        """Record the feasible nodes of a filter call."""
        self._previous_calls[call.scheduler] = call
        _trim(self._previous_calls, _MAX_SCHEDULERS)
        if call.entry.gang:
            self._tried_gangs[call.entry.uid] = call.entry.gang
            _trim(self._tried_gangs, _MAX_PODS)

    def record_scores(
        self,
        request: scheduling_request.SchedulingRequest,
        pod: assumed_pods.AssumedPod,
        best_nodes: tuple[str, ...],
        *,
        fits: bool,
    ) -> None:
        """Record the equal nodes of which a pod (without a node) very likely goes to one.

        `fits` is False for a PodGroup that starts as a whole and does not fit on the nodes that were offered.
        """
        self._unplaceable.pop(pod.gang, None)
        if not fits:
            self._unplaceable[pod.gang] = None
            _trim(self._unplaceable, _MAX_PODS)
            self._forget_gang(pod.gang)
            return
        guess = self._guesses.pop(pod.uid, None) or _Guess(pod, request.spec.scheduler_name)
        below = None if request.preemption is None else request.preemption.below
        guess = msgspec.structs.replace(guess, best_nodes=best_nodes, below_scored=below, scored_at=pod.since)
        if guess.best_nodes or guess.node:
            self._set(guess)
        scored = [uid for uid, other in self._guesses.items() if other.best_nodes and other.placed is None]
        if len(scored) > _MAX_SCORED:
            del self._guesses[scored[0]]

    # --- what follows from them -------------------------------------------------------------------------------

    def counts_rails(self, scheduler: str) -> bool:
        """True if a scheduler was observed to count the rails that containers request."""
        return self._counts_rails.get(scheduler, False)

    def has_offered_twice(self, scheduler: str, now: float) -> bool:
        """True if a scheduler has just offered rails again that it had assigned to a pod of the same PodGroup."""
        offered_at = self._uncounted_at.get(scheduler)
        return offered_at is not None and now - offered_at < UNCOUNTED_SECONDS

    def list_missing(self, cluster: cluster_state.ClusterState, now: float) -> Sequence[assumed_pods.AssumedPod]:
        """Return the pods on nodes that the next pod was not offered."""
        self._forget_ended(cluster, now)
        return tuple([guess.placed for guess in self._guesses.values() if guess.placed is not None])

    def list_pods(
        self, request: scheduling_request.SchedulingRequest, cluster: cluster_state.ClusterState, now: float
    ) -> Sequence[assumed_pods.AssumedPod]:
        """Return the pods to count as placed in the plan for a request.

        Those whose node was missing come first; each of the others goes to the first of its best nodes with room
        beside them. A node is left out that the pod's own scheduler offers again, although it would be full.
        """
        pods = list(self.list_missing(cluster, now))
        scored = [guess for uid, guess in self._guesses.items() if guess.placed is None and uid != request.uid]
        if not scored:
            return pods
        offered = request.offered
        taken: dict[str, resources.Amounts] = {}
        for pod in pods:
            _take(taken, pod.node, pod.requests)
        with_own: dict[int, resources.Amounts] = {}  # by id: pods of a gang share an object for their requests
        for guess in scored:
            needed = guess.pod.requests
            if (both := with_own.get(id(needed))) is None:
                both = with_own[id(needed)] = resources.add_up([needed, request.requests])
            is_own = guess.scheduler == request.spec.scheduler_name
            for node in guess.best_nodes:
                others = taken.get(node, resources.NO_AMOUNTS)
                amounts = both if is_own and node in offered else needed
                if pod_usage.has_room(cluster, node, amounts, taken=others, below=guess.below_scored):
                    _take(taken, node, needed)
                    pods.append(msgspec.structs.replace(guess.pod, node=node))
                    break
        return pods

    def has_room(
        self, request: scheduling_request.SchedulingRequest, cluster: cluster_state.ClusterState, node: str
    ) -> bool:
        """True if a node has room for a pod beside the unseen pods that were left with this node.

        Their scheduler may offer it again, because it does not count rails (`ignoredByScheduler: true`).
        """
        others = [
            guess.pod.requests
            for uid, guess in self._guesses.items()
            if uid != request.uid
            and (guess.best_nodes == (node,) or (guess.placed is not None and guess.placed.node == node))
        ]
        return pod_usage.has_room(cluster, node, request.requests, taken=resources.add_up(others))

    def sum_requests(
        self, cluster: cluster_state.ClusterState, now: float, *, except_uid: str
    ) -> Mapping[str, resources.Amounts]:
        """Return by node the requests of pods, except one, whose node is known."""
        missing = [pod for pod in self.list_missing(cluster, now) if pod.uid != except_uid]
        amounts: dict[str, Counter[str]] = {}
        for pod in (*missing, *self._list_on_single_nodes(cluster, now, except_uid)):
            amounts.setdefault(pod.node, Counter()).update(pod.requests)
        return amounts

    def _list_on_single_nodes(
        self, cluster: cluster_state.ClusterState, now: float, except_uid: str
    ) -> Iterator[assumed_pods.AssumedPod]:
        """Yield the pods of the last filter calls, except one, that have one feasible node."""
        for call in self._previous_calls.values():
            pod = call.entry
            if pod.uid == except_uid or pod.gang in self._unplaceable or len(call.feasible) != 1:
                continue
            bound = cluster.pods.get(pod.uid)
            if now - pod.since <= SINGLE_NODE_SECONDS and not (bound is not None and bound.node):
                yield msgspec.structs.replace(pod, node=min(call.feasible))

    # --- inference --------------------------------------------------------------------------------------------

    def _infer_node(
        self,
        previous: FilterCall,
        call: FilterCall,
        cluster: cluster_state.ClusterState,
        below: int | None,
        missing: frozenset[str],
    ) -> None:
        """Infer that the pod of the previous call went to the one node that is no longer offered."""
        if len(missing) != 1 or previous.entry.gang in self._unplaceable:
            return
        (node,) = missing
        requests = call.entry.requests
        known = cluster.nodes.get(node)
        if known is None or not eligibility.is_eligible(known, call.spec):
            return
        if pod_usage.has_room(cluster, node, requests):
            below = None
        elif below is None or not pod_usage.has_room(cluster, node, requests, below=below):
            return
        guess = self._guesses.get(previous.entry.uid) or _Guess(previous.entry, call.scheduler)
        placed = msgspec.structs.replace(previous.entry, node=node)
        self._set(msgspec.structs.replace(guess, pod=previous.entry, placed=placed, below=below))
        _trim(self._guesses, _MAX_PODS)

    def _compare_rails(
        self, previous: FilterCall, call: FilterCall, cluster: cluster_state.ClusterState, missing: frozenset[str]
    ) -> None:
        """Learn whether kube-scheduler counts rails, from a node that can hold two such pods but for their rails."""
        twice = {name: 2 * amount for name, amount in call.entry.requests.items()}
        rails = {name: amount for name, amount in twice.items() if name in call.rails}
        others = {name: amount for name, amount in twice.items() if name not in call.rails}

        def has_room(node: str, requests: resources.Amounts) -> bool:
            return pod_usage.has_room(cluster, node, requests, below=call.below)

        if len(missing) == 1:
            (node,) = missing
            if not self.counts_rails(call.scheduler) and has_room(node, others) and not has_room(node, rails):
                self._counts_rails[call.scheduler] = True
                _trim(self._counts_rails, _MAX_SCHEDULERS)
        elif not missing:
            candidates = [node for node in previous.feasible if has_room(node, others)]
            if candidates and not any(has_room(node, rails) for node in candidates):
                self._counts_rails[call.scheduler] = False
                self._uncounted_at[call.scheduler] = call.entry.since
                _trim(self._counts_rails, _MAX_SCHEDULERS)
                _trim(self._uncounted_at, _MAX_SCHEDULERS)

    def _set(self, guess: _Guess) -> None:
        self._guesses[guess.pod.uid] = guess
        self._unchecked.add(guess.pod.uid)
        self._none_ends_before = min(self._none_ends_before, _find_end(guess))

    # --- ends -------------------------------------------------------------------------------------------------

    def _forget_refuted(self, call: FilterCall, cluster: cluster_state.ClusterState) -> None:
        """Forget the nodes of pods that the scheduler has not placed there: it offers them, and they would be full."""
        own = [
            guess
            for guess in self._guesses.values()
            if guess.placed is not None and guess.placed.node in call.offered and guess.scheduler == call.scheduler
        ]
        amounts: dict[str, Counter[str]] = {}
        for guess in own:
            amounts.setdefault(guess.node, Counter(call.entry.requests)).update(guess.pod.requests)
        for guess in own:
            if not pod_usage.has_room(cluster, guess.node, amounts[guess.node], below=call.below):
                self._set(msgspec.structs.replace(guess, placed=None))

    def _forget_retried_gang(self, pod: assumed_pods.AssumedPod) -> bool:
        """Forget the gang's guesses if its pod is retried. True if it is.

        A plugin that lets the pods of a gang wait until all have a node (Permit) releases all of them if one has none.
        """
        if pod.uid not in self._tried_gangs:
            return False
        self._tried_gangs = {uid: gang for uid, gang in self._tried_gangs.items() if gang != pod.gang}
        self._forget_gang(pod.gang)
        return True

    def _forget_gang(self, gang: membership.GangKey) -> None:
        self._guesses = {uid: other for uid, other in self._guesses.items() if other.pod.gang != gang}

    def _forget_ended(self, cluster: cluster_state.ClusterState, now: float) -> None:
        """Forget what no longer holds: nodes that were missing, and then best nodes."""
        if cluster.version != self._checked_version:
            self._checked_version = cluster.version
            self._unchecked.update(self._guesses)
        if now > self._none_ends_before:
            self._unchecked.update([uid for uid, guess in self._guesses.items() if now > _find_end(guess)])
        for uid in self._unchecked:
            if (guess := self._guesses.get(uid)) is None:
                continue
            if (current := _drop_ended(guess, cluster, now)) is None:
                del self._guesses[uid]
            else:
                self._guesses[uid] = current
                self._none_ends_before = min(self._none_ends_before, _find_end(current))
        self._unchecked.clear()
        if now > self._none_ends_before:
            self._none_ends_before = min(map(_find_end, self._guesses.values()), default=math.inf)


def _take(taken: dict[str, resources.Amounts], node: str, amounts: resources.Amounts) -> None:
    """Add amounts to what pods have taken on a node."""
    known = taken.get(node)
    taken[node] = amounts if known is None else resources.add_up([known, amounts])


def _is_successive(previous: FilterCall, call: FilterCall) -> bool:
    """True if the calls are successive, and their pods may go to the same nodes."""
    return (
        0 <= call.entry.since - previous.entry.since <= NEXT_POD_SECONDS
        and previous.constraints == call.constraints
        and previous.entry.requests == call.entry.requests
    )


def _find_end(guess: _Guess) -> float:
    """Return the time after which the guess no longer holds, or holds for its best nodes only."""
    return guess.scored_at + BEST_NODES_SECONDS if guess.placed is None else guess.pod.since + BINDING_SECONDS


def _drop_ended(guess: _Guess, cluster: cluster_state.ClusterState, now: float) -> _Guess | None:
    """Return what still holds of a guess; None if nothing does."""
    known = cluster.pods.get(guess.pod.uid)
    if known is None or known.node:
        return None  # deleted or bound
    if guess.placed is not None and _is_missing(guess, cluster, now):
        return guess
    is_scored = guess.best_nodes and now - guess.scored_at <= BEST_NODES_SECONDS
    if is_scored and not cluster.claimed.inventory.claims.has_allocated(guess.pod.uid, known.claim_names):
        return msgspec.structs.replace(guess, placed=None)
    return None


def _is_missing(guess: _Guess, cluster: cluster_state.ClusterState, now: float) -> bool:
    """True if the pod may still be on its way to the node that was missing."""
    is_recent = now - guess.pod.since <= BINDING_SECONDS
    return is_recent and pod_usage.has_room(cluster, guess.node, guess.pod.requests, below=guess.below)


def _trim(entries_by_key: dict[Any, Any], limit: int) -> None:
    """Remove the oldest entry if there are too many."""
    if len(entries_by_key) > limit:
        del entries_by_key[next(iter(entries_by_key))]
