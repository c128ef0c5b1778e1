"""Writes Kubernetes Events, as shown by `kubectl describe`, in the background. Their number is limited.

The name of an Event is computed from its object, reason and message. So replicas share equal Events: the second writer
gets a 409, which counts as success. The API server keeps Events for about an hour. While the cause lasts, a replica
posts the Event every ten minutes, so a new one follows soon after the old one is deleted.
"""

import asyncio
import collections
import datetime as dt
import hashlib
import logging
import re
import time
from collections.abc import Callable

import msgspec

from railwright.cluster import client as clients
from railwright.cluster import errors

WRITTEN, HELD_BACK, DROPPED, FAILED = "written", "held_back", "dropped", "failed"  # results of a post
QUEUE = 1000  # Events that wait to be written one by one; more is a storm, and its first ones are sufficient
KNOWN = 2000  # Events that are not tried again; then all are forgotten
REPEAT_SECONDS = 600.0  # until an equal Event is tried again
# Pods name their owners themselves, so a limit for each owner could be bypassed.
NAMESPACE_EVENTS, NAMESPACE_SECONDS = 100, 60.0
_LONGEST_MESSAGE = 1024  # characters, core/v1 Event
_EXISTS = 409
_CLUSTER_SCOPED = frozenset({"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"})
_LONGEST_NAME = 320  # characters of each part of a reference: a group of 253, "/" and a version
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")  # checked, because it becomes part of a URL path
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")  # of an Event; the name of an owner is arbitrary text
_log = logging.getLogger("railwright.events")


class InvolvedObject(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The object that an Event is about; with `resource_version`, that version of it."""

    kind: str
    api_version: str
    namespace: str
    name: str
    uid: str = ""
    resource_version: str = ""


class _Event(msgspec.Struct, frozen=True):
    """The content of an Event. The name of the Event has a digest of it."""

    involved: InvolvedObject
    kind: str  # Normal or Warning
    reason: str
    message: str

    @property
    def namespace(self) -> str:
        """Return the Event's namespace: `default` if its object is cluster-scoped (core/v1, ValidateEventCreate)."""
        return "default" if self.involved.kind in _CLUSTER_SCOPED else self.involved.namespace

    def build_name(self) -> str:
        """Return the name of the Event, which equal Events of all replicas share."""
        digest = hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:16]
        stem = self.involved.name[:200].rstrip("-.")
        return f"{stem if _NAME.fullmatch(stem) else 'railwright'}.{digest}"


class Events:
    """Posts Events for one component, in the background."""

    def __init__(
        self,
        client: clients.Client,
        component: str,
        *,
        now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC),
        clock: Callable[[], float] = time.monotonic,
        on_result: Callable[[str], None] = lambda _result: None,
    ) -> None:
        """`now` dates Events, and `clock` counts seconds.

        `on_result` is called with WRITTEN, HELD_BACK (the limit of a namespace), DROPPED or FAILED.
        """
        self._client, self._component, self._now, self._clock = client, component, now, clock
        self._on_result = on_result
        self._queue: asyncio.Queue[tuple[str, _Event]] = asyncio.Queue(QUEUE)
        self._known: dict[str, float] = {}  # name -> when it was queued
        self._counted: collections.Counter[str] = collections.Counter()  # of each namespace since `_counting_since`
        self._counting_since = clock()

    def post(self, involved: InvolvedObject, *, warning: bool, reason: str, message: str) -> None:
        """Queue an Event, unless it was posted recently or exceeds a limit. Returns at once and never raises."""
        event = _Event(involved, "Warning" if warning else "Normal", reason, message[:_LONGEST_MESSAGE])
        if not _is_valid_reference(event):
            self._on_result(DROPPED)
            return
        name, now = event.build_name(), self._clock()
        if now - self._known.get(name, -REPEAT_SECONDS) < REPEAT_SECONDS:
            return
        if now - self._counting_since >= NAMESPACE_SECONDS:
            self._counting_since = now
            self._counted.clear()
        if self._queue.full():
            self._on_result(DROPPED)
        elif self._counted[event.namespace] >= NAMESPACE_EVENTS:
            self._on_result(HELD_BACK)
        else:
            if len(self._known) >= KNOWN:
                self._known.clear()
            self._known[name] = now
            self._counted[event.namespace] += 1
            self._queue.put_nowait((name, event))

    async def run(self) -> None:
        """Write queued Events until cancelled. A failure is logged, and the Event can be posted again."""
        while True:
            name, event = await self._queue.get()
            stamp = self._now().astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            document = {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": name, "namespace": event.namespace},
                "involvedObject": event.involved,
                "type": event.kind,
                "reason": event.reason,
                "message": event.message,
                "source": {"component": self._component},
                "reportingComponent": self._component,
                "firstTimestamp": stamp,
                "lastTimestamp": stamp,
                "count": 1,
            }
            try:
                await self._client.post(f"/api/v1/namespaces/{event.namespace}/events", document)
            except errors.ClusterError as error:
                if error.status != _EXISTS:
                    self._known.pop(name, None)
                    self._on_result(FAILED)
                    _log.warning("Event not written", extra={"fields": {"reason": event.reason, "error": str(error)}})
                    continue
            self._on_result(WRITTEN)


def _is_valid_reference(event: _Event) -> bool:
    """True if the Event's namespace, and the length of each field of `involved`, are valid.

    The object may be the owner that a pod names before the API server has validated the pod.
    """
    parts = msgspec.structs.astuple(event.involved)
    return _NAMESPACE.fullmatch(event.namespace) is not None and all(len(part) <= _LONGEST_NAME for part in parts)
