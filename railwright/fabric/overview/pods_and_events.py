"""Keeps what the overview reads of pods and Events. Two sinks of watched objects, beside the cluster state.

Of an opted-in pod: what scheduling requests and explanations read. The cluster state knows nodes and resources of the
pods. A result of admission is the injection record of a pod; those of a gang that are equal are one row. Rows of
deleted objects stay until newer ones replace them: the API server deletes Events after an hour.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

import msgspec

from railwright.fabric import bounded_cache, intent, names, text, views
from railwright.fabric.injection import opt_in
from railwright.fabric.overview import overview_types
from railwright.fabric.placement import scheduling_request
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import AdmissionCode, PlacementCode, RejectionCode
from railwright.fabric.workloads import membership, registry

MAX_ROWS = 200  # a list for reading, not for searching
_MAX_MESSAGE = 500  # characters
_Row = TypeVar("_Row", overview_types.Admission, overview_types.Event)


class NewestRows(Generic[_Row]):
    """The newest rows by the identity of their object, at most `limit`."""

    def __init__(self, limit: int) -> None:
        self.generation = 0  # increases with every change
        self._limit = limit
        self._rows: dict[str, _Row] = {}

    def put(self, key: str, row: _Row) -> None:
        """Store a row; ignore it if there are enough newer ones."""
        if self._rows.get(key) == row:
            return
        is_full = len(self._rows) >= self._limit and key not in self._rows
        if is_full and row.at <= min(self._rows.values(), key=_build_sort_key).at:
            return
        self._rows[key] = row
        self.generation += 1
        if len(self._rows) >= 2 * self._limit:
            newest = sorted(self._rows.items(), key=lambda item: _build_sort_key(item[1]), reverse=True)
            self._rows = dict(newest[: self._limit])

    def list_all(self) -> Sequence[_Row]:
        """Return the rows, newest first."""
        return sorted(self._rows.values(), key=_build_sort_key, reverse=True)[: self._limit]


def _build_sort_key(row: overview_types.Admission | overview_types.Event) -> tuple[str, str]:
    return row.at, row.object


# --- results of admission -------------------------------------------------------------------------------------

_MAX_PODS = 1000  # pods whose results are stored
_NOT_INJECTED = reason.Reason(
    AdmissionCode.NOT_INJECTED,
    "the pod opted in but has no annotation railwright.io/injection: the webhook did not run for it",
    fix="check that the webhook is available and has a valid policy, then recreate the pod",
).line


class Admissions:
    """The results of the newest pods. A sink of pods."""

    def __init__(self) -> None:
        self.rows: NewestRows[overview_types.Admission] = NewestRows(_MAX_PODS)

    def upsert(self, pod: views.Pod) -> None:
        """Store the row of an opted-in pod, unless it has no record and admission does not cover it."""
        if names.INJECTION in pod.metadata.annotations or opt_in.is_covered(pod):
            self.rows.put(pod.metadata.identity, _describe_pod(pod))

    def list_newest(self) -> Sequence[overview_types.Admission]:
        """Return one row for the pods of a gang with equal results, newest first."""
        groups: dict[overview_types.Admission, list[overview_types.Admission]] = {}
        for row in self.rows.list_all():
            result = msgspec.structs.replace(row, at="", object="" if row.gang else row.object, added=0, user_values=0)
            groups.setdefault(result, []).append(row)
        return [_merge(rows) for rows in groups.values()][:MAX_ROWS]


def _merge(rows: Sequence[overview_types.Admission]) -> overview_types.Admission:
    """Return one row for equal results of a gang's pods, newest first; numbers are the most of any pod."""
    return msgspec.structs.replace(
        rows[0],
        count=len(rows),
        first_at=rows[-1].at if len(rows) > 1 else "",
        added=max(row.added for row in rows),
        user_values=max(row.user_values for row in rows),
    )


def _describe_pod(pod: views.Pod) -> overview_types.Admission:
    meta = pod.metadata
    at, name, gang = meta.creation_timestamp or "", meta.full_name, membership.find_gang(pod)
    record_text = meta.annotations.get(names.INJECTION)
    if record_text is None:
        fabric = meta.labels.get(names.FABRIC, "")
        return overview_types.Admission(
            at=at, object=name, gang=gang, outcome=overview_types.MISSED, fabric=fabric, message=_NOT_INJECTED
        )
    try:
        record = intent.decode_record(record_text)
    except intent.InvalidRecordError as error:
        message = text.truncate(f"annotation {names.INJECTION}: cannot be read: {error}", _MAX_MESSAGE)
        return overview_types.Admission(at=at, object=name, gang=gang, outcome=overview_types.MISSED, message=message)
    return overview_types.Admission(
        at=at,
        object=name,
        gang=gang,
        outcome=overview_types.INJECTED if record.rails else overview_types.SKIPPED,
        fabric=record.fabric,
        role=record.role,
        rails=len(record.rails or ()),
        added=len(record.added),
        user_values=len(record.user_values),
        skipped=len(record.skipped),
        message=text.truncate(_describe_skipped(record), _MAX_MESSAGE),
    )


def _describe_skipped(record: intent.Record) -> str:
    """Return each entry that was left out, with its reason."""
    return "; ".join(f"{entry}: {recorded.text}" for entry, recorded in record.skipped.items())


# --- Events ---------------------------------------------------------------------------------------------------

COMPONENTS = frozenset({"railwright-webhook", "railwright-extender"})  # sources of the Events that are read
_CODES = frozenset(code.value for code in (*PlacementCode, *AdmissionCode, *RejectionCode))
_RULE = re.compile(r"N\d\d", re.ASCII)  # code of a lint rule


class RecentEvents:
    """The newest Events. A sink: replace, upsert, remove."""

    def __init__(self) -> None:
        self.rows: NewestRows[overview_types.Event] = NewestRows(MAX_ROWS)

    def replace(self, objects: Sequence[views.Event]) -> None:
        """Apply the full list of Events of one component."""
        for event in objects:
            self.upsert(event)

    def upsert(self, obj: views.Event) -> None:
        """Store a new or repeated Event, unless it is another component's."""
        component = (obj.source.component if obj.source else "") or obj.reporting_component
        if component in COMPONENTS:
            self.rows.put(obj.metadata.identity, _describe_event(obj))

    def remove(self, obj: views.Event) -> None:
        """Keep the row: the API server deletes Events after an hour."""

    def list_newest(self) -> Sequence[overview_types.Event]:
        """Return the rows, newest first."""
        return self.rows.list_all()


def _describe_event(event: views.Event) -> overview_types.Event:
    subject = event.involved_object
    code, separator, rest = event.message.partition(": ")
    has_code = bool(separator) and (code in _CODES or _RULE.fullmatch(code) is not None)
    return overview_types.Event(
        at=event.last_timestamp or event.event_time or event.metadata.creation_timestamp or "",
        object=f"{subject.namespace}/{subject.name}",
        kind=subject.kind,
        reason=event.reason,
        message=text.truncate(rest if has_code else event.message, _MAX_MESSAGE),
        is_warning=event.type == "Warning",
        code=code if has_code else "",
        count=max(1, event.count or 1),
    )


# --- the pods -----------------------------------------------------------------------------------------------


_MAX_RECORD = 500  # characters of a record that cannot be read
_MAX_SPECS = 4096  # distinct scheduling constraints; all pods of a gang share one
_ANNOTATIONS = (  # that placement reads
    names.FABRIC,
    names.INJECTION,
    names.RAILS,
    *(key for framework in registry.FRAMEWORKS for key in framework.gang_annotations),
)


class OptedInPods:
    """Opted-in pods by uid and by gang. A sink: replace, upsert, remove."""

    def __init__(self) -> None:
        self.admissions = Admissions()
        self.generation = 0  # increases with every change
        self._pods: dict[str, views.Pod] = {}
        self._gangs: dict[membership.GangKey, dict[str, views.Pod]] = defaultdict(dict)
        self._specs = bounded_cache.BoundedCache[bytes, views.PodSpec](_MAX_SPECS)

    @property
    def gangs(self) -> Mapping[membership.GangKey, Mapping[str, views.Pod]]:
        """Return the opted-in pods of each gang by uid."""
        return self._gangs

    @property
    def pods(self) -> Mapping[str, views.Pod]:
        """Return all reduced pods by uid."""
        return self._pods

    def get_pod(self, uid: str) -> views.Pod | None:
        """Return the reduced pod; None if it did not opt in."""
        return self._pods.get(uid)

    def replace(self, objects: Sequence[views.Pod]) -> None:
        """Apply the full list of pods."""
        for uid in self._pods.keys() - {pod.metadata.identity for pod in objects}:
            self._forget(uid)
        for pod in objects:
            self.upsert(pod)

    def upsert(self, obj: views.Pod) -> None:
        """Store a pod, or remove it if it is not opted in."""
        if not intent.is_opted_in(obj):
            self.remove(obj)
            return
        self.admissions.upsert(obj)
        uid = obj.metadata.identity
        reduced = self._reduce(obj)
        if reduced == self._pods.get(uid):
            return
        self._forget(uid)
        self._pods[uid] = reduced
        if gang := membership.find_gang(obj):
            self._gangs[gang][uid] = reduced
        self.generation += 1

    def remove(self, obj: views.Pod) -> None:
        """Remove a pod. Its row in `admissions` stays."""
        self._forget(obj.metadata.identity)

    def _forget(self, uid: str) -> None:
        pod = self._pods.pop(uid, None)
        if pod is None:
            return
        self.generation += 1
        gang = membership.find_gang(pod)
        if gang in self._gangs:
            self._gangs[gang].pop(uid, None)
            if not self._gangs[gang]:
                del self._gangs[gang]

    def _reduce(self, pod: views.Pod) -> views.Pod:
        meta = pod.metadata
        annotations = {key: meta.annotations[key] for key in _ANNOTATIONS if key in meta.annotations}
        if names.INJECTION in annotations:  # kilobytes, of which placement reads two fields
            annotations[names.INJECTION] = shorten_record(annotations[names.INJECTION])
        return views.Pod(
            metadata=views.ObjectMeta(
                name=meta.name,
                namespace=meta.namespace,
                uid=meta.uid,
                creation_timestamp=meta.creation_timestamp,
                labels_or_none=dict(meta.labels),
                annotations_or_none=annotations,
                owner_references_or_none=meta.owner_references_or_none,
            ),
            spec=self._share_spec(pod.spec),
        )

    def _share_spec(self, spec: views.PodSpec) -> views.PodSpec:
        """Return the scheduling-relevant part of a spec. Pods with equal parts share one object."""
        slim = scheduling_request.trim_spec(spec)
        return self._specs.find(msgspec.json.encode(slim), lambda: slim)


def shorten_record(record: str) -> str:
    """Return an injection record with only the fields that placement reads; an unreadable one is truncated."""
    try:
        fields = intent.decode_record(record)
    except intent.InvalidRecordError:
        return record[:_MAX_RECORD]
    return msgspec.json.encode({"fabric": fields.fabric, "rails": fields.rails}).decode()
