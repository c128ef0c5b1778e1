"""Serves the dashboard on a port of the extender, from the state that this process decides on.

Readers need the right to `get` the path /dashboard, as for metrics. Without --dashboard-listen nothing runs and nothing
is stored for it.
"""

import asyncio
import sys
from collections.abc import Callable, Sequence
from typing import Any

from extender import access
from extender import state as states
from railwright.cluster import sinks, sources
from railwright.dashboard import application, feed
from railwright.fabric.overview import node_notes, opted_in_pods, overview_builder
from railwright.fabric.policy import model
from railwright.serving import server, settings, tls


class Dashboard:
    """The dashboard's port, and the data it needs in addition to the extender's state."""

    def __init__(self, options: settings.Settings, state: states.State) -> None:
        self._options, self._state = options, state
        self._opted_in_pods, self._node_notes = opted_in_pods.OptedInPods(), node_notes.NodeNotes()

    @property
    def pods(self) -> sinks.Sink[Any] | None:
        """Return the sink of pods, or None without a dashboard."""
        return self._opted_in_pods if self._options.dashboard_listen is not None else None

    @property
    def nodes(self) -> sinks.Sink[Any] | None:
        """Return the sink of nodes, or None without a dashboard."""
        return self._node_notes if self._options.dashboard_listen is not None else None

    def build_tasks(
        self, origin: sources.Sources, policy: Callable[[], model.Policy | None], post: access.Post | None
    ) -> Sequence[server.Task]:
        """Return the dashboard's tasks. The first raises connections.ListenError if the port is not available."""
        options, state = self._options, self._state
        address = options.dashboard_listen
        if address is None:
            return ()
        builder = overview_builder.OverviewBuilder(
            state.cluster, state.assumed, self._opted_in_pods, policy, state.pools, notes=self._node_notes
        )
        source = feed.Feed(
            builder,
            source=_describe_source(options),
            connection=lambda: feed.describe_connection(origin, policy=options.policy),
        )
        certificate = _load_certificate(options, address)

        async def guard(authorization: str, peer: str) -> tuple[int, str] | None:
            return await access.check_path_access(authorization, application.PATH, peer, post)

        async def serve() -> None:
            context = certificate.front if certificate else None
            async with application.open_port(address, {"": source}, guard, context) as bound_address:
                sys.stderr.write(f"dashboard listening on {bound_address}\n")
                sys.stderr.flush()
                await asyncio.Event().wait()  # until the server cancels it at shutdown

        return (serve, source.run, *([certificate.watch] if certificate else []))


def _load_certificate(options: settings.Settings, address: settings.Address) -> tls.Source | None:
    """Return the server's certificate, without client certificates. None on loopback, which needs no TLS."""
    if address.is_loopback or options.tls_cert is None or options.tls_key is None:
        return None
    return tls.Source(tls.Files(options.tls_cert, options.tls_key))


def _describe_source(options: settings.Settings) -> str:
    return f"snapshot {options.snapshot.name}" if options.snapshot else "the extender's cluster"
