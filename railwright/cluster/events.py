"""Writes Kubernetes Events, as shown by `kubectl describe`, in the background. `event_correlator` limits their rate."""

import asyncio
import datetime as dt
import hashlib
import logging
import re
from collections.abc import Callable

import msgspec

from railwright.cluster import client as clients
from railwright.cluster import errors, event_correlator

Involved = event_correlator.Involved
WRITTEN, HELD_BACK, DROPPED, FAILED = "written", "held_back", "dropped", "failed"  # results of a note
_POLL_SECONDS = 0.25  # polling interval while notes wait
_LONGEST_MESSAGE = 1024  # characters, core/v1 Event
_NOT_FOUND = 404
_CLUSTER_SCOPED = frozenset({"DeviceClass"})
_LONGEST_NAME = 320  # characters of each part of a reference: a group of 253, "/" and a version
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")  # checked, because it becomes part of a URL path
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")  # of an Event; the name of an owner is arbitrary text
_log = logging.getLogger("railwright.events")


class Events:
    """Posts Events for one component."""

    def __init__(
        self,
        client: clients.Client,
        component: str,
        *,
        now: Callable[[], dt.datetime],
        on_result: Callable[[str, int], None] = lambda _result, _count: None,
    ) -> None:
        """`on_result` is called with WRITTEN, HELD_BACK, DROPPED or FAILED and the number of notes."""
        self._client, self._component, self._now, self._on_result = client, component, now, on_result
        self._correlator = event_correlator.EventCorrelator()
        self._queued = asyncio.Event()
        self._dropped = 0

    def post(self, involved: Involved, *, warning: bool, reason: str, message: str) -> None:
        """Queue an Event; returns at once and never raises."""
        note = event_correlator.EventNote(
            involved, "Warning" if warning else "Normal", reason, message[:_LONGEST_MESSAGE]
        )
        if _is_valid_reference(involved) and self._correlator.add(note):
            self._queued.set()
        else:
            self._dropped += 1
            self._on_result(DROPPED, 1)

    async def run(self) -> None:
        """Post queued Events until cancelled. An Event that cannot be posted is logged and dropped."""
        while True:
            write = self._correlator.next_write(self._now())
            self._report_losses()
            if write is None:
                await self._wait()
                continue
            try:
                await self._write(write)
                self._on_result(WRITTEN, 1)
            except errors.ClusterError as error:
                self._on_result(FAILED, 1)
                _log.warning("Event not posted", extra={"fields": {"reason": write.note.reason, "error": str(error)}})

    def _report_losses(self) -> None:
        if self._correlator.suppressed:
            self._on_result(HELD_BACK, self._correlator.suppressed)
            self._correlator.suppressed = 0
        if self._dropped:
            _log.warning("Events dropped", extra={"fields": {"count": self._dropped}})
            self._dropped = 0

    async def _wait(self) -> None:
        if len(self._correlator):
            await asyncio.sleep(_POLL_SECONDS)
            return
        self._queued.clear()
        await self._queued.wait()

    async def _write(self, write: event_correlator.Write) -> None:
        now = self._now()
        name = write.name
        if not name or not await self._update_count(write, now):
            name = await self._create_event(write, now)
        self._correlator.record_write(write, name, now)

    async def _update_count(self, write: event_correlator.Write, now: dt.datetime) -> bool:
        """Update the count of an Event; return False if it is gone. The API server keeps Events for about an hour."""
        change = {"count": write.count, "lastTimestamp": _format_time(now)}
        path = f"{_build_path(write.note.involved)}/{write.name}"
        try:
            await self._client.patch(path, msgspec.json.encode(change), "application/merge-patch+json")
        except errors.ApiError as error:
            if error.status != _NOT_FOUND:
                raise
            self._correlator.forget(write.note)
            return False
        return True

    async def _create_event(self, write: event_correlator.Write, now: dt.datetime) -> str:
        note = write.note
        name = _build_name(note, now)
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": _get_namespace(note.involved)},
            "involvedObject": note.involved,
            "type": note.kind,
            "reason": note.reason,
            "message": note.message,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "firstTimestamp": _format_time(now),
            "lastTimestamp": _format_time(now),
            "count": write.count,
        }
        await self._client.post(_build_path(note.involved), msgspec.json.encode(event))
        return name


def _is_valid_reference(involved: Involved) -> bool:
    """True if the namespace and all lengths are valid. The reference may come from a pod that was not validated yet."""
    parts = msgspec.structs.astuple(involved)
    return _NAMESPACE.fullmatch(_get_namespace(involved)) is not None and all(
        len(part) <= _LONGEST_NAME for part in parts
    )


def _build_path(involved: Involved) -> str:
    return f"/api/v1/namespaces/{_get_namespace(involved)}/events"


def _get_namespace(involved: Involved) -> str:
    """Return the namespace of Events about an object: `default` for a DeviceClass (core/v1, ValidateEventCreate)."""
    return "default" if involved.kind in _CLUSTER_SCOPED else involved.namespace


def _build_name(note: event_correlator.EventNote, now: dt.datetime) -> str:
    digest = hashlib.sha256(f"{note}{now.timestamp()}".encode(errors="replace")).hexdigest()[:16]
    stem = note.involved.name[:200].rstrip("-.")
    return f"{stem if _NAME.fullmatch(stem) else 'railwright'}.{digest}"


def _format_time(now: dt.datetime) -> str:
    return now.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
