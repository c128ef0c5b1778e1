"""Posts Events about gangs on their PodGroup, or on their first pod if they have no PodGroup.

A gang that waits for other pods to end is no Event. One that never fits, that is spread, or whose pods were admitted
under different versions of the policy is.
"""

from collections.abc import Sequence

import msgspec

from extender import gang_tracker
from railwright.cluster import events, sinks, sources
from railwright.fabric.overview import overview_types
from railwright.fabric.placement.state import declared_sizes
from railwright.fabric.reasons import reason
from railwright.fabric.workloads import membership

NEVER, SPREAD, MIXED = "GangNeverFits", "GangSpread", "GangMixedPolicies"  # stable
_REASONS = {overview_types.NEVER: NEVER, overview_types.SPREAD: SPREAD, gang_tracker.MIXED: MIXED}


class PodGroups:
    """References to the existing PodGroups for Events, by gang."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, events.Involved]] = {}  # API version -> gang

    def add_recorder(self, watch: sources.WatchSpec) -> sources.WatchSpec:
        """Return a watch of PodGroups that also records them here. Return any other watch unchanged."""
        if not watch.kind.path.endswith("/podgroups"):
            return watch
        version = "/".join(watch.kind.path.split("/")[2:4])
        groups = self._groups.setdefault(version, {})

        def upsert(group: declared_sizes.SizedObject) -> None:
            meta = group.metadata
            groups[meta.full_name] = events.Involved("PodGroup", version, meta.namespace, meta.name, meta.uid)

        def replace(listed: Sequence[declared_sizes.SizedObject]) -> None:
            groups.clear()
            for group in listed:
                upsert(group)

        recorder: sinks.Functions[declared_sizes.SizedObject] = sinks.Functions(
            replace, upsert, lambda group: groups.pop(group.metadata.full_name, None)
        )
        return msgspec.structs.replace(watch, sink=sinks.Several(recorder, watch.sink))

    def find(self, gang: membership.GangKey) -> events.Involved | None:
        """Return the PodGroup of a gang, or None."""
        return next((groups[gang] for groups in self._groups.values() if gang in groups), None)


def post(poster: events.Events, pod_groups: PodGroups, outcome: gang_tracker.Outcome) -> None:
    """Queue an Event for an outcome, if there is one for its code."""
    if (event_reason := _REASONS.get(outcome.code)) is None:
        return
    first = outcome.first
    namespace, _, name = first.key.partition("/")
    involved = pod_groups.find(outcome.gang) or events.Involved(
        kind="Pod", api_version="v1", namespace=namespace, name=name, uid=first.uid
    )
    message = f"{outcome.reasons[0].code}: {reason.join_texts(outcome.reasons)}"
    poster.post(involved, warning=True, reason=event_reason, message=message)
