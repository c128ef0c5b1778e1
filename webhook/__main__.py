"""Builds and runs the webhook from its settings: sources, caches, routes, server."""

import functools
import sys
from collections.abc import Sequence

from railwright.cluster import errors, events, last_policy, reflector, resources, sinks, sources
from railwright.fabric.nccl import catalogue
from railwright.fabric.policy import shortcomings
from railwright.serving import logs, metrics, probes, server, settings
from webhook import app, claim_templates, file_keys, object_events
from webhook import state as states

_NO_CLUSTER = 2  # exit code of wrong usage, and of a cluster that cannot be reached with these settings


def main(argv: Sequence[str] | None = None) -> int:
    """Read the options, and run the webhook until a signal stops it. Return the exit code."""
    options = settings.parse("webhook", argv)
    logs.configure_logging()
    catalogue.list_variables()  # read before requests arrive
    return server.start(options, lambda: serve(options))


async def serve(options: settings.Settings) -> int:
    """Connect to the cluster, and answer requests until a signal arrives or a task fails. Return the exit code."""
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
    tasks = [*origin.tasks]
    api: app.ApiServer | None = None
    if (client := origin.client) is not None:
        state.watched = True
        state.is_without_templates = functools.partial(origin.is_denied, resources.CLAIM_TEMPLATES)
        await file_keys.read_support(client, state.set_file_keys)
        poster = events.Events(
            client, "railwright-webhook", on_result=lambda outcome: counters.events.labels(outcome).inc()
        )
        object_events.PolicyEvents(poster, origin.store)
        controller = claim_templates.ClaimTemplateController(
            client,
            state,
            poster,
            get_policy=lambda: origin.store.current,
            get_problem=lambda: origin.find_cache_problem() or origin.find_outage(),
        )
        api = app.ApiServer(client, poster, controller)
        keep_policy = functools.partial(last_policy.keep_copy, client, origin.store)
        watch_file_keys = functools.partial(file_keys.watch_support, client, state.set_file_keys)
        tasks += [poster.run, controller.run, watch_file_keys, keep_policy]
    checks.add_check("policy", origin.find_policy_problem)
    checks.add_check("caches", origin.find_cache_problem)
    service = app.Webhook(state, lambda: origin.store.current, counters, api).build_application()
    webhook_server = server.Server(
        options, service, checks, counters, refresh=lambda: counters.set_source_gauges(**origin.read_metrics())
    )
    try:
        return await webhook_server.run(tasks)
    finally:
        if origin.client is not None:
            await origin.client.close()


def _list_watches(state: states.State) -> list[reflector.WatchSpec]:
    """Return the watches that fill the webhook's caches. `sources.connect` adds the watch of the policy."""
    watch = reflector.WatchSpec
    return [
        watch(resources.NAMESPACES, state.namespaces),
        watch(resources.NODES, state.nodes, excerpt=states.excerpt_node),
        watch(resources.NADS, sinks.combine(state.networks, state.configurations)),
        watch(
            resources.WAITING_PODS,
            state.claiming_pods,
            gradual=True,
            is_needed=lambda document: document.has_claims,
            grant=shortcomings.GRANT_CLAIMS,
        ),
        watch(
            resources.CLAIM_TEMPLATES,
            state.claim_templates,
            is_needed=lambda document: document.needs_claim_templates,
            grant=shortcomings.GRANT_CLAIMS,
        ),
    ]


if __name__ == "__main__":
    sys.exit(main())
