"""Runs `railwright dashboard`: fills its caches with the user's own permissions, or from files, and serves the page.

Listens on loopback only, because everyone who can connect sees what the user may see.
"""

import argparse
import asyncio
import contextlib
import functools
import logging
import pathlib
import signal
import sys
import webbrowser
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any

from extender import state as states
from railwright.cli import cluster_access, cluster_overview, object_files, output
from railwright.cluster import client as clients
from railwright.cluster import errors, failures, resources, sources
from railwright.dashboard import application
from railwright.fabric.overview import fabric_view, overview_builder, overview_types, pods_and_events
from railwright.serving import connections, settings

_POLL_SECONDS = 1.0
_PULSE_SECONDS, _PULSE_PATH = 5.0, "/version"
_PROMPT_SECONDS = 0.3  # for credentials without a plugin; a failure within it is reported before an address is printed


def run(arguments: argparse.Namespace) -> int:
    """Return 0 when stopped, 2 if the cluster or the port is not available."""
    given = cluster_overview.get_sources(arguments)
    if given.policy:
        output.read_text(given.policy)
    if given.snapshot:
        object_files.read_snapshot(given.snapshot)
    logging.basicConfig(level=logging.ERROR, format="railwright dashboard: %(message)s")  # the page shows the rest
    try:
        return asyncio.run(_serve(given, _parse_address(arguments.listen), browser=arguments.open))
    except connections.ListenError as error:
        raise output.UnreadableError(f"dashboard: {error}") from None


def _parse_address(text: str) -> settings.Address:
    try:
        at = settings.parse_address(text)
    except ValueError as error:
        raise output.UnreadableError(f"--listen {error}") from None
    if not at.is_loopback:
        raise output.UnreadableError(
            f"--listen {text}: everyone who connects would see what you may see; listen on 127.0.0.1. "
            "For other users, use the extender's --dashboard-listen, which authenticates them"
        )
    return at


class View:
    """One overview for the page: empty until it is opened and its tasks run."""

    def __init__(self, given: cluster_overview.Sources, source: str = "") -> None:
        """`source`: what the page shows as the origin of the data."""
        self._given = given
        self._policy = pathlib.Path(given.policy) if given.policy else None
        self._state, self._pods = states.State(assume_seconds=0.0), pods_and_events.OptedInPods()
        self._notes, self._events = fabric_view.NodeNotes(), pods_and_events.RecentEvents()
        self._origin: sources.Sources | None = None
        self._pulse: Pulse | None = None
        builder = overview_builder.OverviewBuilder(
            self._state.cluster,
            self._state.assumed,
            self._pods,
            lambda: self._origin.store.current if self._origin is not None else None,
            self._state.pools,
            notes=self._notes,
            events=self._events,
        )
        self.source = application.Feed(builder, source=source, connection=self._describe_health)

    async def open(self, client: clients.Client | None) -> None:
        """Prepare the watches of a cluster, or without a client of the files."""
        kinds = (resources.WEBHOOK_EVENTS, resources.EXTENDER_EVENTS)
        self._pulse = Pulse(client) if client is not None else None
        self._origin = await sources.connect(
            kubeconfig=None,
            snapshot=pathlib.Path(self._given.snapshot) if self._given.snapshot else None,
            policy=self._policy,
            watches=(
                *states.list_watches(self._state, pods=self._pods, nodes=self._notes),
                *(sources.WatchSpec(kind, self._events) for kind in kinds),
            ),
            restarted=lambda _kind, _reason: None,
            client=client,
        )
        self._state.apply_policy(self._origin.store.current)
        self._origin.store.subscribe(lambda store: self._state.apply_policy(store.current))

    @property
    def tasks(self) -> Sequence[sources.Task]:
        """The tasks that keep the data current; none before `open`."""
        watching = () if self._pulse is None else (self._pulse.run, self._report)
        if self._origin is None:
            return watching
        return (*self._origin.tasks, *watching)

    def _describe_health(self) -> overview_types.Connection:
        if self._origin is None:
            return overview_types.Connection(reading=("the credentials of the kubeconfig",))
        failure = self._pulse.failure if self._pulse is not None else ""
        return application.describe_connection(self._origin, poll_failure=failure, policy=self._policy)

    async def _report(self) -> None:
        """Print each change of the connection to the cluster."""
        reported = ""
        while True:
            if (failure := self._describe_health().away) != reported:
                reported = failure
                text = output.escape_controls(failure or "the cluster answers again")
                print(f"railwright dashboard: {text}", file=sys.stderr)
            await asyncio.sleep(_POLL_SECONDS)


async def _serve(given: cluster_overview.Sources, at: settings.Address, *, browser: bool) -> int:
    """Serve the page. It is there while the credentials are fetched, which may take a login in a browser."""
    view = View(given, f"snapshot {pathlib.Path(given.snapshot).name}" if given.snapshot else "")
    async with contextlib.AsyncExitStack() as stack:
        connecting = stack.enter_context(_cancel_at_end(_connect(view, given, stack)))
        await asyncio.wait({connecting}, timeout=_PROMPT_SECONDS)
        if connecting.done():
            connecting.result()  # a wrong kubeconfig is reported instead of an address
        await serve_views({"": view}, at, lambda url: _announce(url, browser=browser), opening=connecting)
    return output.OK


async def _connect(view: View, given: cluster_overview.Sources, stack: contextlib.AsyncExitStack) -> None:
    """Open the view; `stack` closes the connection. Raises UnreadableError or ClusterError."""
    client = None
    if not given.snapshot:
        client = await stack.enter_async_context(cluster_access.connect(given.cluster, cluster_access.SNAPSHOT))
        view.source.source = client.host
    await view.open(client)


async def serve_views(
    views: Mapping[str, View],
    at: settings.Address,
    announce: Callable[[str], None],
    tasks: Sequence[sources.Task] = (),
    *,
    opening: Awaitable[None] | None = None,
) -> None:
    """Serve views, and run `tasks` beside them, until SIGINT or SIGTERM. `announce` is called with the URL.

    `opening` opens the views while the page is served already.
    """
    async with contextlib.AsyncExitStack() as stack:
        feeding = [stack.enter_context(_cancel_at_end(view.source.run())) for view in views.values()]
        feeds = {name: view.source for name, view in views.items()}
        where = await stack.enter_async_context(application.open_port(at, feeds, _allow_everyone))
        announce(f"http://{where}/")
        if opening is not None:
            await opening
        joining = [functools.partial(_join, task) for task in feeding]
        all_tasks: list[sources.Task] = [*(task for view in views.values() for task in view.tasks), *joining, *tasks]
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(task()) for task in all_tasks]
            await _wait_for_signal()
            for task in running:
                task.cancel()


@contextlib.contextmanager
def _cancel_at_end(work: Coroutine[Any, Any, None]) -> Iterator[asyncio.Task[None]]:
    """Run `work` as a task, which is cancelled at the end of the `with` block."""
    task = asyncio.get_running_loop().create_task(work)
    try:
        yield task
    finally:
        task.cancel()


async def _join(task: asyncio.Task[None]) -> None:
    await task


async def _allow_everyone(_authorization: str, _peer: str) -> None:
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


class Pulse:
    """Polls the API server, because a watch without events looks the same as a dead connection."""

    def __init__(self, client: clients.Client) -> None:
        self._client = client
        self.failure = ""

    async def run(self) -> None:
        """Poll until cancelled; `failure` is the error of the last poll, "" if it succeeded."""
        while True:
            self.failure = await self._poll()
            await asyncio.sleep(_PULSE_SECONDS)

    async def _poll(self) -> str:
        try:
            async with asyncio.timeout(_PULSE_SECONDS):
                await self._client.get(_PULSE_PATH)
        except TimeoutError as error:
            return failures.build_unreachable(self._client.host, _PULSE_PATH, error).sentence
        except errors.ApiError as error:
            # missing permission for /version is no failure; the watches report rejected credentials and renew them
            return error.sentence if error.foreign else ""
        except errors.ClusterError as error:
            return error.sentence
        return ""
