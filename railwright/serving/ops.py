"""A port for probes and metrics alone, for a process without other ports."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

from railwright.serving import addresses, connections, dispatch, handover, limits, listeners, routes, slow_path

_BODY = 1 << 16  # bytes; no request to this port has a body


@contextlib.asynccontextmanager
async def open_port(at: addresses.Address, table: Sequence[routes.Route]) -> AsyncIterator[addresses.Address]:
    """Serve these routes during a `with` block; yields the actual address. Raises listeners.ListenError."""
    bounds = limits.Limits(max_body=_BODY)
    dispatcher = dispatch.Dispatcher(table, bounds, None)
    server = handover.build_server(slow_path.SlowPath(dispatcher), bounds)
    accepted = connections.Connections(server, bounds, dispatcher.count_rejected)
    with contextlib.closing(listeners.bind(at)) as bound:
        listener = await asyncio.get_running_loop().create_server(accepted, sock=bound, backlog=bounds.backlog)
        try:
            yield listeners.read_address(bound)
        finally:
            listener.close()
            await accepted.finish(bounds.finish_seconds)
