"""Server-sent events: the changes of the overview, heartbeats, and the end after which a reader reconnects."""

import asyncio
import logging
import secrets
import time
from collections.abc import Mapping

import msgspec
from aiohttp import web

from railwright.dashboard import feed
from railwright.fabric.overview import deltas

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
    renew: float = 600.0  # then the stream ends and the reader is authorised again
    slow: float = 20.0  # a reader that receives nothing for this long is disconnected


class Streams:
    """The streams of one port."""

    def __init__(self, source: feed.Feed, times: Times) -> None:
        self._feed, self._times = source, times
        self._epoch = secrets.token_hex(4)  # invalidates versions from before a restart of the server
        self._closing = asyncio.Event()

    def close(self) -> None:
        """End all streams; their readers reconnect, possibly to another replica."""
        self._closing.set()

    async def send(self, request: web.Request) -> web.StreamResponse:
        """Send changes until the reader has to be authorised again, disconnects, or receives nothing."""
        response = web.StreamResponse(headers=_HEADERS)
        response.force_close()
        await response.prepare(request)
        version = self._parse_version(request.headers.get("Last-Event-ID", ""))
        end = time.monotonic() + self._times.renew
        try:
            await self._write(response, b"retry: 1000\n\n")
            while not self._closing.is_set() and time.monotonic() < end:
                delta = await self._wait_for_delta(version)
                await self._write(response, _HEARTBEAT if delta is None else self._format_event(delta))
                version = version if delta is None else delta.version
            await self._write(response, b"event: again\ndata: {}\n\n")
        except TimeoutError:
            _LOG.info("disconnected a slow reader of the dashboard", extra={"fields": {"peer": request.remote}})
            if request.transport is not None:
                request.transport.abort()
        except ConnectionError:
            pass  # the page was closed
        return response

    async def _wait_for_delta(self, version: int | None) -> deltas.Delta | None:
        """Return the next change, or None if a heartbeat is due or the port closes."""
        change = asyncio.ensure_future(self._feed.after(version, self._times.beat))
        closing = asyncio.ensure_future(self._closing.wait())
        try:
            await asyncio.wait((change, closing), return_when=asyncio.FIRST_COMPLETED)
            return change.result() if change.done() else None
        finally:
            change.cancel()
            closing.cancel()

    def _format_event(self, delta: deltas.Delta) -> bytes:
        return b"id: %s-%d\nevent: change\ndata: %s\n\n" % (self._epoch.encode(), delta.version, delta.body)

    def _parse_version(self, event_id: str) -> int | None:
        """Return the version that the reader has, or None if it is unknown or from before a restart."""
        epoch, _, number = event_id.partition("-")
        is_current = epoch == self._epoch and len(number) <= _MAX_VERSION_DIGITS
        return int(number) if is_current and number.isascii() and number.isdigit() else None

    async def _write(self, response: web.StreamResponse, text: bytes) -> None:
        async with asyncio.timeout(self._times.slow):
            await response.write(text)
