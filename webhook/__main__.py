"""The webhook's only wiring: settings, sources, state, routes, server."""

import datetime as dt
import os
import sys
from collections.abc import Sequence

from railwright.cluster import errors, events, resources, sources
from railwright.fabric.injection import missed
from railwright.fabric.lint import admission
from railwright.serving import logs, metrics, probes, processes, server, settings, tracing, tuning
from webhook import app, pod_events, policy_events
from webhook import state as states

_NO_CLUSTER = 2  # exit code: usage, or a cluster that cannot be reached with what was given


def main(argv: Sequence[str] | None = None) -> int:
    """Run the webhook until it is told to stop; returns the exit code."""
    options = settings.parse("webhook", argv, os.environ)
    logs.configure()
    admission.prepare()  # before there are workers, which then share it

    async def wired(run: processes.Run) -> int:
        return await serve(options, run)

    return processes.start(options, wired)


async def serve(options: settings.Settings, run: processes.Run) -> int:
    """One webhook process on these settings."""
    counters, checks = metrics.Metrics("webhook"), probes.Probes()
    state = states.State()
    try:
        traces = tracing.chosen(options)
        origin = await sources.connected(
            kubeconfig=options.kubeconfig,
            snapshot=options.snapshot,
            policy=options.policy,
            wanted=_wanted(state),
            restarted=lambda kind, reason: counters.watch_restarts.labels(kind, reason).inc(),
            skipped=lambda kind: counters.watch_skipped.labels(kind).inc(),
        )
    except (errors.ClusterError, tracing.MissingError) as error:
        told = error.sentence if isinstance(error, errors.ClusterError) else error
        print(f"railwright webhook: {told}", file=sys.stderr)  # noqa: T201 - before there is a server to log
        return _NO_CLUSTER
    posting = _posting(origin, counters)

    async def settle() -> None:
        await tuning.freeze_when(lambda: not origin.cache_problem())

    state.watched = origin.client is not None

    def refresh() -> None:
        counters.show_sources(**origin.readings())
        excluded = missed.ALWAYS_EXCLUDED | options.excluded_namespaces
        without = state.pods.uninjected.count(origin.store.current, state.namespaces.labels.get, excluded)
        counters.show_uninjected(without)

    checks.add("policy", origin.policy_problem)
    checks.add("caches", origin.cache_problem)
    shell = server.Server(
        options,
        app.offered(state, lambda: origin.store.current, counters, pod_events.telling(posting), traces),
        checks,
        counters,
        refresh=refresh,
    )
    try:
        return await run(shell, [*origin.tasks, settle, *([posting.run] if posting else [])])
    finally:
        await traces.close()
        if origin.client is not None:
            await origin.client.close()


def _wanted(state: states.State) -> list[sources.Wanted]:
    return [
        sources.Wanted(kind=resources.NAMESPACES, snapshot_kind="Namespace", sink=state.namespaces),
        sources.Wanted(kind=resources.NODES, snapshot_kind="Node", sink=state.nodes, excerpt=state.nodes.excerpt),
        sources.Wanted(kind=resources.PODS, snapshot_kind="Pod", sink=state.pods, gradual=True),
        sources.Wanted(kind=resources.NADS, snapshot_kind="NetworkAttachmentDefinition", sink=state.networks),
        sources.Wanted(kind=resources.HYPER_NODES, snapshot_kind="HyperNode", sink=state.hyper_nodes),
    ]


def _posting(origin: sources.Sources, counters: metrics.Metrics) -> events.Events | None:
    """Events, where there is a cluster to tell; about the policy from here on."""
    if origin.client is None:
        return None
    posting = events.Events(
        origin.client,
        "railwright-webhook",
        now=lambda: dt.datetime.now(dt.UTC),
        became=lambda outcome, count: counters.webhook_events.labels(outcome).inc(count),
    )
    origin.store.subscribe(policy_events.PolicyEvents(posting, lambda: origin.policy_map.uid))
    return posting


if __name__ == "__main__":
    sys.exit(main())
