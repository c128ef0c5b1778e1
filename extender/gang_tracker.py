"""Tracks the gangs of opted-in pods: their waiting times, and their states for Events and metrics.

`gang_assessment` computes the states from the cluster alone, independent of scheduler requests. A gang that
never fits is reported after WAITING_SECONDS. When the last pod of a gang is bound, its placement is reported once.
Gangs that were placed before the first check are not reported. Times are arguments, in seconds.

An Event is about the gang's PodGroup, or about its first pod if it has no PodGroup. There are Events for gangs that
never fit, that are spread, or whose pods were admitted under different versions of the policy. There are none for gangs
that wait for other pods to end.
"""

from collections.abc import Sequence

import msgspec

from extender import state as states
from railwright.cluster import events
from railwright.fabric.overview import gang_assessment, overview_types
from railwright.fabric.placement.state import cluster_state, object_info
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import PlacementCode
from railwright.fabric.workloads import membership

MAX_TRACKED = 1000  # gangs
WAITING_SECONDS = 10.0  # long enough for nodes that restart a device plugin, and for a scheduler's next two sessions
RECHECK_SECONDS = 60.0  # between two checks of a gang that waits
_ASSESSED_PER_CHECK = 4  # gangs that are complete; each takes a few milliseconds, which requests wait for
MIXED = "mixed"  # pods were admitted under different versions of the policy; whatever the state of the gang
# by the code of an outcome; stable: users filter by them
EVENT_REASONS = {overview_types.NEVER: "GangNeverFits", overview_types.SPREAD: "GangSpread", MIXED: "GangMixedPolicies"}


class Outcome(msgspec.Struct, frozen=True):
    """A state of a gang to report in an Event and a metric."""

    code: str  # overview_types.PLACED, SPREAD or NEVER, or MIXED
    gang: membership.GangKey
    first: object_info.PodInfo  # of its pods
    reasons: tuple[reason.Reason, ...]  # most important first
    attained: float = 0.0  # its bandwidth in proportion to the best possible; 0 if not placed or not modelled
    is_repeated: bool = False  # it was reported before


class _TrackedGang(msgspec.Struct):
    """How long one gang has been waiting, and which of its states were reported."""

    since: float
    check_after: float
    is_placed: bool = False
    is_never: bool = False  # it was reported that it never fits
    mixed: reason.Reason | None = None  # set if pods were admitted under several versions of the policy


class GangTracker:
    """Tracks up to MAX_TRACKED gangs of opted-in pods. Not thread-safe: used by one event loop."""

    def __init__(self, state: states.State, assessor: gang_assessment.Assessor) -> None:
        self._state, self._assessor = state, assessor
        self._gangs: dict[membership.GangKey, _TrackedGang] = {}
        self._is_first = True

    def count_waiting(self, now: float) -> tuple[int, float]:
        """Return the number of waiting gangs, and the seconds of the longest wait."""
        waits = [now - tracked.since for tracked in self._gangs.values() if not tracked.is_placed]
        return len(waits), max(waits, default=0.0)

    def find_outcomes(self, now: float) -> Sequence[Outcome]:
        """Return the states of gangs to report since the last call. Call it about once a second."""
        cluster, outcomes, assessed, has_checked = self._state.cluster, list[Outcome](), 0, False
        known = cluster.opted_in_gangs
        self._gangs = {key: tracked for key, tracked in self._gangs.items() if key in known}
        for key in known:
            members = list(cluster.get_gang(key).values())
            if key not in self._gangs and len(self._gangs) >= MAX_TRACKED:
                continue
            size = cluster.get_gang_size(key, observed=len(members))
            is_placed = len(members) >= size and all(pod.node for pod in members)
            is_old = is_placed and self._is_first
            tracked = self._gangs.setdefault(key, _TrackedGang(now, now + WAITING_SECONDS, is_old))
            first = min(members, key=lambda pod: pod.rank)
            outcomes += self._find_mixed_policies(tracked, first)
            if is_placed and not tracked.is_placed:
                if assessed < _ASSESSED_PER_CHECK:
                    assessed += 1
                    tracked.is_placed = True
                    outcomes += self._find_placement_outcome(first) if len(members) > 1 else ()
            elif not is_placed and tracked.is_placed:  # it has lost or gained a pod
                tracked.is_placed, tracked.is_never = False, False
                tracked.since, tracked.check_after = now, now + WAITING_SECONDS
            elif not is_placed and all(pod.node or pod.is_held for pod in members):
                tracked.since, tracked.check_after = now, now + WAITING_SECONDS  # nobody is to place a pod now
            elif not is_placed and now >= tracked.check_after and not has_checked:
                has_checked = True  # one per call: a large gang takes a few milliseconds
                tracked.check_after = now + RECHECK_SECONDS
                outcomes += self._find_lack_of_capacity(tracked, first)
        self._is_first = False
        return outcomes

    def _find_mixed_policies(self, tracked: _TrackedGang, first: object_info.PodInfo) -> Sequence[Outcome]:
        """Return a new outcome if pods of a gang were admitted under several versions of the policy."""
        mixed = self._assessor.describe_mixed_policies(first.gang)
        is_new, tracked.mixed = mixed != tracked.mixed, mixed
        return (Outcome(MIXED, first.gang, first, (mixed,)),) if is_new and mixed else ()

    def _find_placement_outcome(self, first: object_info.PodInfo) -> Sequence[Outcome]:
        """Return the outcome of a placed gang; none if the policy has no domains."""
        assessment = self._assessor.assess_gang(self._assessor.list_members(first))
        if not assessment.bandwidth or not assessment.best:
            return ()
        attained = assessment.bandwidth / assessment.best
        return (Outcome(assessment.state, first.gang, first, assessment.why, attained),)

    def _find_lack_of_capacity(self, tracked: _TrackedGang, first: object_info.PodInfo) -> Sequence[Outcome]:
        """Return an outcome if a gang would not fit even if no other pod ran."""
        assessment = self._assessor.assess_gang(self._assessor.list_members(first))
        is_repeated, tracked.is_never = tracked.is_never, assessment.state == overview_types.NEVER
        # the other reasons change with the pods that run now, and each text would be an Event of its own
        why = tuple(cause for cause in assessment.why if cause.code is PlacementCode.CAPACITY_NEVER)
        return (Outcome(overview_types.NEVER, first.gang, first, why, is_repeated=is_repeated),) if why else ()


def post_event(poster: events.Events, cluster: cluster_state.ClusterState, outcome: Outcome) -> None:
    """Queue an Event for an outcome, if there is one for its code."""
    if (event_reason := EVENT_REASONS.get(outcome.code)) is None:
        return
    if (group := cluster.sizes.find_pod_group(outcome.gang)) is not None:
        kind, api_version, key, uid = "PodGroup", group.api_version, str(outcome.gang), group.uid
    else:
        kind, api_version, key, uid = "Pod", "v1", outcome.first.key, outcome.first.uid
    namespace, _, name = key.partition("/")
    involved = events.InvolvedObject(kind, api_version, namespace, name, uid)
    message = f"{outcome.reasons[0].code}: {reason.join_texts(outcome.reasons)}"
    poster.post(involved, warning=True, reason=event_reason, message=message)
