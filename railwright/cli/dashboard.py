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
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import Any

from extender import state as states
from railwright.cli import cluster_access, cluster_overview, object_files, output
from railwright.cluster import client as clients
from railwright.cluster import sources
from railwright.dashboard import application
from railwright.fabric.overview import overview_builder
from railwright.serving import ports, settings

_POLL_SECONDS = 1.0
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
    except ports.ListenError as error:
        raise output.UnreadableError(f"dashboard: {error}") from None


def _parse_address(text: str) -> settings.Address:
    try:
        at = settings.parse_address(text)
    except argparse.ArgumentTypeError as error:
        raise output.UnreadableError(f"--listen {error}") from None
    if not at.is_loopback:
        raise output.UnreadableError(
            f"--listen {text}: everyone who connects would see what you may see; listen on 127.0.0.1. "
            "For other users, use the extender's --dashboard-listen, which authenticates them"
        )
    return at


class View:
    """The overview for the page: empty until it is opened and its tasks run."""

    def __init__(self, given: cluster_overview.Sources, source: str = "") -> None:
        """`source`: what the page shows as the origin of the data."""
        self._given = given
        self._state = states.State(assume_seconds=0.0)
        self._origin: sources.Sources | None = None
        builder = overview_builder.OverviewBuilder(
            self._state.cluster,
            self._state.assumed,
            self._state.opted_in,
            lambda: self._origin.store.current if self._origin is not None else None,
            self._state.pools,
        )
        self.feed = application.Feed(builder, source=source, list_problems=self._list_problems)

    async def open(self, client: clients.Client | None) -> None:
        """Prepare the watches of a cluster, or without a client of the files."""
        self._origin = await sources.connect(
            kubeconfig=None,
            snapshot=pathlib.Path(self._given.snapshot) if self._given.snapshot else None,
            policy=pathlib.Path(self._given.policy) if self._given.policy else None,
            watches=states.list_watches(self._state),
            client=client,
        )
        self._state.apply_policy(self._origin.store.current)
        self._origin.store.subscribe(lambda store: self._state.apply_policy(store.current))

    @property
    def tasks(self) -> Sequence[sources.Task]:
        """The tasks that keep the data current; none before `open`."""
        return () if self._origin is None else (*self._origin.tasks, self._report)

    def _list_problems(self) -> Sequence[str]:
        if self._origin is None:
            return ("Not read yet: the credentials of the kubeconfig.",)
        return self._origin.list_problems()

    async def _report(self) -> None:
        """Print when the cluster cannot be read any more, and when it can again."""
        reported = ""
        while True:
            if self._origin is not None and (outage := self._origin.find_outage()) != reported:
                reported = outage
                text = output.escape_controls(outage or "the cluster answers again")
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
        await serve_view(view, at, lambda url: _announce(url, browser=browser), opening=connecting)
    return output.OK


async def _connect(view: View, given: cluster_overview.Sources, stack: contextlib.AsyncExitStack) -> None:
    """Open the view; `stack` closes the connection. Raises UnreadableError or ClusterError."""
    client = None
    if not given.snapshot:
        client = await stack.enter_async_context(cluster_access.connect(given.cluster, cluster_access.SNAPSHOT))
        view.feed.source = client.host
    await view.open(client)


async def serve_view(
    view: View,
    at: settings.Address,
    announce: Callable[[str], None],
    tasks: Sequence[sources.Task] = (),
    *,
    opening: Awaitable[None] | None = None,
) -> None:
    """Serve a view, and run `tasks` beside it, until SIGINT or SIGTERM. `announce` is called with the URL.

    `opening` opens the view while the page is served already.
    """
    async with contextlib.AsyncExitStack() as stack:
        feeding = stack.enter_context(_cancel_at_end(view.feed.run()))
        where = await stack.enter_async_context(application.open_port(at, view.feed, _allow_everyone))
        announce(f"http://{where}/")
        if opening is not None:
            await opening
        async with asyncio.TaskGroup() as group:
            all_tasks: list[sources.Task] = [*view.tasks, functools.partial(_join, feeding), *tasks]
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
