"""Reads an overview of a cluster once, from the API server with the user's permissions or from a snapshot file.

Reports the kinds that the user may not list. `railwright.fabric.overview` computes the content.
"""

import argparse
import asyncio
import logging
import pathlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from extender import state as states
from railwright.cli import cluster_access, formats, object_files, options, output, policies, policy_sources
from railwright.cluster import client as clients
from railwright.cluster import errors, resources, sources, watch_wire
from railwright.fabric.overview import overview_builder, overview_types, pods_and_events
from railwright.fabric.placement.state import object_info
from railwright.fabric.policy import model as policy_model
from railwright.fabric.workloads import membership

_Item = TypeVar("_Item")
_AT_ONCE = 6  # kinds read concurrently
_POLL_SECONDS = 1.0
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


class ClusterView(NamedTuple):
    """An overview, and the pods and nodes that it was computed from."""

    overview: overview_types.Overview
    pods: pods_and_events.OptedInPods
    nodes: Mapping[str, object_info.NodeInfo]

    def list_labels(self, gang: str) -> Sequence[Mapping[str, str]]:
        """Return the labels of each pod of a gang, named by its key."""
        return [pod.metadata.labels for pod in self.pods.gangs.get(membership.GangKey(gang), {}).values()]


def open_view(arguments: argparse.Namespace) -> tuple[Sources, ClusterView]:
    """Return the sources of a command that can watch them, and the current overview. Prints problems on stderr.

    Raises UnreadableError or ClusterError.
    """
    given = get_sources(arguments)
    if arguments.watch and given.snapshot:
        raise output.UnreadableError("--watch and --snapshot exclude each other; give one of them")
    view = read(given)
    for problem in view.overview.problems:
        output.print_note(problem)
    return given, view


def read(given: Sources) -> ClusterView:
    """Return the current overview. Raise UnreadableError or ClusterError."""
    state = states.State(assume_seconds=0.0)
    known, watch_specs = state.opted_in, states.list_watches(state)
    problems: list[str] = []
    if given.snapshot:
        policy = policies.read_file(given.policy)
        _open_file(given.snapshot, watch_specs)
        source = f"snapshot {given.snapshot}"
    else:
        policy, problems = asyncio.run(_open_cluster(given, watch_specs))
        source = f"kubeconfig {given.cluster.kubeconfig}" if given.cluster.kubeconfig else "the cluster"
    state.apply_policy(policy)
    builder = overview_builder.OverviewBuilder(state.cluster, state.assumed, known, lambda: policy, state.pools)
    with output.show_progress("assessing gangs"):
        builder.refresh_fully()
    return ClusterView(builder.build_overview(source=source, problems=problems), known, state.cluster.nodes)


def _open_file(path: str, watch_specs: Sequence[sources.WatchSpec]) -> None:
    objects = object_files.read_snapshot(path, needs="Node")
    for kind, sink in {spec.kind.snapshot_kind: spec.sink for spec in watch_specs}.items():
        sink.replace(objects[kind])


async def watch(given: Sources, present: ClusterView, show: Callable[[ClusterView], None]) -> None:
    """Call `show` with the present view, and after each change, at most once in `_POLL_SECONDS`, until cancelled.

    Prints on stderr when the cluster cannot be read any more, and when it can again.
    """
    logging.basicConfig(level=logging.ERROR)  # a watch that ends is opened again
    show(present)
    state = states.State(assume_seconds=0.0)
    known = state.opted_in
    async with cluster_access.connect(given.cluster) as client, asyncio.TaskGroup() as group:
        origin = await sources.connect(
            kubeconfig=None,
            snapshot=None,
            policy=pathlib.Path(given.policy) if given.policy else None,
            watches=states.list_watches(state),
            client=client,
        )
        for task in origin.tasks:
            group.create_task(task())
        builder = overview_builder.OverviewBuilder(
            state.cluster, state.assumed, known, lambda: origin.store.current, state.pools
        )
        failure = ""
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            if (now := origin.find_outage()) != failure:
                failure = now
                output.print_note(now or "the cluster answers again")
            if not failure and not origin.list_unread():
                state.apply_policy(origin.store.current)
                builder.refresh_fully()
                show(ClusterView(builder.build_overview(), known, state.cluster.nodes))


async def follow(
    given: Sources,
    present: ClusterView,
    arguments: argparse.Namespace,
    list_changes: Callable[[ClusterView], Sequence[tuple[_Item, Sequence[str]]]],
    print_rows: Callable[[ClusterView, Sequence[_Item], bool], None],
) -> None:
    """Print what is there, then each change, until cancelled: documents, or rows with headers before the first.

    `list_changes` returns what is new in a view, each with the lines of `-o name`.
    """
    has_headers = not arguments.no_headers

    def show(view: ClusterView) -> None:
        nonlocal has_headers
        changed = list_changes(view)
        if formats.is_document(arguments.output):
            for item, names in changed:
                if arguments.output == output.YAML:
                    print("---")
                formats.print_document(item, arguments.output, names=names)
        elif changed:
            print_rows(view, [item for item, _ in changed], has_headers)
            has_headers = False
        sys.stdout.flush()

    await watch(given, present, show)


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
