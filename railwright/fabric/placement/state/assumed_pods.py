"""Assumed pods: allocations that a scheduler has announced and whose binding has not been observed yet.

Entries are keyed by pod UID, so events may be duplicated, late or unpaired: `assume` adds or replaces, `forget`
removes if present (docs/interface.md 7.7). The entries of one scheduler instance form a scope (docs/interface.md 4.3).
The caller passes the time and confirms observed bindings. Nothing is persisted: after a restart the next session and
the pod watch provide everything again.
"""

import enum
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple, Protocol

import msgspec

from railwright.fabric import resources
from railwright.fabric.placement.state import change_log
from railwright.fabric.workloads import membership

DEFAULT_SCOPE = ""
KUBE_SCOPE = "/scheduler"  # pods that kube-scheduler has very likely placed; names of Volcano instances have no slash


class State(enum.StrEnum):
    """The state of an allocation."""

    ALLOCATED = "allocated"  # the scheduler will bind the pod or send deallocate
    PIPELINED = "pipelined"  # waits for another pod to terminate; ends with the session
    UNCONFIRMED = "unconfirmed"  # the session has closed and no binding has been observed


class AssumedPod(msgspec.Struct, gc=False, frozen=True):
    """One assumed pod."""

    uid: str
    key: str  # namespace/name
    gang: membership.GangKey
    rank: membership.Rank
    node: str
    requests: resources.FrozenAmounts
    state: State
    since: float  # seconds on the caller's monotonic clock


class Assumptions(Protocol):
    """Assumed pods, to read."""

    def get(self, uid: str) -> AssumedPod | None:
        """Return an assumed pod, or None."""

    def list_on_node(self, node: str) -> Collection[AssumedPod]:
        """Return the assumed pods on a node."""

    def list_of_gang(self, gang: membership.GangKey) -> Iterable[AssumedPod]:
        """Return the assumed pods of a gang."""

    def get_scope(self, uid: str) -> str:
        """Return the scope that announced a pod, or the default scope."""

    def find_stale_assumptions(self, uid: str) -> frozenset[str]:
        """Return the UIDs whose assumption is stale because the scheduler is retrying `uid` (see `find_stale`)."""


def find_stale(assumptions: Assumptions, uid: str) -> frozenset[str]:
    """Return the UIDs whose assumption is stale because the scheduler is retrying `uid` (always includes `uid`).

    Volcano commits all allocations of a gang in a session or none, and does not request a pod that it is binding. The
    nodes of stale assumptions stay reserved until re-assumed but no longer count as placed peers.
    """
    old = assumptions.get(uid)
    if old is None or old.state is not State.UNCONFIRMED:
        return frozenset((uid,))
    gang = assumptions.list_of_gang(old.gang)
    return frozenset((uid, *(pod.uid for pod in gang if pod.state is State.UNCONFIRMED and pod.since == old.since)))


class _ScopedPod(NamedTuple):
    """An assumed pod of one scope."""

    scope: str
    pod: AssumedPod


class AssumedPods:
    """The assumed pods of all scopes, indexed by node and by gang."""

    def __init__(self, *, assume_seconds: float) -> None:
        self._assume_seconds = assume_seconds
        self._entries: dict[str, _ScopedPod] = {}
        self._by_node: dict[str, dict[str, AssumedPod]] = {}
        self._by_gang: dict[membership.GangKey, dict[str, AssumedPod]] = {}
        self._by_scope: dict[str, dict[str, AssumedPod]] = {}
        self.change_log = change_log.ChangeLog()

    def assume(self, assumed_pod: AssumedPod, scope: str = DEFAULT_SCOPE) -> None:
        """Assume a pod. An existing entry of the pod is replaced."""
        self._drop(assumed_pod.uid)
        self._entries[assumed_pod.uid] = _ScopedPod(scope, assumed_pod)
        self._by_node.setdefault(assumed_pod.node, {})[assumed_pod.uid] = assumed_pod
        self._by_gang.setdefault(assumed_pod.gang, {})[assumed_pod.uid] = assumed_pod
        self._by_scope.setdefault(scope, {})[assumed_pod.uid] = assumed_pod
        self.change_log.record(assumed_pod.node)

    def forget(self, uid: str) -> bool:
        """Forget a pod whose allocation the scheduler rolled back; return True if there was an entry."""
        return self._drop(uid)

    def confirm(self, uid: str) -> bool:
        """Forget a pod that has been observed bound or deleted; return True if there was an entry."""
        return self._drop(uid)

    def record_changes(self, uids: Iterable[str]) -> None:
        """Record that the nodes of these pods changed, if they are assumed: their claims were observed."""
        for uid in uids:
            if (entry := self._entries.get(uid)) is not None:
                self.change_log.record(entry.pod.node)

    def end_session(self, scope: str, now: float) -> None:
        """End a session of this scope: drop pipelined entries; the others wait for their binding to be observed."""
        for entry_scope, assumed_pod in list(self._entries.values()):
            if entry_scope != scope:
                continue
            if assumed_pod.state is State.PIPELINED:
                self._drop(assumed_pod.uid)
            elif assumed_pod.state is State.ALLOCATED:
                self.assume(msgspec.structs.replace(assumed_pod, state=State.UNCONFIRMED, since=now), scope)

    def expire(self, now: float) -> tuple[AssumedPod, ...]:
        """Drop and return the entries older than `assume_seconds`."""
        expired = tuple(
            assumed_pod for _, assumed_pod in self._entries.values() if now - assumed_pod.since > self._assume_seconds
        )
        for assumed_pod in expired:
            self._drop(assumed_pod.uid)
        return expired

    def get(self, uid: str) -> AssumedPod | None:
        """Return a pod's entry, or None."""
        entry = self._entries.get(uid)
        return entry.pod if entry else None

    def list_on_node(self, node: str) -> Collection[AssumedPod]:
        """Return the entries on a node."""
        return self._by_node.get(node, {}).values()

    def list_of_gang(self, gang: membership.GangKey) -> Iterable[AssumedPod]:
        """Return the entries of a gang."""
        return self._by_gang.get(gang, {}).values() if gang else ()

    def get_scope(self, uid: str) -> str:
        """Return the scope that announced a pod, or the default scope."""
        entry = self._entries.get(uid)
        return entry.scope if entry else DEFAULT_SCOPE

    def list_of_other_scopes(self, scope: str) -> Iterator[AssumedPod]:
        """Yield the entries of all other scopes."""
        return (
            assumed_pod for other, pods in self._by_scope.items() if other != scope for assumed_pod in pods.values()
        )

    def find_stale_assumptions(self, uid: str) -> frozenset[str]:
        """Return the UIDs whose assumption is stale because the scheduler is retrying `uid` (see `find_stale`)."""
        return find_stale(self, uid)

    def count(self, state: State) -> int:
        """Return the number of entries in a state."""
        return sum(1 for _, assumed_pod in self._entries.values() if assumed_pod.state is state)

    def __iter__(self) -> Iterator[AssumedPod]:
        return (assumed_pod for _, assumed_pod in self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def _drop(self, uid: str) -> bool:
        entry = self._entries.pop(uid, None)
        if entry is None:
            return False
        scope, assumed_pod = entry
        for index, key in (
            (self._by_node, assumed_pod.node),
            (self._by_gang, assumed_pod.gang),
            (self._by_scope, scope),
        ):
            index[key].pop(uid)  # type: ignore[index]  # each key belongs to its own index
            if not index[key]:  # type: ignore[index]
                del index[key]  # type: ignore[arg-type]
        self.change_log.record(assumed_pod.node)
        return True


class InferredPods:
    """Assumed pods together with pods of kube-scheduler that count as assumed for one request only."""

    def __init__(self, assumed: AssumedPods, inferred: Iterable[AssumedPod]) -> None:
        self._assumed = assumed
        self.inferred = tuple(pod for pod in inferred if assumed.get(pod.uid) is None)

    def get(self, uid: str) -> AssumedPod | None:
        """Return an assumed pod, or None."""
        return self._assumed.get(uid) or next((pod for pod in self.inferred if pod.uid == uid), None)

    def list_on_node(self, node: str) -> Collection[AssumedPod]:
        """Return the assumed pods on a node."""
        return [*self._assumed.list_on_node(node), *(pod for pod in self.inferred if pod.node == node)]

    def list_of_gang(self, gang: membership.GangKey) -> Iterable[AssumedPod]:
        """Return the assumed pods of a gang."""
        return [*self._assumed.list_of_gang(gang), *(pod for pod in self.inferred if gang and pod.gang == gang)]

    def get_scope(self, uid: str) -> str:
        """Return the scope that announced a pod, or the default scope."""
        return KUBE_SCOPE if any(pod.uid == uid for pod in self.inferred) else self._assumed.get_scope(uid)

    def find_stale_assumptions(self, uid: str) -> frozenset[str]:
        """Return the UIDs whose assumption is stale because the scheduler is retrying `uid` (see `find_stale`)."""
        return find_stale(self, uid)
