"""Opens the dashboard's port: its application, with the connection limits that the other ports have."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator

from aiohttp import web

from railwright.dashboard import application, feed, stream
from railwright.serving import addresses, connections, handover, limits, listeners

_TIMES = stream.Times()
_BOUNDS = limits.Limits(max_body=0, connections=128, keepalive_seconds=60.0, backlog=64, finish_seconds=2.0)


@contextlib.asynccontextmanager
async def open_port(
    at: addresses.Address,
    views: feed.Views,
    guard: application.Guard,
    context: ssl.SSLContext | None = None,
    *,
    times: stream.Times = _TIMES,
) -> AsyncIterator[addresses.Address]:
    """Serve the dashboard at `at` during a `with` block; yields the actual address. Raises listeners.ListenError."""
    streams = stream.Streams(views, times)
    page = application.build(views, guard, streams, loopback=at.is_loopback)
    runner = web.AppRunner(page, shutdown_timeout=0.0, **handover.list_server_options(_BOUNDS))
    await runner.setup()
    try:
        with contextlib.closing(listeners.bind(at)) as bound:
            accepted = connections.Connections(_get_server(runner), _BOUNDS, lambda _status: None)
            listener = await asyncio.get_running_loop().create_server(
                accepted,
                sock=bound,
                backlog=_BOUNDS.backlog,
                ssl=context,
                ssl_handshake_timeout=_BOUNDS.handshake_seconds if context else None,
            )
            try:
                yield listeners.read_address(bound)
            finally:
                streams.close()
                listener.close()
                await accepted.finish(_BOUNDS.finish_seconds)
    finally:
        await runner.cleanup()


def _get_server(runner: web.AppRunner) -> web.Server:
    if runner.server is None:
        raise LookupError("the application has not been set up")
    return runner.server
