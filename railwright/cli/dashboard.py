"""Runs `railwright dashboard`: fills its caches with the user's own permissions, or from files, and serves the page.

Listens on loopback only, because everyone who can connect sees what the user may see.
"""

import argparse
import asyncio
import functools
import logging
import pathlib
import signal
import sys
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from extender import state as states
from extender import watches
from railwright.cli import cluster_access, cluster_overview, object_files, output
from railwright.cluster import client as clients
from railwright.cluster import pulse, resources, sources
from railwright.dashboard import feed, health, port
from railwright.fabric.overview import (
    node_notes,
    opted_in_pods,
    overview_builder,
    overview_types,
    recent_events,
)
from railwright.serving import listeners, settings

_POLL_SECONDS = 1.0


def run(arguments: argparse.Namespace) -> int:
    """Return 0 when stopped, 2 if the cluster or the port is not available."""
    given = cluster_overview.get_sources(arguments)
    if given.policy:
        output.read_text(given.policy)
    if given.snapshot:
        object_files.read_snapshot(given.snapshot)
    logging.basicConfig(level=logging.ERROR, format="railwright dashboard: %(message)s")  # the page shows the rest
    try:
        return asyncio.run(_connect(given, _address(arguments.listen), browser=arguments.open))
    except listeners.ListenError as error:
        raise output.UnreadableError(f"dashboard: {error}") from None


def _address(text: str) -> settings.Address:
    try:
        at = settings.address(text)
    except ValueError as error:
        raise output.UnreadableError(f"--listen {error}") from None
    if not at.is_loopback:
        raise output.UnreadableError(
            f"--listen {text}: everyone who connects would see what you may see; listen on 127.0.0.1. "
            "For other users, use the extender's --dashboard-listen, which authenticates them"
        )
    return at


async def _connect(given: cluster_overview.Sources, at: settings.Address, *, browser: bool) -> int:
    if given.snapshot:
        return await _serve(given, at, None, browser=browser)
    async with cluster_access.connect(given.cluster, cluster_access.SNAPSHOT) as client:
        return await _serve(given, at, client, browser=browser)


async def _serve(
    given: cluster_overview.Sources, at: settings.Address, client: clients.Client | None, *, browser: bool
) -> int:
    source = f"snapshot {pathlib.Path(given.snapshot).name}" if client is None else client.host
    view = await open_view(given, client, source)
    await serve_views({"": view}, at, lambda url: _announce(url, browser=browser))
    return output.OK


class View(NamedTuple):
    """A feed, and the tasks that keep it up to date."""

    source: feed.Feed
    tasks: Sequence[sources.Task]


async def open_view(given: cluster_overview.Sources, client: clients.Client | None, source: str) -> View:
    """Return the view of a cluster, or without a client of the files in `given`. The page shows `source`."""
    state, known = states.State(assume_seconds=0.0), opted_in_pods.OptedInPods()
    notes, events = node_notes.NodeNotes(), recent_events.RecentEvents()
    watch_specs = watches.list_watches(state, pods=known, nodes=notes)
    for kind in (resources.WEBHOOK_EVENTS, resources.EXTENDER_EVENTS):
        watch_specs.append(sources.WatchSpec(kind=kind, snapshot_kind="Event", sink=events))
    policy = pathlib.Path(given.policy) if given.policy else None
    origin = await sources.connect(
        kubeconfig=None,
        snapshot=pathlib.Path(given.snapshot) if given.snapshot else None,
        policy=policy,
        watches=watch_specs,
        restarted=lambda _kind, _reason: None,
        client=client,
    )
    beat = pulse.Pulse(client) if client is not None else None

    def describe_health() -> overview_types.Connection:
        return health.describe(origin, poll_failure=beat.failure if beat is not None else "", policy=policy)

    watching: list[sources.Task] = [] if beat is None else [beat.run, functools.partial(_report, describe_health)]
    builder = overview_builder.OverviewBuilder(
        state.cluster, state.assumed, known, lambda: origin.store.current, state.pools, notes=notes, events=events
    )
    view_feed = feed.Feed(builder, source=source, connection=describe_health)
    return View(view_feed, (*origin.tasks, *watching, view_feed.run))


async def serve_views(
    views: Mapping[str, View],
    at: settings.Address,
    announce: Callable[[str], None],
    tasks: Sequence[sources.Task] = (),
) -> None:
    """Serve views, and run `tasks` beside them, until SIGINT or SIGTERM. `announce` is called with the URL."""
    async with asyncio.TaskGroup() as group:
        view_tasks = [task for view in views.values() for task in view.tasks]
        running = [group.create_task(task()) for task in (*view_tasks, *tasks)]
        async with port.open_port(at, {name: view.source for name, view in views.items()}, _everybody) as where:
            announce(f"http://{where}/")
            await _wait_for_signal()
        for task in running:
            task.cancel()


async def _everybody(_authorization: str, _peer: str) -> None:
    """Allow everyone: the port is on loopback."""


def _announce(url: str, *, browser: bool) -> None:
    print(f"dashboard: {url}  (Ctrl-C to stop)", flush=True)
    if browser and not webbrowser.open(url):
        print(f"railwright dashboard: no browser found; open {url}", file=sys.stderr)


async def _wait_for_signal() -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    await stopped.wait()


async def _report(describe_health: Callable[[], overview_types.Connection]) -> None:
    """Print each change of the connection to the cluster."""
    reported = ""
    while True:
        if (failure := describe_health().away) != reported:
            reported = failure
            print(f"railwright dashboard: {output.visible(failure or 'the cluster answers again')}", file=sys.stderr)
        await asyncio.sleep(_POLL_SECONDS)
