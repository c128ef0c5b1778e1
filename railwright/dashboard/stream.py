"""Server-sent events: the changes of an overview, heartbeats, and the end after which a reader reconnects."""

import asyncio
import logging
import secrets
import time
from collections.abc import Mapping

import msgspec
from aiohttp import web

from railwright.dashboard import feed
from railwright.fabric.overview import deltas
from railwright.serving import routes

_LOG = logging.getLogger(__name__)
_MAX_VERSION_DIGITS = 18  # digits; Python refuses to parse numbers of thousands of digits
_HEARTBEAT = b"event: beat\ndata: {}\n\n"
_HEADERS: Mapping[str, str] = {
    "Content-Type": "text/event-stream",
    "X-Accel-Buffering": "no",  # otherwise nginx buffers events
}


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """Timing of a stream in seconds; tests shorten it."""

    beat: float = 5.0  # heartbeat interval: the page shows itself as stale after two and a half intervals
    renew: float = 600.0  # then the stream ends and the reader is authorized again
    slow: float = 20.0  # a reader that receives nothing for this long is disconnected


class Streams:
    """The streams of one port."""

    def __init__(self, views: feed.Views, times: Times) -> None:
        self._views, self._times = views, times
        # an epoch invalidates versions of other views and from before a restart of the server
        self._epochs = {name: secrets.token_hex(4) for name in views}
        self._closing = asyncio.Event()

    def choose(self, request: web.Request) -> str:
        """Return the name of the view that a request asks for; the first one by default. Raises HttpError."""
        name = request.query.get("view") or next(iter(self._views))
        if name not in self._views:
            raise routes.HttpError(404, f"no such view; there are: {', '.join(self._views)}")
        return name

    def close(self) -> None:
        """End all streams; their readers reconnect, possibly to another replica."""
        self._closing.set()

    async def send(self, request: web.Request, view: str) -> web.StreamResponse:
        """Send changes of a view until the reader has to be authorized again, disconnects, or receives nothing."""
        source, epoch = self._views[view], self._epochs[view]
        response = web.StreamResponse(headers=_HEADERS)
        response.force_close()
        await response.prepare(request)
        version = _parse_version(request.headers.get("Last-Event-ID", ""), epoch)
        end = time.monotonic() + self._times.renew
        try:
            await self._write(response, b"retry: 1000\n\n")
            views = b""
            while not self._closing.is_set() and time.monotonic() < end:
                delta = await self._wait_for_delta(source, version)
                previous_views, views = views, self._format_views()
                event = _HEARTBEAT if delta is None else _format_event(delta, epoch)
                await self._write(response, event if views == previous_views else views + event)
                version = version if delta is None else delta.version
            await self._write(response, b"event: again\ndata: {}\n\n")
        except TimeoutError:
            _LOG.info("disconnected a slow reader of the dashboard", extra={"fields": {"peer": request.remote}})
            if request.transport is not None:
                request.transport.abort()
        except ConnectionError:
            pass  # the page was closed
        return response

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

    async def _write(self, response: web.StreamResponse, text: bytes) -> None:
        async with asyncio.timeout(self._times.slow):
            await response.write(text)


def _format_event(delta: deltas.Delta, epoch: str) -> bytes:
    return b"id: %s-%d\nevent: change\ndata: %s\n\n" % (epoch.encode(), delta.version, delta.body)


def _parse_version(event_id: str, current_epoch: str) -> int | None:
    """Return the version that the reader has, or None if it is unknown or belongs to another epoch."""
    epoch, _, number = event_id.partition("-")
    is_current = epoch == current_epoch and len(number) <= _MAX_VERSION_DIGITS
    return int(number) if is_current and number.isascii() and number.isdigit() else None
