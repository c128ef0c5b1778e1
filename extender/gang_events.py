"""Posts Events about gangs on their PodGroup, or on their first pod if they have no PodGroup.

There are Events for gangs that never fit, that are spread, or whose pods were admitted under different versions of the
policy. There are none for gangs that wait for other pods to end.
"""

from extender import gang_tracker
from railwright.cluster import events
from railwright.fabric.overview import overview_types
from railwright.fabric.placement.state import cluster_state
from railwright.fabric.reasons import reason

NEVER, SPREAD, MIXED = "GangNeverFits", "GangSpread", "GangMixedPolicies"  # stable
_REASONS = {overview_types.NEVER: NEVER, overview_types.SPREAD: SPREAD, gang_tracker.MIXED: MIXED}


def post(poster: events.Events, cluster: cluster_state.ClusterState, outcome: gang_tracker.Outcome) -> None:
    """Queue an Event for an outcome, if there is one for its code."""
    if (event_reason := _REASONS.get(outcome.code)) is None:
        return
    if (group := cluster.sizes.find_pod_group(outcome.gang)) is not None:
        kind, api_version, key, uid = "PodGroup", group.api_version, str(outcome.gang), group.uid
    else:
        kind, api_version, key, uid = "Pod", "v1", outcome.first.key, outcome.first.uid
    namespace, _, name = key.partition("/")
    involved = events.Involved(kind, api_version, namespace, name, uid)
    message = f"{outcome.reasons[0].code}: {reason.join_texts(outcome.reasons)}"
    poster.post(involved, warning=True, reason=event_reason, message=message)
