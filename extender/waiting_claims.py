"""Holds the pods with claims that wait for a node, so that they are explained although no scheduler asks about them.

A scheduler asks an extender about nodes that its own plugins accept. Its plugin for Dynamic Resource Allocation rejects
every node whose devices are in use, so that a gang that waits for its rails may never be asked about.
"""

from collections.abc import Sequence

from railwright.fabric import views

_MAX_PODS = 1000  # pods that wait at once and are explained
_MAX_DUE = 20  # pods explained at once; each takes a few milliseconds in a large cluster


class WaitingClaims:
    """The pods with claims that are not bound."""

    def __init__(self) -> None:
        self._pods: dict[str, views.Pod] = {}
        self._since: dict[str, float] = {}  # when a pod was seen first, or listed as due

    def upsert(self, pod: views.Pod) -> None:
        """Add a pod if it waits and has claims; otherwise remove it."""
        uid = pod.metadata.identity
        is_waiting = bool(pod.spec.resource_claims) and not pod.spec.node_name and not pod.metadata.deletion_timestamp
        if not is_waiting or (uid not in self._pods and len(self._pods) >= _MAX_PODS):
            self.remove(uid)
        else:
            self._pods[uid] = pod

    def remove(self, uid: str) -> None:
        """Remove a pod."""
        if self._pods.pop(uid, None) is not None:
            self._since.pop(uid, None)

    def retain(self, uids: set[str]) -> None:
        """Remove all other pods."""
        for uid in self._pods.keys() - uids:
            self.remove(uid)

    def list_due(self, now: float, seconds: float) -> Sequence[views.Pod]:
        """Return some of the pods that have waited so long since the last time. Call it about once a second."""
        since = self._since
        due = [pod for uid, pod in self._pods.items() if now - since.setdefault(uid, now) >= seconds][:_MAX_DUE]
        since.update((pod.metadata.identity, now) for pod in due)
        return due
