"""The dashboard as a port of the extender: what it shows is what this process decides on.

Owns the wiring of the page to the extender's state, and who may see it: whoever the API server lets `get` the path
/dashboard, as for metrics. Nothing of it runs, and nothing is kept for it, unless it was asked for.
"""

import asyncio
import sys
from collections.abc import Callable, Sequence
from typing import Any

from extender import access
from extender import state as states
from railwright.cluster import sinks, sources
from railwright.dashboard import feed, port
from railwright.fabric.overview import members, picture
from railwright.fabric.policy import model
from railwright.serving import server, settings, tls

_STALE_SECONDS = 150.0  # a watch without news has bookmarks each minute: over two of them are missing


class Dashboard:
    """The page's port, and what it needs beside the extender's own state."""

    def __init__(self, options: settings.Settings, state: states.State) -> None:
        self._options, self._state = options, state
        self._known = members.Members()

    @property
    def pods(self) -> sinks.Sink[Any] | None:
        """Who is to be told of pods; None where no page was asked for."""
        return self._known if self._options.dashboard_listen is not None else None

    def tasks(
        self, origin: sources.Sources, policy: Callable[[], model.Policy | None], post: access.Post | None
    ) -> Sequence[server.Task]:
        """What runs for it. The first ends with serving.listeners.ListenError where the port cannot be had."""
        at, state = self._options.dashboard_listen, self._state
        if at is None:
            return ()
        drawing = picture.Picture(state.fleet, state.ledger, self._known, policy, state.pools)
        source = feed.Feed(drawing, source=_source(self._options), problems=lambda: _problems(origin), away=origin.away)
        certificate = _certificate(self._options, at)

        async def guard(authorization: str, peer: str) -> tuple[int, str] | None:
            return await access.denied_path(authorization, port.PATH, peer, post)

        async def serve() -> None:
            async with port.opened(at, source, guard, certificate.front if certificate else None) as where:
                sys.stderr.write(f"dashboard listening on {where}\n")
                sys.stderr.flush()
                await asyncio.Event().wait()  # until the end of the server cancels it

        return (serve, source.run, *([certificate.watch] if certificate else []))


def _certificate(options: settings.Settings, at: settings.Address) -> tls.Source | None:
    """The server's own, without asking browsers for theirs; none on loopback, where nobody listens in."""
    if at.is_loopback or options.tls_cert is None or options.tls_key is None:
        return None
    return tls.Source(tls.Files(options.tls_cert, options.tls_key))


def _source(options: settings.Settings) -> str:
    return f"snapshot {options.snapshot.name}" if options.snapshot else "the extender's cluster"


def _problems(origin: sources.Sources) -> Sequence[str]:
    if away := origin.away():  # what else is wrong comes of that
        return [away]
    return [each for each in (origin.policy_problem(), origin.cache_problem(_STALE_SECONDS)) if each]
