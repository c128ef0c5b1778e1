"""Assumed pods: allocations whose binding has not been observed yet. Volcano announces them.

kube-scheduler announces nothing, so a pod is assumed on its best node for a short time after its request. Plans and
scores depend on assumed pods. One refusal depends on them too: that of nodes outside the NVLink domain where a pod of
the segment was announced, or which was its only choice.

Entries are keyed by pod UID, so events may be duplicated, late or unpaired: `assume` adds or replaces, `forget`
removes if present (docs/interface.md 7.7). The entries of one scheduler instance form a scope (docs/interface.md 4.3).
The caller passes the time and confirms observed bindings. Nothing is persisted: after a restart the next session and
the pod watch provide everything again.

Callers are not always authenticated, so only pods that the watch has shown are assumed, with the requests of their
objects.
"""

import enum
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TypeVar

import msgspec

from railwright.fabric import resources
from railwright.fabric.workloads import membership

DEFAULT_SCOPE = ""


class State(enum.StrEnum):
    """The state of an assumed pod's allocation."""

    ALLOCATED = "allocated"  # the scheduler will bind the pod or send deallocate
    PIPELINED = "pipelined"  # waits for another pod to terminate; ends with the session
    UNCONFIRMED = "unconfirmed"  # the session has closed and no binding has been observed
    SCORED = "scored"  # kube-scheduler, which announces nothing, was told that this node is the best
    CONFINED = "confined"  # so too, and was left no node outside of this node's NVLink domain


class AssumedPod(msgspec.Struct, gc=False, frozen=True):
    """A pod that a scheduler has placed on a node, and whose binding has not been observed yet."""

    uid: str
    key: str  # namespace/name
    gang: membership.GangKey
    rank: membership.Rank
    node: str
    requests: resources.FrozenAmounts
    state: State
    since: float  # seconds on the caller's monotonic clock
    scope: str = DEFAULT_SCOPE


class AssumedPods:
    """The assumed pods of all scopes, indexed by node and by gang."""

    def __init__(self, record_change: Callable[[str], None]) -> None:
        """`record_change` is called with the name of each node on which the entries change."""
        self._entries: dict[str, AssumedPod] = {}
        self._by_node: dict[str, dict[str, AssumedPod]] = {}
        self._by_gang: dict[membership.GangKey, dict[str, AssumedPod]] = {}
        self._record_change = record_change

    def assume(self, assumed_pod: AssumedPod) -> None:
        """Add an assumed pod, or replace its entry."""
        uid = assumed_pod.uid
        self.forget(uid)
        self._entries[uid] = assumed_pod
        self._by_gang.setdefault(assumed_pod.gang, {})[uid] = assumed_pod
        self._by_node.setdefault(assumed_pod.node, {})[uid] = assumed_pod
        self._record_change(assumed_pod.node)

    def forget(self, uid: str) -> None:
        """Remove a pod that was rolled back, or observed bound or deleted, if it is assumed."""
        if (assumed_pod := self._entries.pop(uid, None)) is not None:
            remove_entry(self._by_gang, assumed_pod.gang, uid)
            remove_entry(self._by_node, assumed_pod.node, uid)
            self._record_change(assumed_pod.node)

    def forget_retried_gang(self, uid: str) -> None:
        """Forget a gang that an earlier session announced, because Volcano asks about its pod `uid` again.

        Volcano commits all allocations of a gang in a session or none, and does not ask about a pod that it is binding.
        """
        old = self._entries.get(uid)
        if old is not None and old.state is State.UNCONFIRMED:
            for pod in (old, *self.list_of_gang(old.gang)):
                if pod.state is State.UNCONFIRMED and pod.since == old.since:
                    self.forget(pod.uid)

    def record_changes(self, uids: Iterable[str]) -> None:
        """Record a change of the nodes on which these pods are assumed, because their claims were observed."""
        for uid in uids:
            if (assumed_pod := self._entries.get(uid)) is not None:
                self._record_change(assumed_pod.node)

    def end_session(self, scope: str, now: float) -> None:
        """End a session of this scope: drop pipelined entries; the others wait for their binding to be observed."""
        for assumed_pod in list(self._entries.values()):
            if assumed_pod.scope != scope:
                continue
            if assumed_pod.state is State.PIPELINED:
                self.forget(assumed_pod.uid)
            elif assumed_pod.state is State.ALLOCATED:
                self.assume(msgspec.structs.replace(assumed_pod, state=State.UNCONFIRMED, since=now))

    def expire(self, now: float, assume_seconds: float) -> None:
        """Forget the pods that are assumed for longer than `assume_seconds`."""
        for assumed_pod in list(self._entries.values()):
            if now - assumed_pod.since > assume_seconds:
                self.forget(assumed_pod.uid)

    def get(self, uid: str) -> AssumedPod | None:
        """Return the entry of an assumed pod; None if the pod is not assumed."""
        return self._entries.get(uid)

    def list_on_node(self, node: str) -> Collection[AssumedPod]:
        """Return the pods that are assumed on a node."""
        return self._by_node.get(node, {}).values()

    def list_of_gang(self, gang: membership.GangKey) -> Collection[AssumedPod]:
        """Return the assumed pods of a gang."""
        return self._by_gang.get(gang, {}).values() if gang else ()

    def count(self, state: State) -> int:
        """Return the number of assumed pods in a state."""
        return sum(1 for assumed_pod in self._entries.values() if assumed_pod.state is state)

    def __iter__(self) -> Iterator[AssumedPod]:
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)


Key = TypeVar("Key")
Pod = TypeVar("Pod")


def remove_entry(index: dict[Key, dict[str, Pod]], key: Key, uid: str) -> None:
    """Remove a pod from an index, if it is there, and the key of the index if no pod is left."""
    pods = index.get(key, {})
    pods.pop(uid, None)
    if not pods:
        index.pop(key, None)
