"""Posts Events about gangs on their PodGroup, or on their first pod if they have no PodGroup.

Defines the reasons, and which outcomes become Events: a gang that cannot be placed, one whose pods were admitted under
different versions of the policy, one with a worse placement than was possible, and one with the best possible placement
at less than full bandwidth. The outcomes bring the messages.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from extender import gang_tracker
from railwright.cluster import events, sinks, sources
from railwright.fabric.placement.explain import placement_result
from railwright.fabric.placement.state import declared_sizes
from railwright.fabric.reasons import rendering
from railwright.fabric.workloads import membership

UNPLACEABLE, SPREAD, DEGRADED, LIMITED = "GangUnplaceable", "GangSpread", "GangDegraded", "GangLimited"  # stable
MIXED = "GangMixedPolicies"
_WARNINGS = {
    gang_tracker.UNPLACEABLE: UNPLACEABLE,
    placement_result.SPREAD: SPREAD,
    placement_result.DEGRADED: DEGRADED,
    gang_tracker.MIXED: MIXED,
}


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
        return msgspec.structs.replace(watch, sink=_RecordingSink(watch.sink, groups, version))

    def find(self, gang: membership.GangKey) -> events.Involved | None:
        """Return the PodGroup of a gang, or None."""
        return next((groups[gang] for groups in self._groups.values() if gang in groups), None)


class _RecordingSink:
    """Forwards everything to a sink, and records the PodGroups."""

    def __init__(self, sink: sinks.Sink[Any], groups: dict[str, events.Involved], version: str) -> None:
        self._sink, self._groups, self._version = sink, groups, version

    def replace(self, objects: Sequence[declared_sizes.SizedObject]) -> None:
        self._groups.clear()
        for group in objects:
            self._record(group)
        self._sink.replace(objects)

    def upsert(self, obj: declared_sizes.SizedObject) -> None:
        self._record(obj)
        self._sink.upsert(obj)

    def remove(self, obj: declared_sizes.SizedObject) -> None:
        self._groups.pop(_get_key(obj), None)
        self._sink.remove(obj)

    def _record(self, group: declared_sizes.SizedObject) -> None:
        meta = group.metadata
        self._groups[_get_key(group)] = events.Involved(
            kind="PodGroup", api_version=self._version, namespace=meta.namespace, name=meta.name, uid=meta.uid
        )


def _get_key(group: declared_sizes.SizedObject) -> str:
    return f"{group.metadata.namespace}/{group.metadata.name}"


def build_sink(poster: events.Events | None, pod_groups: PodGroups) -> Callable[[gang_tracker.Outcome], None]:
    """Return a function that queues an Event for an outcome, or does nothing without an API server."""

    def post(outcome: gang_tracker.Outcome) -> None:
        event_reason = _WARNINGS.get(outcome.code) or (LIMITED if outcome.bandwidth < rendering.FULL_BANDWIDTH else "")
        if poster is None or not event_reason:
            return
        involved = pod_groups.find(outcome.gang) or events.Involved(
            kind="Pod", api_version="v1", namespace=outcome.namespace, name=outcome.pod, uid=outcome.uid
        )
        message = rendering.render_for_event(outcome.reasons)
        poster.post(involved, warning=outcome.code in _WARNINGS, reason=event_reason, message=message)

    return post
