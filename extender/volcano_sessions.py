"""Tracks whether this process has observed a scheduler's running session from its start.

Volcano announces a gang task by task within one session, and never announces an earlier task again. An extender that
starts in the middle of a gang does not know where its first pods are, and would plan the rest without them. An error
for one of the remaining tasks makes Volcano roll the gang back. The next session, a moment later, places all of it.
"""

from railwright.fabric.placement.state import assumed_pods, cluster_state, gang_status
from railwright.fabric.workloads import membership

_MAX_TRACKED = 1000  # scopes and gangs; a scope is part of a path that callers choose, so the number must be bounded


class Sessions:
    """The scopes that have had a session end since this process started, and the gangs rejected once."""

    def __init__(self) -> None:
        self._observed_scopes: set[str] = set()
        self._rejected_gangs: set[membership.GangKey] = set()

    def end(self, scope: str) -> None:
        """Record the end of a session: the scope's next session is observed from its start."""
        if len(self._observed_scopes) < _MAX_TRACKED:
            self._observed_scopes.add(scope)

    def check_rejection(
        self,
        scope: str,
        assumed_pod: assumed_pods.AssumedPod,
        cluster: cluster_state.ClusterState,
        assumed: assumed_pods.AssumedPods,
    ) -> bool:
        """True (once for each gang) if earlier peers may have been placed before this process observed the session."""
        if (
            scope in self._observed_scopes
            or assumed_pod.state is not assumed_pods.State.ALLOCATED
            or len(self._rejected_gangs) >= _MAX_TRACKED
        ):
            return False
        if assumed_pod.gang in self._rejected_gangs or not _has_unplaced_predecessor(assumed_pod, cluster, assumed):
            return False
        self._rejected_gangs.add(assumed_pod.gang)
        return True


def _has_unplaced_predecessor(
    assumed_pod: assumed_pods.AssumedPod, cluster: cluster_state.ClusterState, assumed: assumed_pods.AssumedPods
) -> bool:
    """True if a peer with a lower index is neither bound nor assumed. Volcano orders tasks by index, not by role."""
    return any(
        peer.rank.index < assumed_pod.rank.index
        for peer in gang_status.list_unplaced(assumed_pod.gang, cluster, assumed)
    )
