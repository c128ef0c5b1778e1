"""The overview of a cluster at one moment, for a command that prints it and ends: listed once, nothing is watched.

Owns the two ways to the objects (the API server by the user's own account, a snapshot file), and what is told of kinds
the account may not read. What is shown of them is `railwright.fabric.overview`'s.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from extender import state as states
from extender import watched
from railwright.cli import kubeconfig, output, snapshot_files, waiting
from railwright.cli.verification import policies
from railwright.cluster import client as clients
from railwright.cluster import errors, failures, listing, resources, sources, watch_wire
from railwright.fabric.overview import members, model, picture
from railwright.fabric.policy import model as policy_model

_AT_ONCE = 6  # kinds read at a time
_NEEDED = frozenset({resources.NODES, resources.PLACED_PODS})  # without these there is nothing to show


class Way(NamedTuple):
    """Where the objects and the policy come from; "" and None where nothing was given."""

    kubeconfig: str = ""
    context: str | None = None
    snapshot: str = ""
    policy: str = ""


def overview(way: Way) -> model.Overview:
    """Return all there is to see now. Raises UnreadableError and ClusterError."""
    if way.snapshot and not way.policy:
        raise output.UnreadableError("--snapshot means no cluster, so the policy needs a file too: add --policy FILE")
    if way.snapshot and (way.kubeconfig or way.context):
        raise output.UnreadableError("--snapshot contradicts --kubeconfig and --context: leave out one of them")
    state, known = states.State(assume_seconds=0.0), members.Members()
    wanted = watched.wanted(state, pods=known)
    if way.snapshot:
        policy, problems = policies.from_file(way.policy), _from_file(way.snapshot, wanted)
        source = f"snapshot {way.snapshot}"
    else:
        policy, problems = asyncio.run(_from_cluster(way, wanted))
        source = f"kubeconfig {way.kubeconfig}" if way.kubeconfig else "the cluster"
    drawing = picture.Picture(state.fleet, state.ledger, known, lambda: policy, state.pools)
    with waiting.shown("judging gangs"):
        while True:
            for _ in drawing.refresh():
                pass
            if drawing.settled:
                return drawing.overview(source=source, problems=problems)


def _from_file(path: str, wanted: Sequence[sources.Wanted]) -> Sequence[str]:
    found = snapshot_files.read(path, needs="Node")
    for kind, sink in {each.snapshot_kind: each.sink for each in wanted}.items():
        sink.replace(found[kind])
    return ()


# --- the API server ---------------------------------------------------------------------------------------


async def _from_cluster(way: Way, wanted: Sequence[sources.Wanted]) -> tuple[policy_model.Policy, Sequence[str]]:
    account = kubeconfig.chosen(way.kubeconfig, kubeconfig.SNAPSHOT)
    client = await clients.connect(account, context=way.context)
    try:
        policy = policies.from_file(way.policy) if way.policy else await policies.fetched(client)
        with waiting.shown("reading the cluster", total=len(wanted)) as told:
            turn = asyncio.Semaphore(_AT_ONCE)

            async def read(each: sources.Wanted) -> str:
                async with turn:
                    problem = await _fed(client, each)
                told()
                return problem

            return policy, [each for each in await asyncio.gather(*map(read, wanted)) if each]
    finally:
        await client.close()


async def _fed(client: clients.Client, wanted: sources.Wanted) -> str:
    """Feed one kind into its sink; what is to be told where it could not be read and is not needed."""
    try:
        wanted.sink.replace(await listing.listed(client, wanted.kind.path, wanted.kind.view))
    except watch_wire.UNREADABLE as error:
        where = wanted.kind.path.rpartition("/")[2]
        told = failures.quotable(str(error))
        raise output.UnreadableError(
            f"an object among the {where} cannot be understood{told and f': {told}'}; "
            f"to see them: kubectl get {where} -A"
        ) from None
    except errors.ApiError as error:
        if error.status == 404 and wanted.kind.optional:
            wanted.sink.replace([])
            return ""
        if error.status != 403:
            raise
        where = wanted.kind.path.rpartition("/")[2]
        if wanted.kind in _NEEDED:
            told = failures.quotable(error.message)
            raise output.UnreadableError(
                f"you may not list {where} of the whole cluster{told and f' ({told})'}, and a fabric is made of them; "
                f"ask for a ClusterRole with list on {where}, or look at a file: --snapshot FILE --policy FILE"
            ) from None
        wanted.sink.replace([])
        return f"you may not list {where}: what they tell of gangs is not shown"
    return ""
