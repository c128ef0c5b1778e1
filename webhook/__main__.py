"""Builds and runs the webhook from its settings: sources, caches, routes, server."""

import functools
import os
import sys
from collections.abc import Collection, Sequence

from railwright.cluster import errors, events, installed_names, resources, sinks, sources
from railwright.cluster import policy_errors as _policy_errors  # noqa: F401 - takes 0.1 s, which no review should wait
from railwright.fabric.gang_topology import outlets
from railwright.fabric.injection import opt_in
from railwright.fabric.lint import admission
from railwright.serving import logs, metrics, probes, server, settings, tls
from webhook import (
    app,
    claim_templates,
    extender_questions,
    object_events,
)
from webhook import state as states

_NO_CLUSTER = 2  # exit code of wrong usage, and of a cluster that cannot be reached with these settings


def main(argv: Sequence[str] | None = None) -> int:
    """Run the webhook until a signal stops it. Return the exit code."""
    options = settings.parse("webhook", argv, os.environ)
    logs.configure()
    admission.prepare()  # before requests arrive, because it takes longer than one may wait
    return server.start(options, lambda: serve(options))


async def serve(options: settings.Settings) -> int:
    """Run the webhook until it is stopped. Return the exit code."""
    counters, checks = metrics.Metrics("webhook"), probes.Probes()
    state = states.State()
    try:
        origin = await sources.connect(
            kubeconfig=options.kubeconfig,
            snapshot=options.snapshot,
            policy=options.policy,
            watches=_list_watches(state),
            restarted=lambda kind, reason: counters.watch_restarts.labels(kind, reason).inc(),
            skipped=lambda kind: counters.watch_skipped.labels(kind).inc(),
        )
    except errors.ClusterError as error:
        print(f"railwright webhook: {error.sentence}", file=sys.stderr)  # noqa: T201 - the server's log does not exist yet
        return _NO_CLUSTER
    poster = _build_poster(origin, counters)
    background = [] if poster is None else _list_writers(origin, state, poster, counters, options)

    state.watched = origin.client is not None
    post_event = object_events.build_sink(poster)
    extender: extender_questions.Extender | None = None
    if options.extender_ops is not None:
        extender = extender_questions.Extender(options.extender_ops, tls.get_utc_now)
        report = app.build_late_report(counters, post_event)
        background.append(functools.partial(extender.keep_asking, report))

    def list_apis() -> Collection[str]:
        return outlets.list_apis(origin.store.current)

    if origin.client is not None:
        background.append(functools.partial(sources.keep_asking, origin.client, list_apis, state.set_served_apis))

    def refresh() -> None:
        counters.show_sources(**origin.read_metrics())
        excluded = opt_in.ALWAYS_EXCLUDED | {installed_names.NAMESPACE} | options.excluded_namespaces
        uninjected_counts = state.pods.uninjected.count(origin.store.current, state.get_labels, excluded)
        counters.show_uninjected(uninjected_counts)

    checks.add("policy", origin.find_policy_problem)
    checks.add("caches", origin.cache_problem)
    webhook_server = server.Server(
        options,
        app.build_routes(
            state,
            lambda: origin.store.current,
            counters,
            post_event,
            extender=extender,
        ),
        checks,
        counters,
        refresh=refresh,
    )
    try:
        return await webhook_server.run([*origin.tasks, *background])
    finally:
        if extender is not None:
            await extender.close()
        if origin.client is not None:
            await origin.client.close()


def _list_watches(state: states.State) -> list[sources.WatchSpec]:
    watch, devices = sources.WatchSpec, state.devices
    pods = sinks.Several(state.pods, state.claiming_pods, state.daemon_pods)
    return [
        watch(resources.NAMESPACES, state.namespaces),
        watch(resources.NODES, state.nodes, excerpt=state.nodes.excerpt),
        watch(resources.PODS, pods, gradual=True),
        watch(resources.CLAIM_TEMPLATES, state.claim_templates),
        watch(resources.KUEUE_WORKLOADS, state.claiming_workloads),
        watch(resources.LOCAL_QUEUES, state.local_queues),
        watch(resources.CLUSTER_QUEUES, state.cluster_queues),
        watch(resources.RESOURCE_FLAVORS, state.flavors),
        watch(resources.TOPOLOGIES, state.topologies),
        watch(resources.KAI_TOPOLOGIES, state.kai_topologies),
        watch(resources.GROVE_TOPOLOGIES, state.grove_topologies),
        watch(resources.NADS, state.networks),
        watch(resources.HYPER_NODES, state.hyper_nodes),
        watch(resources.DEVICE_CLASSES, devices.classes),
        watch(resources.RESOURCE_SLICES, devices.slices, excerpt=devices.share_slice),
        watch(resources.DEVICE_TAINT_RULES, devices.taint_rules),
        watch(resources.CONFIGURED_CLAIMS, devices.claims),
    ]


def _list_writers(
    origin: sources.Sources,
    state: states.State,
    poster: events.Events,
    counters: metrics.Metrics,
    options: settings.Settings,
) -> list[sources.Task]:
    """Return the tasks that write to the API server: Events and claim templates.

    The controller of claim templates does nothing while the caches are incomplete or old.
    """
    assert origin.client is not None  # noqa: S101 - there is a poster only with a client
    parts = claim_templates.Parts(
        client=origin.client,
        state=state,
        get_policy=lambda: origin.store.current,
        get_problem=lambda: origin.cache_problem() or origin.find_outage(),
        poster=poster,
        counters=counters,
        unused_seconds=options.unused_template_seconds,
    )
    controller = claim_templates.ClaimTemplateController(parts)
    origin.store.subscribe(lambda _: controller.forget_failures())
    return [poster.run, controller.run]


def _build_poster(origin: sources.Sources, counters: metrics.Metrics) -> events.Events | None:
    """Return a poster of Events that also posts those about the policy. None without an API server."""
    if origin.client is None:
        return None
    poster = events.Events(
        origin.client,
        "railwright-webhook",
        now=tls.get_utc_now,
        on_result=lambda outcome, count: counters.webhook_events.labels(outcome).inc(count),
    )
    object_events.PolicyEvents(poster, origin.store, origin.policy_object)
    return poster


if __name__ == "__main__":
    sys.exit(main())
