"""Holds the pods that wait for a node, so that they are explained although no scheduler asks about them.

A scheduler asks an extender about nodes that its own plugins accept. They count GPUs, rails and devices of claims
themselves, so that a gang that waits for its devices may never be asked about.
"""

from collections.abc import Sequence

from railwright.fabric import names, views

_MAX_PODS = 1000  # pods that wait at once and are explained
_MAX_DUE = 10  # pods looked at at once; each takes a few milliseconds in a large cluster
_GATED = "SchedulingGated"  # reason of a condition (k8s.io/api/core/v1, PodReasonSchedulingGated)


class WaitingPods:
    """The pods with claims, a fabric or a record of injection that are not bound and not held back by a gate."""

    def __init__(self) -> None:
        self._pods: dict[str, views.Pod] = {}
        self._since: dict[str, float] = {}  # when a pod was seen first, or listed as due

    def upsert(self, pod: views.Pod) -> None:
        """Add a pod if it waits and may use a fabric; otherwise remove it."""
        uid = pod.metadata.identity
        if not _is_waiting(pod) or (uid not in self._pods and len(self._pods) >= _MAX_PODS):
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
        """Return at most _MAX_DUE waiting pods that were not returned for `seconds`. Call it about once a second."""
        since = self._since
        due = [pod for uid, pod in self._pods.items() if now - since.setdefault(uid, now) >= seconds][:_MAX_DUE]
        since.update((pod.metadata.identity, now) for pod in due)
        return due


def _is_waiting(pod: views.Pod) -> bool:
    if pod.spec.node_name or pod.metadata.deletion_timestamp:
        return False
    uses_fabric = names.FABRIC in pod.metadata.labels or names.INJECTION in pod.metadata.annotations
    if not (uses_fabric or pod.spec.resource_claims):
        return False
    return all(condition.reason != _GATED for condition in pod.status.conditions or ())
