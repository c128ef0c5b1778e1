"""Remembers which pods schedulers have asked this extender about, and answers the webhook's question for one of them.

The webhook asks when a pod is bound: a pod that no scheduler has asked about was placed without a view of its rails.
"""

import msgspec

from railwright.fabric import bounded_cache
from railwright.serving import routes

_MAX_PODS = 65_536  # of 100 bytes each; more than schedulers place between the requests for a pod and its binding
_MAX_UID = 64  # characters; a UID has 36
_MAX_SCHEDULERS = 8  # names of schedulers that are remembered
_MAX_NAME = 63  # characters


class Answer(msgspec.Struct, frozen=True):
    """The answer about one pod. `answering_seconds` says for how long this process has remembered requests."""

    asked: bool
    answering_seconds: float


class AskedPods:
    """UIDs of the pods of recent requests, and their schedulers. `since` is the time from which they are remembered."""

    def __init__(self, since: float) -> None:
        self._since = since
        self._schedulers: set[str] = set()
        self._uids: bounded_cache.BoundedCache[str, bool] = bounded_cache.BoundedCache(_MAX_PODS)

    def record(self, uid: str, scheduler: str, now: float) -> None:
        """Remember that a scheduler (`spec.schedulerName`) has asked about this pod."""
        if len(uid) > _MAX_UID:
            return
        if len(self._schedulers) < _MAX_SCHEDULERS:
            self._schedulers.add(scheduler[:_MAX_NAME] or "default-scheduler")
        if len(self._uids) >= _MAX_PODS:  # adding one more clears the cache
            self._since = now
        self._uids.add(uid, True)

    def describe(self, now: float) -> str:
        """Return which schedulers have asked, and since when this process would know."""
        asked = f"about pods of {', '.join(sorted(self._schedulers))}" if self._schedulers else "about no pod"
        return f"this extender has answered for {_format_seconds(now - self._since)} and was asked {asked}"

    def answer(self, uid: str, now: float) -> routes.Reply:
        """Answer whether a scheduler has asked about this pod."""
        seconds = max(0.0, now - self._since)
        return routes.Reply(msgspec.json.encode(Answer(self._uids.get(uid) is not None, round(seconds, 1))))


def _format_seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
