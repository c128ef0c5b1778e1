"""Lists recent results of admission: the newest injection records of pods, and the webhook's Events.

Owns what is read of both, their order and their limit. Rows of deleted pods and expired Events stay until newer ones
replace them.
"""

from collections.abc import Sequence

import msgspec

from railwright.fabric import intent, names, text, views
from railwright.fabric.injection import missed
from railwright.fabric.overview import overview_types
from railwright.fabric.workloads import membership

MAX_ROWS = 200  # a table for reading, not for searching
_MAX_MESSAGE = 500  # characters
COMPONENT = "railwright-webhook"  # source of the Events that are read


class Admissions:
    """The newest rows by object, at most MAX_ROWS. A sink of pods; `EventSink` is the sink of Events."""

    def __init__(self) -> None:
        self.generation = 0
        self._rows: dict[str, overview_types.Admission] = {}

    def upsert(self, pod: views.Pod) -> None:
        """Store the row of an opted-in pod, unless it has no record and admission does not cover it."""
        if names.INJECTION not in pod.metadata.annotations and not missed.is_covered(pod):
            return
        self.put(pod.metadata.identity, _describe_pod(pod))

    def put(self, key: str, row: overview_types.Admission) -> None:
        """Store a row; ignore it if the table is full of newer ones."""
        if self._rows.get(key) == row:
            return
        if len(self._rows) >= MAX_ROWS and key not in self._rows and row.at <= min(self._rows.values(), key=_age).at:
            return
        self._rows[key] = row
        self.generation += 1
        if len(self._rows) >= 2 * MAX_ROWS:
            newest = sorted(self._rows.items(), key=lambda item: _age(item[1]), reverse=True)[:MAX_ROWS]
            self._rows = dict(newest)

    def newest(self) -> Sequence[overview_types.Admission]:
        """Return the rows, newest first."""
        return sorted(self._rows.values(), key=_age, reverse=True)[:MAX_ROWS]


class EventSink:
    """Adds the webhook's Events to the rows."""

    def __init__(self, rows: Admissions) -> None:
        self._rows = rows

    def replace(self, objects: Sequence[views.Event]) -> None:
        """Apply the full list of Events."""
        for event in objects:
            self.upsert(event)

    def upsert(self, obj: views.Event) -> None:
        """Store the row of a new or repeated Event of the webhook."""
        source = obj.source.component if obj.source else ""
        if COMPONENT in (source, obj.reporting_component):
            self._rows.put(f"event {obj.metadata.identity}", _describe_event(obj))

    def remove(self, obj: views.Event) -> None:
        """Keep the row: the API server deletes Events after an hour."""


def shorten_record(record: str) -> str:
    """Return an injection record with only the fields that placement reads; an unreadable one is truncated."""
    try:
        fields = intent.decode_record(record)
    except intent.InvalidRecordError:
        return record[:_MAX_MESSAGE]
    return msgspec.json.encode({"fabric": fields.fabric, "rails": fields.rails}).decode()


def _describe_pod(pod: views.Pod) -> overview_types.Admission:
    meta = pod.metadata
    at, name, gang = meta.creation_timestamp or "", f"{meta.namespace}/{meta.name}", membership.find_gang(pod)
    record_text = meta.annotations.get(names.INJECTION)
    if record_text is None:
        message = (
            f"the pod opted in but has no annotation {names.INJECTION}: the webhook did not run for it; "
            "check that the webhook is available and has a valid policy, then recreate the pod"
        )
        fabric = meta.labels.get(names.FABRIC, "")
        return overview_types.Admission(
            at=at, object=name, gang=gang, outcome=overview_types.MISSED, fabric=fabric, message=message
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
        message=text.truncate("; ".join(f"{key}: {reason}" for key, reason in record.skipped.items()), _MAX_MESSAGE),
    )


def _describe_event(event: views.Event) -> overview_types.Admission:
    subject = event.involved_object
    return overview_types.Admission(
        at=event.last_timestamp or event.event_time or event.metadata.creation_timestamp or "",
        object=f"{subject.namespace}/{subject.name}",
        kind=subject.kind,
        outcome=overview_types.EVENT,
        message=text.truncate(f"{event.reason}: {event.message}", _MAX_MESSAGE),
        count=max(1, event.count or 1),
    )


def _age(row: overview_types.Admission) -> tuple[str, str]:
    return row.at, row.object
