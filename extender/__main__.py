"""The extender's only wiring: settings, sources, state, verbs, routes, server."""

import asyncio
import datetime as dt
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from cluster import errors, events, resources, sinks, sources
from extender import app, gang_events, gangs, gaps, leading, publication, rail_gauges, schedulers
from extender import state as states
from fabric.placement import ledger, size_kinds
from serving import logs, metrics, probes, processes, server, settings, tracing, tuning

STALE_SECONDS = 300.0  # a fleet not heard of for so long would place gangs on what is no longer there
_EXPIRE_EVERY_SECONDS = 1.0
_LOOK_EVERY_SECONDS = 1.0  # at what became of the gangs


def main(argv: Sequence[str] | None = None) -> int:
    """Run the extender until it is told to stop; returns the exit code."""
    options = settings.parse("extender", argv, os.environ)
    logs.configure()

    async def wired(run: processes.Run) -> int:
        return await serve(options, run)

    return processes.start(options, wired)


async def serve(options: settings.Settings, run: processes.Run) -> int:
    """One extender on these settings."""
    counters, checks = metrics.Metrics("extender"), probes.Probes()
    state = states.State(assume_seconds=options.assume_seconds)
    groups = gang_events.PodGroups()
    try:
        at = _place(options)
        traces = tracing.chosen(options)
        origin = await sources.connected(
            kubeconfig=options.kubeconfig,
            snapshot=options.snapshot,
            policy=options.policy,
            wanted=[groups.beside(each) for each in _wanted(state)],
            restarted=lambda kind, reason: counters.watch_restarts.labels(kind, reason).inc(),
            skipped=lambda kind: counters.watch_skipped.labels(kind).inc(),
        )
    except (errors.ClusterError, tracing.MissingError) as error:
        print(f"railwright extender: {error}", file=sys.stderr)  # noqa: T201 - before there is a server to log
        return 2

    def counted(verb: str, nodes: int, unknown: int) -> None:
        counters.extender_nodes.labels(verb).observe(nodes)
        counters.extender_unknown_nodes.inc(unknown)

    verbs = schedulers.Schedulers(
        state, lambda: origin.store.current, clock=time.monotonic, counted=counted, tracing=traces
    )
    checks.add("policy", origin.policy_problem)
    checks.add("caches", lambda: origin.cache_problem(STALE_SECONDS))

    async def expire() -> None:
        while True:
            await asyncio.sleep(_EXPIRE_EVERY_SECONDS)
            verbs.warm()  # a standby too: it may have to answer in a moment
            counters.ledger_expired.inc(len(state.ledger.expire(time.monotonic())))

    posting = _posting(origin, counters)
    part = leading.Leading(verbs, counters)
    look = _looking(verbs, counters, gang_events.telling(posting, groups), part)
    unlabelled = gaps.Gaps(state, counters, policy=lambda: origin.store.current, incomplete=origin.cache_problem)

    devices = rail_gauges.RailGauges(state, counters, lambda: origin.store.current)

    def refresh() -> None:
        unlabelled.show()
        counters.show_sources(**origin.readings())
        counters.leader.set(part.now)
        for each in ledger.State:
            counters.ledger_entries.labels(each).set(state.ledger.count(each))
        waiting, longest = verbs.gangs.waiting(time.monotonic())
        counters.gangs_waiting.set(waiting)
        counters.gang_longest_wait_seconds.set(longest)

    post = origin.client.post if origin.client is not None else None
    offered = part.gated(traces.routes(app.offered(verbs, post)))
    running = server.Server(options, offered, checks, counters, refresh=refresh, stopping=part.resign)
    try:
        telling = [posting.run] if posting else []
        standing = _standing(part, origin, at, options, checks, running)
        watching = [unlabelled.watch, devices.watch, lambda: tuning.freeze_when(lambda: not origin.cache_problem())]
        return await run(running, [*origin.tasks, expire, *watching, look, *telling, *standing])
    finally:
        await traces.close()
        if origin.client is not None:
            await origin.client.close()


def _place(options: settings.Settings) -> leading.Place | None:
    return leading.place(os.environ) if options.leader_elect else None


def _standing(  # noqa: PLR0913, PLR0917 - one place where a candidate meets all it has to do with
    part: leading.Leading,
    origin: sources.Sources,
    at: leading.Place | None,
    options: settings.Settings,
    checks: probes.Probes,
    running: server.Server,
) -> Sequence[server.Task]:
    """What one of several replicas does besides: stand for leader, and say where it is when it leads."""
    if origin.client is None or at is None:
        return ()
    election = part.stand(origin.client, at, seconds=options.lease_seconds, eligible=lambda: not checks.failing())
    ours = {"extender": options.listen.port, "ops": options.ops_listen.port}
    published = publication.Publication(origin.client, at, ours, lambda: part.now)
    part.tell(lambda leads: running.turn_away(not leads), lambda _: published.changed())
    return (election.run, published.run)


def _looking(
    verbs: schedulers.Schedulers,
    counters: metrics.Metrics,
    tell: Callable[[gangs.Outcome], None],
    part: leading.Leading,
) -> server.Task:
    """Looks at what became of the gangs, for ever; counts it and tells it, while this process leads."""

    async def look() -> None:
        while True:
            await asyncio.sleep(_LOOK_EVERY_SECONDS)
            for outcome in verbs.gangs.look(time.monotonic()) if part.now else ():
                tell(outcome)
                if outcome.landed is not None:
                    counters.gang_bandwidth_ratio.observe(outcome.bandwidth)
                    counters.gang_attained_ratio.observe(outcome.attained)
                if not outcome.again:
                    counters.gangs.labels(outcome.word).inc()

    return look


def _posting(origin: sources.Sources, counters: metrics.Metrics) -> events.Events | None:
    """Events, where there is a cluster to tell."""
    if origin.client is None:
        return None
    return events.Events(
        origin.client,
        "railwright-extender",
        now=lambda: dt.datetime.now(dt.UTC),
        became=lambda outcome, count: counters.extender_notices.labels(outcome).inc(count),
    )


def _wanted(state: states.State) -> list[sources.Wanted]:
    table: list[tuple[resources.Kind, str, sinks.Sink[Any]]] = [
        (resources.NODES, "Node", states.Nodes(state)),
        (resources.PLACED_PODS, "Pod", states.Pods(state)),
        (resources.NADS, "NetworkAttachmentDefinition", states.Networks(state)),
        (resources.HYPER_NODES, "HyperNode", states.HyperNodes(state)),
        (resources.NODE_TOPOLOGIES, "NodeResourceTopology", states.NodeTopologies(state)),
    ]
    table += [(kind, snapshot, states.Sizes(state, told)) for kind, snapshot, told in _SIZES]
    large = (resources.NODES, resources.PLACED_PODS)  # a fleet is right about what it has been told
    return [
        sources.Wanted(kind=kind, snapshot_kind=snapshot, sink=sink, gradual=kind in large)
        for kind, snapshot, sink in table
    ]


# What tells the size of a gang: watched as, in a snapshot as, read as. Two versions of a kind are one in a snapshot.
_SIZES = (
    (resources.VOLCANO_POD_GROUPS, "PodGroup.scheduling.volcano.sh", size_kinds.VOLCANO_POD_GROUPS),
    (resources.PLUGINS_POD_GROUPS, "PodGroup.scheduling.x-k8s.io", size_kinds.PLUGINS_POD_GROUPS),
    (resources.IN_TREE_POD_GROUPS_ALPHA, "PodGroup.scheduling.k8s.io", size_kinds.IN_TREE_POD_GROUPS_ALPHA),
    (resources.IN_TREE_POD_GROUPS, "PodGroup.scheduling.k8s.io", size_kinds.IN_TREE_POD_GROUPS),
    (resources.IN_TREE_WORKLOADS, "Workload.scheduling.k8s.io", size_kinds.IN_TREE_WORKLOADS),
    (resources.JOBS, "Job.batch", size_kinds.JOBS),
    (resources.STATEFUL_SETS, "StatefulSet.apps", size_kinds.STATEFUL_SETS),
    (resources.REPLICA_SETS, "ReplicaSet.apps", size_kinds.REPLICA_SETS),
    (resources.VOLCANO_JOBS, "Job.batch.volcano.sh", size_kinds.VOLCANO_JOBS),
    (resources.PYTORCH_JOBS, "PyTorchJob.kubeflow.org", size_kinds.PYTORCH_JOBS),
    (resources.TF_JOBS, "TFJob.kubeflow.org", size_kinds.TF_JOBS),
    (resources.XGBOOST_JOBS, "XGBoostJob.kubeflow.org", size_kinds.XGBOOST_JOBS),
    (resources.PADDLE_JOBS, "PaddleJob.kubeflow.org", size_kinds.PADDLE_JOBS),
    (resources.JAX_JOBS, "JAXJob.kubeflow.org", size_kinds.JAX_JOBS),
    (resources.MPI_JOBS_V1, "MPIJob.kubeflow.org", size_kinds.MPI_JOBS_V1),
    (resources.MPI_JOBS, "MPIJob.kubeflow.org", size_kinds.MPI_JOBS),
)


if __name__ == "__main__":
    sys.exit(main())
