"""What admission did lately: the newest injection records of pods, and what the webhook said in Events.

Owns what is read of both, their order and their bound. A pod that has gone is still told of: "lately" outlives it.
"""

from collections.abc import Mapping, Sequence

import msgspec

from railwright.fabric import names, views, workload
from railwright.fabric.injection import missed
from railwright.fabric.overview import model

KEPT = 200  # rows; the table is read, not searched
_LONGEST = 500  # characters of a message
COMPONENT = "railwright-webhook"  # whose Events are read


class _Record(msgspec.Struct, frozen=True):
    """The part of the record that is shown."""

    fabric: str = ""
    role: str = ""
    rails: Sequence[str] = ()
    added: Sequence[str] = ()
    kept: Mapping[str, object] = {}
    skipped: Mapping[str, str] = {}


_decode = msgspec.json.Decoder(_Record).decode


class Admissions:
    """The newest rows by object, at most KEPT. A sink of pods; `Events` is the sink of Events."""

    def __init__(self) -> None:
        self.generation = 0
        self._rows: dict[str, model.Admission] = {}

    def upsert(self, pod: views.Pod) -> None:
        """A pod that opted in appeared or changed."""
        if names.INJECTION not in pod.metadata.annotations and not missed.is_covered(pod):
            return
        self.put(pod.metadata.identity, _of_pod(pod))

    def put(self, key: str, row: model.Admission) -> None:
        """A row is new or has changed."""
        if self._rows.get(key) == row:
            return
        if len(self._rows) >= KEPT and key not in self._rows and row.at <= min(self._rows.values(), key=_age).at:
            return
        self._rows[key] = row
        self.generation += 1
        if len(self._rows) >= 2 * KEPT:
            self._rows = dict(sorted(self._rows.items(), key=lambda each: _age(each[1]), reverse=True)[:KEPT])

    def newest(self) -> Sequence[model.Admission]:
        """The rows, the newest first."""
        return sorted(self._rows.values(), key=_age, reverse=True)[:KEPT]


class Events:
    """Feeds the webhook's Events into the rows. A sink."""

    def __init__(self, rows: Admissions) -> None:
        self._rows = rows

    def replace(self, objects: Sequence[views.Event]) -> None:
        """The full list."""
        for each in objects:
            self.upsert(each)

    def upsert(self, obj: views.Event) -> None:
        """An Event appeared or happened again."""
        source = obj.source.component if obj.source else ""
        if COMPONENT in (source, obj.reporting_component):
            self._rows.put(f"event {obj.metadata.identity}", _of_event(obj))

    def remove(self, obj: views.Event) -> None:
        """An Event has gone: the API server keeps them for an hour. It is still told."""


def brief(record: str) -> str:
    """A record with only what a placement reads; as it is where it cannot be read."""
    try:
        known = _decode(record)
    except (msgspec.MsgspecError, RecursionError):
        return record[:_LONGEST]
    return msgspec.json.encode({"fabric": known.fabric, "rails": known.rails}).decode()


def _of_pod(pod: views.Pod) -> model.Admission:
    meta = pod.metadata
    at, shown, gang = meta.creation_timestamp or "", f"{meta.namespace}/{meta.name}", workload.gang_of(pod)
    text = meta.annotations.get(names.INJECTION)
    if text is None:
        told = "opted in and no record: admission did not see this pod; was the webhook away or the policy without it?"
        wanted = meta.labels.get(names.FABRIC, "")
        return model.Admission(at=at, object=shown, gang=gang, outcome=model.UNINJECTED, fabric=wanted, message=told)
    try:
        record = _decode(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        told = f"the record {names.INJECTION} cannot be read: {error}"[:_LONGEST]
        return model.Admission(at=at, object=shown, gang=gang, outcome=model.UNINJECTED, message=told)
    return model.Admission(
        at=at,
        object=shown,
        gang=gang,
        outcome=model.INJECTED if record.rails else model.LEFT,
        fabric=record.fabric,
        role=record.role,
        rails=len(record.rails),
        added=len(record.added),
        kept=len(record.kept),
        skipped=len(record.skipped),
        message="; ".join(f"{key}: {why}" for key, why in record.skipped.items())[:_LONGEST],
    )


def _of_event(event: views.Event) -> model.Admission:
    about = event.involved_object
    return model.Admission(
        at=event.last_timestamp or event.event_time or event.metadata.creation_timestamp or "",
        object=f"{about.namespace}/{about.name}",
        kind=about.kind,
        outcome=model.TOLD,
        message=f"{event.reason}: {event.message}"[:_LONGEST],
        count=max(1, event.count or 1),
    )


def _age(row: model.Admission) -> tuple[str, str]:
    return row.at, row.object
