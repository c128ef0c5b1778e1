"""Runs `railwright dashboard`: fills its caches with the user's own permissions, or from files, and serves the page.

Listens on loopback only, because everyone who can connect sees what the user may see.
"""

import argparse
import asyncio
import functools
import logging
import signal
import sys
import webbrowser
from collections.abc import Callable

from extender import state as states
from extender import watches
from railwright.cli import kubeconfig, object_files, output
from railwright.cluster import pulse, resources, sources
from railwright.dashboard import feed, port
from railwright.fabric.overview import admissions, opted_in_pods, overview_builder
from railwright.serving import listeners, settings

_POLL_SECONDS = 1.0
_STALE_SECONDS = 150.0  # an idle watch gets a bookmark each minute; more than two are missing


def run(arguments: argparse.Namespace) -> int:
    """Return 0 when stopped, 2 if the cluster or the port is not available."""
    if arguments.snapshot and not arguments.policy:
        raise output.UnreadableError("--snapshot: the policy must come from a file too; add --policy FILE")
    if arguments.snapshot and arguments.kubeconfig:
        raise output.UnreadableError("--snapshot and --kubeconfig exclude each other; give one of them")
    if arguments.policy is not None:
        output.read_text(str(arguments.policy))
    if arguments.snapshot is not None:
        object_files.read_snapshot(str(arguments.snapshot))
    logging.basicConfig(level=logging.ERROR, format="railwright dashboard: %(message)s")  # the page shows the rest
    try:
        return asyncio.run(_serve(arguments, _address(arguments.listen)))
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


async def _serve(arguments: argparse.Namespace, at: settings.Address) -> int:
    state, known = states.State(assume_seconds=0.0), opted_in_pods.OptedInPods()
    watch_specs = watches.list_watches(state, pods=known)
    admission_events = admissions.EventSink(known.admissions)
    watch_specs.append(sources.WatchSpec(kind=resources.WEBHOOK_EVENTS, snapshot_kind="Event", sink=admission_events))
    account = None if arguments.snapshot else kubeconfig.choose(arguments.kubeconfig, kubeconfig.SNAPSHOT)
    origin = await sources.connect(
        kubeconfig=account,
        snapshot=arguments.snapshot,
        policy=arguments.policy,
        watches=watch_specs,
        restarted=lambda _kind, _reason: None,
    )
    beat = pulse.Pulse(origin.client) if origin.client is not None else None

    def away() -> str:
        return origin.away() or (beat.failure if beat is not None else "")

    watching: list[sources.Task] = [] if beat is None else [beat.run, functools.partial(_tell, away)]
    builder = overview_builder.OverviewBuilder(
        state.cluster, state.assumed, known, lambda: origin.store.current, state.pools
    )
    source = feed.Feed(
        builder,
        source=f"snapshot {arguments.snapshot.name}" if arguments.snapshot else f"kubeconfig {account}",
        problems=lambda: _problems(origin, away()),
        away=away,
    )
    try:
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(each()) for each in (*origin.tasks, *watching, source.run)]
            async with port.open_port(at, {"": source}, _everybody) as where:
                _announce(f"http://{where}/", browser=arguments.open)
                await _wait_for_signal()
            for each in running:
                each.cancel()
    finally:
        if origin.client is not None:
            await origin.client.close()
    return output.OK


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


async def _tell(away: Callable[[], str]) -> None:
    """Print each change of the connection to the cluster."""
    reported = ""
    while True:
        if (now := away()) != reported:
            reported = now
            print(f"railwright dashboard: {output.visible(now or 'the cluster answers again')}", file=sys.stderr)
        await asyncio.sleep(_POLL_SECONDS)


def _problems(origin: sources.Sources, away: str) -> list[str]:
    if away:  # other problems follow from this one
        return [away]
    return [problem for problem in (origin.policy_problem(), origin.cache_problem(_STALE_SECONDS)) if problem]
