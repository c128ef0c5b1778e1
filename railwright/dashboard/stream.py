"""Server-sent events: the changes of an overview, heartbeats, and the end after which a reader reconnects."""

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncGenerator, Mapping

import msgspec

from railwright.dashboard import feed
from railwright.fabric.overview import deltas

_MAX_VERSION_DIGITS = 18  # digits; Python refuses to parse numbers of thousands of digits
_HEARTBEAT = b"event: beat\ndata: {}\n\n"
HEADERS: Mapping[str, str] = {"X-Accel-Buffering": "no"}  # otherwise nginx buffers events


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """Timing of a stream in seconds; tests shorten it."""

    beat: float = 5.0  # heartbeat interval: the page shows itself as stale after two and a half intervals
    renew: float = 600.0  # then the stream ends and the reader is authorized again


class Streams:
    """The streams of one port."""

    def __init__(self, views: feed.Views, times: Times) -> None:
        self._views, self._times = views, times
        # an epoch invalidates versions of other views and from before a restart of the server
        self._epochs = {name: secrets.token_hex(4) for name in views}
        self._closing = asyncio.Event()

    def close(self) -> None:
        """End all streams; their readers reconnect, possibly to another replica."""
        self._closing.set()

    async def send(self, view: str, last_event_id: str) -> AsyncGenerator[bytes, None]:
        """Yield the changes of a view until the reader has to be authorized again. Raises feed.CrowdedError first."""
        source, epoch = self._views[view], self._epochs[view]
        version = _parse_version(last_event_id, epoch)
        end = time.monotonic() + self._times.renew
        with contextlib.ExitStack() as stack:
            for other in self._views.values():  # also of the others, whose means are shown beside this one's
                stack.enter_context(other.reading())
            yield b"retry: 1000\n\n"
            views = b""
            while not self._closing.is_set() and time.monotonic() < end:
                delta = await self._wait_for_delta(source, version)
                previous_views, views = views, self._format_views()
                event = _HEARTBEAT if delta is None else _format_event(delta, epoch)
                yield event if views == previous_views else views + event
                version = version if delta is None else delta.version
            yield b"event: again\ndata: {}\n\n"

    async def _wait_for_delta(self, source: feed.Feed, version: int | None) -> deltas.Delta | None:
        """Return the next change, or None if a heartbeat is due or the port closes."""
        change = asyncio.ensure_future(source.after(version, self._times.beat))
        closing = asyncio.ensure_future(self._closing.wait())
        try:
            await asyncio.wait((change, closing), return_when=asyncio.FIRST_COMPLETED)
            return change.result() if change.done() else None
        finally:
            change.cancel()
            closing.cancel()

    def _format_views(self) -> bytes:
        """Return an event with the views' names and mean bandwidths if there are several, so that they are compared."""
        if len(self._views) == 1:
            return b""
        means = {name: view.mean_bandwidth for name, view in self._views.items()}
        return b"event: views\ndata: " + msgspec.json.encode(means) + b"\n\n"


def _format_event(delta: deltas.Delta, epoch: str) -> bytes:
    return b"id: %s-%d\nevent: change\ndata: %s\n\n" % (epoch.encode(), delta.version, delta.body)


def _parse_version(event_id: str, current_epoch: str) -> int | None:
    """Return the version that the reader has, or None if it is unknown or belongs to another epoch."""
    epoch, _, number = event_id.partition("-")
    is_current = epoch == current_epoch and len(number) <= _MAX_VERSION_DIGITS
    return int(number) if is_current and number.isascii() and number.isdigit() else None
