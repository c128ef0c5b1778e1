"""`railwright dashboard`: the fabric, its gangs and what admission did lately, on a page of this machine.

Owns the arguments and the wiring: caches of this process, filled by what the user's own account may read, or by files.
Serves on loopback only: whoever may connect sees what the user may see.
"""

import argparse
import asyncio
import functools
import logging
import pathlib
import signal
import sys
import typing
import webbrowser
from collections.abc import Callable

from railwright.cli import kubeconfig, output, snapshot_files

if typing.TYPE_CHECKING:  # slow to import; the commands beside this one do not wait for them
    from railwright.cluster import sources
    from railwright.serving import settings

NAME = "dashboard"
HELP = "the fabric, its gangs and what admission did lately, live on a page of this machine"
_LOOK_SECONDS = 1.0
_STALE_SECONDS = 150.0  # a watch without news has bookmarks each minute: over two of them are missing


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of this command."""
    parser.add_argument(
        "--listen", metavar="HOST:PORT", default="127.0.0.1:0", help="loopback only (default: %(default)s)"
    )
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    parser.add_argument("--kubeconfig", metavar="FILE", default="", help="the cluster (default: as kubectl has it)")
    parser.add_argument("--snapshot", metavar="FILE", type=pathlib.Path, help="objects from a file, reread on change")
    parser.add_argument("--policy", metavar="FILE", type=pathlib.Path, help="the policy from a file, reread on change")


def run(arguments: argparse.Namespace) -> int:
    """0 once it is stopped, 2 where the cluster or the port cannot be had."""
    from railwright.serving import listeners  # noqa: PLC0415 - slow to import, as in all commands

    if arguments.snapshot and not arguments.policy:
        raise output.UnreadableError("--snapshot means no cluster, so the policy needs a file too: add --policy FILE")
    if arguments.snapshot and arguments.kubeconfig:
        raise output.UnreadableError("--snapshot contradicts --kubeconfig: leave out one of them")
    if arguments.policy is not None:
        output.read_text(str(arguments.policy))
    if arguments.snapshot is not None:
        snapshot_files.read(str(arguments.snapshot))
    logging.basicConfig(level=logging.ERROR, format="railwright dashboard: %(message)s")  # the page tells the rest
    try:
        return asyncio.run(_serve(arguments, _address(arguments.listen)))
    except listeners.ListenError as error:
        raise output.UnreadableError(f"dashboard: {error}") from None


def _address(text: str) -> "settings.Address":
    from railwright.serving import settings  # noqa: PLC0415 - as above

    try:
        at = settings.address(text)
    except ValueError as error:
        raise output.UnreadableError(f"--listen {error}") from None
    if not at.is_loopback:
        raise output.UnreadableError(
            f"--listen {text}: the page shows what you may see to whoever connects; listen on 127.0.0.1. "
            "For others there is the extender's --dashboard-listen, which asks who they are"
        )
    return at


async def _serve(arguments: argparse.Namespace, at: "settings.Address") -> int:
    from extender import state as states  # noqa: PLC0415
    from extender import watched  # noqa: PLC0415
    from railwright.cluster import pulse, resources, sources  # noqa: PLC0415 - as above
    from railwright.dashboard import feed, port  # noqa: PLC0415
    from railwright.fabric.overview import admissions, members, picture  # noqa: PLC0415

    state, known = states.State(assume_seconds=0.0), members.Members()
    wanted = watched.wanted(state, pods=known)
    told = admissions.Events(known.admissions)
    wanted.append(sources.Wanted(kind=resources.WEBHOOK_EVENTS, snapshot_kind="Event", sink=told))
    account = None if arguments.snapshot else kubeconfig.chosen(arguments.kubeconfig, kubeconfig.SNAPSHOT)
    origin = await sources.connected(
        kubeconfig=account,
        snapshot=arguments.snapshot,
        policy=arguments.policy,
        wanted=wanted,
        restarted=lambda _kind, _reason: None,
    )
    beat = pulse.Pulse(origin.client) if origin.client is not None else None

    def away() -> str:
        return origin.away() or (beat.failure if beat is not None else "")

    watching: list[sources.Task] = [] if beat is None else [beat.run, functools.partial(_tell, away)]
    drawing = picture.Picture(state.fleet, state.ledger, known, lambda: origin.store.current, state.pools)
    source = feed.Feed(
        drawing,
        source=f"snapshot {arguments.snapshot.name}" if arguments.snapshot else f"kubeconfig {account}",
        problems=lambda: _problems(origin, away()),
        away=away,
    )
    try:
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(each()) for each in (*origin.tasks, *watching, source.run)]
            async with port.opened(at, source, _everybody) as where:
                _announce(f"http://{where}/", browser=arguments.open)
                await _stopped()
            for each in running:
                each.cancel()
    finally:
        if origin.client is not None:
            await origin.client.close()
    return output.OK


async def _everybody(_authorization: str, _peer: str) -> None:
    """The port is on loopback, and what it shows is the user's own view."""


def _announce(url: str, *, browser: bool) -> None:
    print(f"dashboard: {url}  (Ctrl-C ends it)", flush=True)
    if browser and not webbrowser.open(url):
        print(f"railwright dashboard: there is no browser to open; visit {url}", file=sys.stderr)


async def _stopped() -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    await stopped.wait()


async def _tell(away: Callable[[], str]) -> None:
    """Say on the terminal, once for each change, that the cluster is away, and that it is back."""
    told = ""
    while True:
        if (now := away()) != told:
            told = now
            print(f"railwright dashboard: {output.visible(now or 'the cluster answers again')}", file=sys.stderr)
        await asyncio.sleep(_LOOK_SECONDS)


def _problems(origin: "sources.Sources", away: str) -> list[str]:
    if away:  # what else is wrong comes of that
        return [away]
    return [each for each in (origin.policy_problem(), origin.cache_problem(_STALE_SECONDS)) if each]
