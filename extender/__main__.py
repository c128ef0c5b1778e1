"""Runs the extender: reads its settings, connects to the cluster, and serves both schedulers."""

import asyncio
import functools
import sys
import time
from collections.abc import Sequence

from aiohttp import web

from extender import (
    access,
    app,
    cluster_reports,
    decider,
    gang_tracker,
)
from extender import state as states
from railwright.cluster import errors, events, sources
from railwright.dashboard import application
from railwright.fabric.overview import gang_assessment, overview_builder, overview_types
from railwright.fabric.placement.state import assumed_pods
from railwright.serving import logs, metrics, ports, probes, server, settings

_INTERVAL_SECONDS = 1.0  # between two checks of gangs, and of pods whose time is over


def main(argv: Sequence[str] | None = None) -> int:
    """Run the extender until a signal stops it. Return the exit code."""
    options = settings.parse("extender", argv)
    logs.configure_logging()
    return server.start(options, lambda: serve(options))


async def serve(options: settings.Settings) -> int:
    """Run the extender until it is stopped. Return the exit code: 2 if it cannot read the cluster."""
    counters, checks = metrics.ExtenderMetrics(), probes.Probes()
    state = states.State()
    try:
        origin = await sources.connect(
            kubeconfig=str(options.kubeconfig) if options.kubeconfig else None,
            snapshot=options.snapshot,
            policy=options.policy,
            watches=states.list_watches(state),
            count_failure=lambda kind, reason: counters.watch_failures.labels(kind, reason).inc(),
        )
    except errors.ClusterError as error:
        print(f"railwright extender: {error.sentence}", file=sys.stderr)  # noqa: T201 - the server's log does not exist yet
        return 2

    origin.store.subscribe(lambda store: state.apply_policy(store.current))
    state.apply_policy(origin.store.current)

    deciding = decider.Decider(
        state,
        lambda: origin.store.current,
        clock=time.monotonic,
        count_rejected=lambda code, nodes: counters.extender_rejected_nodes.labels(code).inc(nodes),
    )
    assessor = gang_assessment.Assessor(state.cluster, deciding.policy, state.pools, deciding.engine)
    gangs = gang_tracker.GangTracker(state, assessor)

    def find_cache_problem() -> str:
        """Return why the caches are not ready. Stale caches would place gangs on resources that no longer exist."""
        problem = origin.find_cache_problem(options.stale_seconds)
        if not problem:
            deciding.warm_caches()  # the first request does not wait for it then
        return problem

    checks.add_check("policy", origin.find_policy_problem)
    checks.add_check("caches", find_cache_problem)

    def refresh_gauges() -> None:
        counters.set_source_gauges(**origin.read_metrics())
        for entry_state in assumed_pods.State:
            counters.assumed_pods.labels(entry_state).set(state.assumed.count(entry_state))
        waiting, longest_seconds = gangs.count_waiting(time.monotonic())
        counters.gangs_waiting.set(waiting)
        counters.gang_longest_wait_seconds.set(longest_seconds)

    poster, post = None, None
    tasks: list[ports.Task] = [*origin.tasks]
    if (client := origin.client) is not None:
        poster = events.Events(
            client, "railwright-extender", on_result=lambda outcome: counters.events.labels(outcome).inc()
        )
        post = access.limit_reviews(client.post)
        tasks.append(poster.run)
    has_volcano_port = options.volcano_listen is not None
    dashboard = None
    if options.dashboard_listen is not None:
        builder = overview_builder.OverviewBuilder(state.cluster, deciding.policy, state.pools)
        dashboard = _build_dashboard(options, options.dashboard_listen, builder, origin, post)
    extender_server = server.Server(
        options,
        app.build_application(deciding, assessor, post, counters, with_volcano=not has_volcano_port),
        checks,
        counters,
        volcano=app.build_volcano_application(deciding, counters) if has_volcano_port else None,
        dashboard=dashboard,
        refresh=refresh_gauges,
    )
    tasks += [
        functools.partial(_report_and_expire, deciding, gangs, counters, poster, options.assume_seconds),
        cluster_reports.RailGauges(state, counters, deciding.policy).run,
    ]
    try:
        return await extender_server.run(tasks)
    finally:
        if origin.client is not None:
            await origin.client.close()


async def _report_and_expire(
    deciding: decider.Decider,
    gangs: gang_tracker.GangTracker,
    counters: metrics.ExtenderMetrics,
    poster: events.Events | None,
    assume_seconds: float,
) -> None:
    """Every second, forget expired assumed pods, and report the states of gangs as metrics and Events."""
    state = deciding.state
    while True:
        await asyncio.sleep(_INTERVAL_SECONDS)
        deciding.scored.forget(time.monotonic())
        state.assumed.expire(state.clock(), assume_seconds)
        for outcome in gangs.find_outcomes(time.monotonic()):
            if poster is not None:
                gang_tracker.post_event(poster, state.cluster, outcome)
            if outcome.attained:
                counters.gang_attained_ratio.observe(outcome.attained)
            if not outcome.is_repeated and outcome.code in overview_types.STATES:
                counters.gangs.labels(outcome.code).inc()


def _build_dashboard(
    options: settings.Settings,
    address: settings.Address,
    builder: overview_builder.OverviewBuilder,
    origin: sources.Sources,
    post: access.Post | None,
) -> web.Application:
    """Return the dashboard's application. Readers need the right to `get` the path /dashboard, as for metrics."""
    source = f"snapshot {options.snapshot.name}" if options.snapshot else "the extender's cluster"
    feed = application.Feed(builder, source=source, list_problems=origin.list_problems)

    async def check_access(authorization: str, peer: str) -> tuple[int, str] | None:
        return await access.check_path_access(authorization, application.PATH, peer, post)

    return application.build_application(feed, check_access, loopback=address.is_loopback)


if __name__ == "__main__":
    sys.exit(main())
