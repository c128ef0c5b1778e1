"""Remembers which pods schedulers have asked this extender about, and answers the webhook's question for one of them.

The webhook asks when a pod is bound: a pod that no scheduler has asked about was placed without a view of its rails.
"""

import msgspec

from railwright.fabric import bounded_cache
from railwright.serving import routes

_MAX_PODS = 65_536  # of 100 bytes each; more than schedulers place between the requests for a pod and its binding
_MAX_UID = 64  # characters; a UID has 36


class Answer(msgspec.Struct, frozen=True):
    """The answer about one pod. `answering_seconds` says for how long this process has remembered requests."""

    asked: bool
    answering_seconds: float


class AskedPods:
    """UIDs of the pods of recent requests. `since` is the time from which they are remembered."""

    def __init__(self, since: float) -> None:
        self._since = since
        self._uids: bounded_cache.BoundedCache[str, bool] = bounded_cache.BoundedCache(_MAX_PODS)

    def record(self, uid: str, now: float) -> None:
        """Remember that a scheduler has asked about this pod."""
        if len(uid) > _MAX_UID:
            return
        if len(self._uids) >= _MAX_PODS:  # adding one more clears the cache
            self._since = now
        self._uids.add(uid, True)

    def answer(self, uid: str, now: float) -> routes.Reply:
        """Answer whether a scheduler has asked about this pod."""
        seconds = max(0.0, now - self._since)
        return routes.Reply(msgspec.json.encode(Answer(self._uids.get(uid) is not None, round(seconds, 1))))
