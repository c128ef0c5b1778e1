"""Builds and runs the webhook from its settings: sources, caches, routes, server."""

import asyncio
import functools
import sys
from collections.abc import Sequence

from railwright.cluster import client as clients
from railwright.cluster import errors, events, labelled_pods, last_policy, resources, sinks, sources, watch_wire
from railwright.cluster import policy_errors as _policy_errors  # noqa: F401 - takes 0.1 s, which no review should wait
from railwright.fabric.nccl import catalogue
from railwright.fabric.policy import model
from railwright.fabric.workloads import fabric_users
from railwright.serving import logs, metrics, probes, server, settings, tls
from webhook import app, claim_templates, file_keys, object_events
from webhook import state as states

_LIST_SECONDS = 2.0  # of the five that the API server waits for a review
_NO_CLUSTER = 2  # exit code of wrong usage, and of a cluster that cannot be reached with these settings


def main(argv: Sequence[str] | None = None) -> int:
    """Run the webhook until a signal stops it. Return the exit code."""
    options = settings.parse("webhook", argv)
    logs.configure()
    catalogue.list_variables()  # read before requests arrive
    return server.start(options, lambda: serve(options))


async def serve(options: settings.Settings) -> int:
    """Run the webhook until it is stopped. Return the exit code."""
    counters, checks = metrics.WebhookMetrics(), probes.Probes()
    state = states.State()
    try:
        origin = await sources.connect(
            kubeconfig=str(options.kubeconfig) if options.kubeconfig else None,
            snapshot=options.snapshot,
            policy=options.policy,
            watches=_list_watches(state),
            count_failure=lambda kind, reason: counters.watch_failures.labels(kind, reason).inc(),
        )
    except errors.ClusterError as error:
        print(f"railwright webhook: {error.sentence}", file=sys.stderr)  # noqa: T201 - the server's log does not exist yet
        return _NO_CLUSTER
    state.watched = origin.client is not None
    support = None if origin.client is None else file_keys.Support(origin.client, state.set_file_keys)
    if support is not None:
        await support.read()
    poster = _build_poster(origin, counters)
    controller = None if poster is None else _build_controller(origin, state, poster, counters)
    last = last_policy.build(origin, writes=True)
    background = [task.run for task in (poster, controller, support, last) if task is not None]

    def refresh() -> None:
        counters.show_sources(**origin.read_metrics())

    checks.add("policy", origin.find_policy_problem)
    checks.add("caches", origin.cache_problem)
    webhook_server = server.Server(
        options,
        app.build_application(
            state,
            lambda: origin.store.current,
            counters,
            object_events.build_sink(poster),
            controller.write_for_workload if controller is not None else None,
            app.list_none if origin.client is None else functools.partial(_list_pods, origin.client),
            max_body=options.max_body,
        ),
        checks,
        counters,
        refresh=refresh,
    )
    try:
        return await webhook_server.run([*origin.tasks, *background])
    finally:
        if origin.client is not None:
            await origin.client.close()


async def _list_pods(client: clients.Client, labels: Sequence[str]) -> fabric_users.LabelledPods | None:
    """Return the pods with these labels; None if the API server does not list them in time."""
    try:
        async with asyncio.timeout(_LIST_SECONDS):
            return await labelled_pods.list_pods(client, labels)
    except (errors.ClusterError, TimeoutError, *watch_wire.UNREADABLE):
        return None


def _list_watches(state: states.State) -> list[sources.WatchSpec]:
    """Return what is watched beside the policy. Of pods without a node, those that name claim templates are kept."""
    watch = sources.WatchSpec
    return [
        watch(resources.NAMESPACES, state.namespaces),
        watch(resources.NODES, state.nodes, excerpt=state.nodes.excerpt),
        watch(resources.NADS, sinks.Several(state.networks, state.subnets)),
        watch(resources.WAITING_PODS, state.claiming_pods, gradual=True, is_needed=_has_claims),
        watch(resources.CLAIM_TEMPLATES, state.claim_templates, is_needed=_needs_templates),
    ]


def _has_claims(document: model.PolicyDocument) -> bool:
    return any(fabric.claims is not None for fabric in document.fabrics.values())


def _needs_templates(document: model.PolicyDocument) -> bool:
    """True with claims, and with NVLink: a claim for the channel of an NVLink domain brings no rails."""
    return _has_claims(document) or any(fabric.nvlink_segment is not None for fabric in document.fabrics.values())


def _build_controller(
    origin: sources.Sources, state: states.State, poster: events.Events, counters: metrics.WebhookMetrics
) -> claim_templates.ClaimTemplateController:
    """Return the writer of claim templates. It writes none for waiting pods while the caches are incomplete or old."""
    assert origin.client is not None  # noqa: S101 - there is a poster only with a client
    parts = claim_templates.Parts(
        client=origin.client,
        state=state,
        get_policy=lambda: origin.store.current,
        get_problem=lambda: origin.cache_problem() or origin.find_outage(),
        poster=poster,
        counters=counters,
    )
    controller = claim_templates.ClaimTemplateController(parts)
    origin.store.subscribe(lambda _: controller.forget_failures())
    return controller


def _build_poster(origin: sources.Sources, counters: metrics.WebhookMetrics) -> events.Events | None:
    """Return a poster of Events that also posts those about the policy. None without an API server."""
    if origin.client is None:
        return None
    poster = events.Events(
        origin.client,
        "railwright-webhook",
        now=tls.get_utc_now,
        on_result=lambda outcome: counters.events.labels(outcome).inc(),
    )
    object_events.PolicyEvents(poster, origin.store, origin.policy_object)
    return poster


if __name__ == "__main__":
    sys.exit(main())
