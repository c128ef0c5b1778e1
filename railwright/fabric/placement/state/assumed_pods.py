"""Assumed pods: allocations whose binding has not been observed yet. Volcano announces them.

kube-scheduler announces nothing, so a pod is assumed on its best node for a short time after its request. Plans and
scores depend on assumed pods. One refusal depends on them too: that of nodes outside the NVLink domain where a pod of
the segment was announced, or which was its only choice.

Entries are keyed by pod UID, so events may be duplicated, late or unpaired: `assume` adds or replaces, `forget`
removes if present (docs/interface.md 7.7). The entries of one scheduler instance form a scope (docs/interface.md 4.3).
The caller passes the time and confirms observed bindings. Nothing is persisted: after a restart the next session and
the pod watch provide everything again.

Callers are not always authenticated. An announced pod that the watch has not shown therefore counts as a placed peer of
its gang, but uses no devices. It becomes an ordinary entry when the watch shows the pod; otherwise it expires.
"""

import enum
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TypeVar

import msgspec

from railwright.fabric import resources
from railwright.fabric.workloads import membership

DEFAULT_SCOPE = ""
UNSEEN_SECONDS = 5.0  # a scheduler knows a pod from its own watch; ours shows it a moment earlier or later
MIN_UNSEEN = 2000  # unseen pods that are kept in any cluster: a gang may be announced before its pods are seen


class State(enum.StrEnum):
    """The state of an assumed pod's allocation."""

    ALLOCATED = "allocated"  # the scheduler will bind the pod or send deallocate
    PIPELINED = "pipelined"  # waits for another pod to terminate; ends with the session
    UNCONFIRMED = "unconfirmed"  # the session has closed and no binding has been observed
    SCORED = "scored"  # kube-scheduler, which announces nothing, was told that this node is the best
    CONFINED = "confined"  # so too, and was left no node outside of this node's NVLink domain


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
    scope: str = DEFAULT_SCOPE
    is_seen: bool = True  # the watch has shown the pod


class AssumedPods:
    """The assumed pods of all scopes, indexed by node and by gang."""

    def __init__(self, record_change: Callable[[str], None]) -> None:
        """`record_change` is called with the name of each node on which the entries change."""
        self._entries: dict[str, AssumedPod] = {}
        self._by_node: dict[str, dict[str, AssumedPod]] = {}
        self._by_gang: dict[membership.GangKey, dict[str, AssumedPod]] = {}
        self._unseen: dict[str, AssumedPod] = {}  # the oldest first; in no index but that of gangs
        self._record_change = record_change

    def assume(self, assumed_pod: AssumedPod, known_pods: int = 0) -> None:
        """Assume a pod, and replace its entry. A pod that the watch has not shown expires after UNSEEN_SECONDS.

        At most as many unseen pods are kept as `known_pods`, and MIN_UNSEEN at least; the oldest are dropped first.
        """
        uid = assumed_pod.uid
        self.forget(uid)
        self._entries[uid] = assumed_pod
        self._by_gang.setdefault(assumed_pod.gang, {})[uid] = assumed_pod
        self._record_change(assumed_pod.node)
        if assumed_pod.is_seen:
            self._by_node.setdefault(assumed_pod.node, {})[uid] = assumed_pod
            return
        self._unseen[uid] = assumed_pod
        while len(self._unseen) > max(MIN_UNSEEN, known_pods):
            self.forget(next(iter(self._unseen)))

    def mark_seen(self, uid: str, requests: resources.FrozenAmounts) -> None:
        """Count the requests of an assumed pod from now on, because the watch has shown it."""
        if (assumed_pod := self._unseen.get(uid)) is not None:
            self.assume(msgspec.structs.replace(assumed_pod, requests=requests, is_seen=True))

    def forget(self, uid: str) -> bool:
        """Remove a pod that was rolled back, or observed bound or deleted. Returns True if it was assumed."""
        assumed_pod = self._entries.pop(uid, None)
        if assumed_pod is None:
            return False
        remove_entry(self._by_gang, assumed_pod.gang, uid)
        remove_entry(self._by_node, assumed_pod.node, uid)
        self._unseen.pop(uid, None)
        self._record_change(assumed_pod.node)
        return True

    def forget_retried(self, uid: str) -> None:
        """Forget what an earlier session announced of the gang of a pod that Volcano asks about again.

        Volcano commits all allocations of a gang in a session or none, and does not ask about a pod that it is binding.
        """
        old = self._entries.get(uid)
        if old is None or old.state is not State.UNCONFIRMED:
            return
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
                since = now if assumed_pod.is_seen else assumed_pod.since
                self.assume(
                    msgspec.structs.replace(assumed_pod, state=State.UNCONFIRMED, since=since), len(self._unseen)
                )

    def expire(self, now: float, assume_seconds: float) -> tuple[AssumedPod, ...]:
        """Drop and return the entries older than `assume_seconds`, and unseen ones older than UNSEEN_SECONDS."""
        unseen_seconds = min(UNSEEN_SECONDS, assume_seconds)
        expired = tuple(
            assumed_pod
            for assumed_pod in self._entries.values()
            if now - assumed_pod.since > (assume_seconds if assumed_pod.is_seen else unseen_seconds)
        )
        for assumed_pod in expired:
            self.forget(assumed_pod.uid)
        return expired

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

    @property
    def unseen(self) -> int:
        """Return the number of entries whose pod the watch has not shown."""
        return len(self._unseen)

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
