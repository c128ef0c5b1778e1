"""Runs `railwright dashboard`: serves the page from a cluster, with the user's permissions, or from files.

Listens on loopback only, because everyone who can connect has the user's view of the cluster.
"""

import argparse
import asyncio
import contextlib
import functools
import logging
import pathlib
import sys
import webbrowser
from collections.abc import Mapping, Sequence

from extender import state as states
from railwright.cli import cluster_access, object_files, options, output
from railwright.cluster import sources
from railwright.dashboard import application
from railwright.fabric.overview import overview_builder
from railwright.serving import ports, settings

_POLL_SECONDS = 1.0


def serve_dashboard(arguments: argparse.Namespace) -> int:
    """Serve the dashboard until stopped and return 0. Raise UnreadableError or ClusterError, also for a used port."""
    options.check_sources(arguments)
    if not arguments.listen.is_loopback:
        raise output.UnreadableError(
            f"--listen {arguments.listen} is not a loopback address, so everyone who connects would see what you may "
            "see; listen on 127.0.0.1. For other users, use the extender's --dashboard-listen, which authenticates them"
        )
    if arguments.snapshot:
        object_files.read_snapshot(arguments.snapshot)
    logging.basicConfig(level=logging.ERROR, format="railwright dashboard: %(message)s")  # the page shows the rest
    try:
        return asyncio.run(_serve_cluster(arguments))
    except ports.ListenError as error:
        raise output.UnreadableError(f"dashboard: {error}") from None


async def _report_outages(origin: sources.Sources) -> None:
    """Print a note when the cluster can no longer be read, and when it can be read again."""
    reported = ""
    while True:
        if (outage := origin.find_outage()) != reported:
            reported = outage
            output.print_note(outage or "the cluster can be read again")
        await asyncio.sleep(_POLL_SECONDS)


async def _serve_cluster(arguments: argparse.Namespace) -> int:
    async with contextlib.AsyncExitStack() as stack:
        client, shown = None, f"snapshot {pathlib.Path(arguments.snapshot).name}"
        if not arguments.snapshot:
            client = await stack.enter_async_context(cluster_access.connect(arguments, cluster_access.SNAPSHOT))
            shown = client.host
        state = states.State()
        origin = await sources.connect(
            kubeconfig=None,
            snapshot=pathlib.Path(arguments.snapshot) if arguments.snapshot else None,
            policy=pathlib.Path(arguments.policy) if arguments.policy else None,
            watches=states.list_watches(state),
            client=client,
        )
        state.apply_policy(origin.store.current)
        origin.store.subscribe(lambda store: state.apply_policy(store.current))
        builder = overview_builder.OverviewBuilder(state.cluster, lambda: origin.store.current, state.pools)
        feed = application.Feed(builder, source=shown, list_problems=origin.list_problems)
        tasks: Sequence[sources.Task] = (*origin.tasks, functools.partial(_report_outages, origin))
        await serve_page(feed, tasks, arguments.listen, is_opened=arguments.open)
    return output.OK


async def serve_page(
    feed: application.Feed, tasks: Sequence[sources.Task], at: settings.Address, *, is_opened: bool
) -> None:
    """Serve the page until SIGINT or SIGTERM. Print the URL, and with `is_opened` open it in a browser."""

    def announce_url(addresses: Mapping[str, settings.Address]) -> None:
        url = f"http://{addresses['']}/"
        print(f"dashboard: {url}  (Ctrl-C to stop)", flush=True)
        if is_opened and not webbrowser.open(url):
            print(f"railwright dashboard: no browser found; open {url}", file=sys.stderr)

    app = application.build_application(feed, _allow_everyone, loopback=at.is_loopback)
    await ports.serve_ports([ports.Port("", at, app)], tasks, announce_url)


async def _allow_everyone(_authorization: str, _peer: str) -> None:
    """Allow every request, because the port listens on loopback only."""
