"""Opens the dashboard's port, with the limits that the other ports have."""

import contextlib
import ssl
from collections.abc import AsyncIterator

from railwright.dashboard import application, feed, stream
from railwright.serving import connections, dispatch, limits, settings

_TIMES = stream.Times()
_BOUNDS = limits.Limits(max_body=0, connections=128, keepalive_seconds=60.0, backlog=64, finish_seconds=2.0)


@contextlib.asynccontextmanager
async def open_port(
    at: settings.Address,
    views: feed.Views,
    guard: application.Guard,
    context: ssl.SSLContext | None = None,
    *,
    times: stream.Times = _TIMES,
) -> AsyncIterator[settings.Address]:
    """Serve the dashboard at `at` during a `with` block; yields the actual address. Raises connections.ListenError."""
    streams = stream.Streams(views, times)
    table = application.build_routes(views, guard, streams, loopback=at.is_loopback)
    dispatcher = dispatch.Dispatcher(table, _BOUNDS, None, headers=application.HEADERS)
    async with connections.open_port(at, dispatcher, context) as address:
        try:
            yield address
        finally:
            streams.close()
