"""Reads an overview of a cluster once, from the API server with the user's permissions or from a snapshot file.

Reports the kinds that the user may not list. `railwright.fabric.overview` computes the content.
"""

import argparse
import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from extender import state as states
from railwright.cli import cluster_access, object_files, options, output, policies, policy_sources
from railwright.cluster import client as clients
from railwright.cluster import errors, resources, sources, watch_wire
from railwright.fabric.overview import overview_builder, overview_types
from railwright.fabric.policy import model as policy_model

_AT_ONCE = 6  # kinds read concurrently
_REQUIRED = frozenset(
    {resources.NODES, resources.PLACED_PODS}
)  # required; without the other kinds some columns are missing


class Sources(NamedTuple):
    """The sources of objects and policy, as given by options; "" for options that were not given."""

    cluster: options.ClusterOptions = options.ClusterOptions()
    snapshot: str = ""
    policy: str = ""


def get_sources(arguments: argparse.Namespace) -> Sources:
    """Return the sources that the options of a command name. Raise UnreadableError if they exclude each other."""
    cluster = options.get_cluster(arguments)
    if arguments.snapshot and not arguments.policy:
        raise output.UnreadableError("--snapshot: the policy must come from a file too; add --policy FILE")
    if arguments.snapshot and cluster.is_given:
        raise output.UnreadableError(
            "--snapshot excludes --kubeconfig, --context, --as and --as-group; remove --snapshot or the others"
        )
    return Sources(cluster, arguments.snapshot, arguments.policy)


def read(arguments: argparse.Namespace) -> overview_types.Overview:
    """Return the overview of what the options of a command name. Print problems on stderr.

    Raises UnreadableError or ClusterError.
    """
    given = get_sources(arguments)
    state = states.State(assume_seconds=0.0)
    watch_specs = states.list_watches(state)
    problems: list[str] = []
    if given.snapshot:
        policy = policies.read_file(given.policy)
        objects = object_files.read_snapshot(given.snapshot, needs="Node")
        for kind, sink in {spec.kind.snapshot_kind: spec.sink for spec in watch_specs}.items():
            sink.replace(objects[kind])
    else:
        policy, problems = asyncio.run(_open_cluster(given, watch_specs))
    state.apply_policy(policy)
    builder = overview_builder.OverviewBuilder(
        state.cluster, state.assumed, state.opted_in, lambda: policy, state.pools
    )
    with output.show_progress("assessing gangs"):
        builder.refresh_fully()
    for problem in problems:
        output.print_note(problem)
    return builder.build_overview()


# --- the API server ---------------------------------------------------------------------------------------


async def _open_cluster(
    given: Sources, watch_specs: Sequence[sources.WatchSpec]
) -> tuple[policy_model.Policy, list[str]]:
    async with cluster_access.connect(given.cluster, cluster_access.SNAPSHOT) as client:
        policy = policies.read_file(given.policy) if given.policy else await policy_sources.fetch(client)
        with output.show_progress("reading the cluster", total=len(watch_specs)) as advance:
            semaphore = asyncio.Semaphore(_AT_ONCE)

            async def read_kind(spec: sources.WatchSpec) -> str:
                async with semaphore:
                    problem = await _read_kind(client, spec)
                advance()
                return problem

            return policy, [problem for problem in await asyncio.gather(*map(read_kind, watch_specs)) if problem]


async def _read_kind(client: clients.Client, spec: sources.WatchSpec) -> str:
    """Read the objects of a kind into its sink. Return a warning if it is optional and could not be read, else ""."""
    try:
        spec.sink.replace(await watch_wire.list_objects(client, spec.kind.path, spec.kind.view))
    except watch_wire.UNREADABLE as error:
        plural = spec.kind.path.rpartition("/")[2]
        cause = errors.quote_message(str(error))
        raise output.UnreadableError(
            f"one of the {plural} cannot be decoded{cause and f': {cause}'}; to list them: kubectl get {plural} -A"
        ) from None
    except errors.ApiError as error:
        if error.status == 404 and spec.kind.optional:
            spec.sink.replace([])
            return ""
        if error.status != 403:
            raise
        plural = spec.kind.path.rpartition("/")[2]
        if spec.kind in _REQUIRED:
            raise output.UnreadableError(f"{error.sentence}, or {cluster_access.SNAPSHOT}") from None
        spec.sink.replace([])
        return f"you may not list {plural}: data from them is not shown"
    return ""
