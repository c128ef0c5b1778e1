"""Posts Events about gangs on their PodGroup, or on their first pod if they have no PodGroup.

Defines the reasons, and which outcomes become Events: a gang that cannot be placed, one whose pods were admitted under
different versions of the policy, one with a worse placement than was possible, and one with the best possible placement
at less than full bandwidth. The outcomes bring the messages.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from extender import gang_tracker
from extender import state as states
from railwright.cluster import events, sinks, sources
from railwright.fabric.placement.explain import node_explainer, placement_result
from railwright.fabric.placement.state import declared_sizes, object_info, pod_usage, rail_health, rail_reports
from railwright.fabric.reasons import reason, rendering
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
        recorder = _Recorder(self._groups.setdefault(version, {}), version)
        return msgspec.structs.replace(watch, sink=sinks.Several(recorder, watch.sink))

    def find(self, gang: membership.GangKey) -> events.Involved | None:
        """Return the PodGroup of a gang, or None."""
        return next((groups[gang] for groups in self._groups.values() if gang in groups), None)


class _Recorder:
    """Records the PodGroups of one API version."""

    def __init__(self, groups: dict[str, events.Involved], version: str) -> None:
        self._groups, self._version = groups, version

    def replace(self, objects: Sequence[declared_sizes.SizedObject]) -> None:
        self._groups.clear()
        for group in objects:
            self.upsert(group)

    def upsert(self, obj: declared_sizes.SizedObject) -> None:
        meta = obj.metadata
        self._groups[meta.full_name] = events.Involved(
            kind="PodGroup", api_version=self._version, namespace=meta.namespace, name=meta.name, uid=meta.uid
        )

    def remove(self, obj: declared_sizes.SizedObject) -> None:
        self._groups.pop(obj.metadata.full_name, None)


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


# --- rails that running gangs use and that are reported not to work; gangs are never evicted -----------

REPORTED = "GangRailReported"  # stable
_SETTLED_SECONDS = 5.0
_MAX_POSTED = 100  # reports at once; the others follow a second later
_MAX_RAILS = 3  # in a message, which has at most 1,024 characters


class _Report(NamedTuple):
    """A report about a rail of a node."""

    node: str
    fabric: str
    rail: str
    source: str


class RailEvents:
    """Posts each report once. Every replica tracks reports, so that a new leader does not repeat them."""

    def __init__(
        self,
        state: states.State,
        pod_groups: PodGroups,
        poster: events.Events | None,
        is_leader: Callable[[], bool],
    ) -> None:
        self._state, self._pod_groups, self._poster, self._is_leader = state, pod_groups, poster, is_leader
        self._version = -1  # of the reports
        self._waiting: dict[_Report, float] = {}  # since when it is known
        self._posted: set[_Report] = set()

    def update(self) -> None:
        """Post the reports that are due. Call it about once a second."""
        health, now = self._state.cluster.health, self._state.clock()
        if health.version != self._version:
            self._version = health.version
            present = set(_list_reports(health))
            self._posted &= present
            self._waiting = {row: self._waiting.get(row, now) for row in present - self._posted}
        due = [row for row, since in self._waiting.items() if now - since >= _SETTLED_SECONDS][:_MAX_POSTED]
        for row in due:
            del self._waiting[row]
        self._posted.update(due)
        if due and self._is_leader():
            self._post(due)

    def _post(self, reports: list[_Report]) -> None:
        """Post one Event for each gang, or pod without a gang, that uses one of these rails."""
        causes: dict[str, tuple[object_info.PodInfo, list[reason.Reason]]] = {}
        cluster = self._state.cluster
        for row in reports:
            for state in cluster.health.list_states(row.node, row.fabric):
                for pod in self._list_users(row) if (state.rail, state.source) == (row.rail, row.source) else ():
                    _, reasons = causes.setdefault(pod.gang or pod.key, (pod, []))
                    reasons.append(node_explainer.describe_report(state, row.node))
        for pod, reasons in causes.values():
            namespace, _, name = pod.key.partition("/")
            involved = self._pod_groups.find(pod.gang) or events.Involved(
                kind="Pod", api_version="v1", namespace=namespace, name=name, uid=pod.uid
            )
            distinct = list(dict.fromkeys(reasons))
            message = rendering.render_for_event(distinct[:_MAX_RAILS])
            more = len(distinct) - _MAX_RAILS
            if self._poster is not None:
                text = f"{message}; and {more} more" if more > 0 else message
                self._poster.post(involved, warning=True, reason=REPORTED, message=text)

    def _list_users(self, row: _Report) -> Iterator[object_info.PodInfo]:
        """Yield the pods on the node that use the rail, or may use it because rails share its resource."""
        cluster = self._state.cluster
        fabric = cluster.health_policy.fabrics.get(row.fabric)
        rail = next((rail for rail in fabric.rails if rail.name == row.rail), None) if fabric is not None else None
        if fabric is None or rail is None:
            return
        for pod in sorted(cluster.list_pods_on(row.node), key=lambda pod: pod.rank):
            if not rail.resource:
                is_user = pod.fabric == row.fabric and row.rail in pod.rails
            else:
                held = pod_usage.list_held_rails(fabric, pod, cluster)
                is_user = pod.requests.get(rail.resource, 0) > 0 or any(device.rail == row.rail for device in held)
            if is_user:
                yield pod


def _list_reports(health: rail_health.RailHealth) -> Iterator[_Report]:
    for node, fabrics in health.nodes.items():
        for fabric, own in fabrics.items():
            for state in own:
                if not state.is_held and state.belief != rail_reports.IGNORE:
                    yield _Report(node, fabric, state.rail, state.source)
