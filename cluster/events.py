"""Kubernetes Events: what people see in `kubectl describe`. Posted beside the work, never in its way.

Owns the wording limits, the rate and the counting of repeats. A queue that is full drops, and says how many.
"""

import asyncio
import datetime as dt
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable

import msgspec

from cluster import client as clients
from cluster import errors

QUEUE = 1000  # events waiting; more is a storm, and the first of it tells enough
REPEAT_SECONDS = 600.0  # the same words on the same object within this are one Event with a count
KNOWN = 1000  # Events whose repeats are counted
_LONGEST_MESSAGE = 1024  # characters, core/v1 Event
_log = logging.getLogger("railwright.events")


class Involved(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The object an Event is about."""

    kind: str
    api_version: str
    namespace: str
    name: str
    uid: str = ""


class _Posted(msgspec.Struct):
    name: str
    since: dt.datetime
    count: int


class Events:
    """Posts Events for one component."""

    def __init__(self, client: clients.Client, component: str, *, now: Callable[[], dt.datetime]) -> None:
        self._client, self._component, self._now = client, component, now
        self._queue: asyncio.Queue[tuple[Involved, str, str, str]] = asyncio.Queue(QUEUE)
        self._posted: OrderedDict[tuple[Involved, str, str], _Posted] = OrderedDict()
        self._dropped = 0

    def post(self, involved: Involved, *, warning: bool, reason: str, message: str) -> None:
        """Queue an Event; returns at once and raises nothing."""
        try:
            self._queue.put_nowait((involved, "Warning" if warning else "Normal", reason, message[:_LONGEST_MESSAGE]))
        except asyncio.QueueFull:
            self._dropped += 1

    async def run(self) -> None:
        """Post what is queued, for ever. An Event that cannot be posted is logged and forgotten."""
        while True:
            involved, kind, reason, message = await self._queue.get()
            try:
                await self._write(involved, kind, reason, message)
            except errors.ClusterError as error:
                _log.warning("Event not posted", extra={"fields": {"reason": reason, "error": str(error)}})
            if self._dropped:
                _log.warning("Events dropped", extra={"fields": {"count": self._dropped}})
                self._dropped = 0

    async def _write(self, involved: Involved, kind: str, reason: str, message: str) -> None:
        now = self._now()
        key = (involved, reason, message)
        known = self._posted.get(key)
        path = f"/api/v1/namespaces/{involved.namespace}/events"
        if known is not None and (now - known.since).total_seconds() < REPEAT_SECONDS:
            known.count += 1
            change = {"count": known.count, "lastTimestamp": _stamp(now)}
            body = msgspec.json.encode(change)
            await self._client.patch(f"{path}/{known.name}", body, "application/merge-patch+json")
            return
        digest = hashlib.sha256(f"{involved}{reason}{message}{now.timestamp()}".encode()).hexdigest()[:16]
        name = f"{involved.name[:200]}.{digest}"
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": involved.namespace},
            "involvedObject": involved,
            "type": kind,
            "reason": reason,
            "message": message,
            "source": {"component": self._component},
            "firstTimestamp": _stamp(now),
            "lastTimestamp": _stamp(now),
            "count": 1,
        }
        await self._client.post(path, msgspec.json.encode(event))
        self._posted[key] = _Posted(name=name, since=now, count=1)
        if len(self._posted) > KNOWN:
            self._posted.popitem(last=False)


def _stamp(now: dt.datetime) -> str:
    return now.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
