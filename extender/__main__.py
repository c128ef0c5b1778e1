"""Builds and runs the extender from its settings: sources, state, decider, adapters, routes, server."""

import asyncio
import datetime as dt
import functools
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from extender import (
    access,
    app,
    cluster_reports,
    decider,
    gang_events,
    leadership,
)
from extender import state as states
from railwright.cluster import errors, events, sinks, sources
from railwright.cluster import policy_errors as _policy_errors  # noqa: F401 - takes 0.1 s, which no review should wait
from railwright.dashboard import application
from railwright.fabric.overview import fabric_view, overview_builder, pods_and_events
from railwright.fabric.placement.state import assumed_pods
from railwright.fabric.policy import model
from railwright.serving import logs, metrics, probes, server, settings, tls

_EXPIRE_INTERVAL_SECONDS = 1.0
_CHECK_INTERVAL_SECONDS = 1.0  # between two checks of gangs
_FIRST_TURN_SECONDS = 0.03  # for evaluating nodes before this process is ready; enough for two or three kinds of pods


def main(argv: Sequence[str] | None = None) -> int:
    """Run the extender until a signal stops it. Return the exit code."""
    options = settings.parse("extender", argv, os.environ)
    logs.configure()
    return server.start(options, lambda: serve(options))


async def serve(options: settings.Settings) -> int:
    """Run the extender until it is stopped. Return the exit code."""
    counters, checks = metrics.Metrics("extender"), probes.Probes()
    state = states.State(assume_seconds=options.assume_seconds)
    pod_groups, dashboard = gang_events.PodGroups(), Dashboard(options, state)
    try:
        address = _get_pod_address(options)
        origin = await sources.connect(
            kubeconfig=options.kubeconfig,
            snapshot=options.snapshot,
            policy=options.policy,
            watches=[
                pod_groups.add_recorder(watch)
                for watch in states.list_watches(state, pods=dashboard.pods, nodes=dashboard.nodes)
            ],
            restarted=lambda kind, reason: counters.watch_restarts.labels(kind, reason).inc(),
            skipped=lambda kind: counters.watch_skipped.labels(kind).inc(),
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
        observe=_build_observer(counters),
        count_rejected=lambda code, nodes: counters.extender_rejected_nodes.labels(code).inc(nodes),
    )
    checks.add("policy", origin.find_policy_problem)
    checks.add("caches", lambda: _find_cache_problem(origin, deciding, options.stale_seconds))

    async def expire() -> None:
        while True:
            await asyncio.sleep(_EXPIRE_INTERVAL_SECONDS)
            await _warm(origin, deciding)  # on a standby too, which may become the leader at any time
            counters.assumed_pods_expired.inc(state.expire())

    poster = _build_poster(origin, counters)
    leader = leadership.Leadership(deciding, counters)
    check_gangs = _build_gang_check(deciding, counters, poster, pod_groups, leader)
    label_monitor = cluster_reports.TopologyLabelMonitor(
        state, counters, get_policy=lambda: origin.store.current, get_cache_problem=origin.cache_problem
    )

    gauges = cluster_reports.RailGauges(state, counters, lambda: origin.store.current)

    def refresh() -> None:
        label_monitor.update()
        counters.show_sources(**origin.read_metrics())
        counters.leader.set(leader.is_leader)
        _show_state(state, counters)
        waiting, longest_seconds = deciding.gangs.count_waiting(time.monotonic())
        counters.gangs_waiting.set(waiting)
        counters.gang_longest_wait_seconds.set(longest_seconds)

    post = access.limit_reviews(origin.client.post) if origin.client is not None else None
    table, volcano_table = app.build_tables(deciding, post, separates_volcano=options.volcano_listen is not None)
    extender_server = server.Server(
        options,
        leader.gate(table),
        checks,
        counters,
        ops_routes=leader.gate(app.build_ops_routes(deciding)),
        volcano_routes=leader.gate(volcano_table),
        refresh=refresh,
        stopping=leader.resign,
    )
    try:
        election_tasks = _build_election_tasks(leader, origin, address, options, checks, extender_server)
        report_tasks = [
            *cluster_reports.build_tasks(gauges, label_monitor),
            *dashboard.build_tasks(origin, lambda: origin.store.current, post),
        ]
        return await extender_server.run(
            [
                *origin.tasks,
                expire,
                check_gangs,
                *report_tasks,
                *([poster.run] if poster else []),
                *election_tasks,
            ],
        )
    finally:
        if origin.client is not None:
            await origin.client.close()


async def _warm(origin: sources.Sources, deciding: decider.Decider) -> None:
    """Compute what requests share, once the lists are complete: earlier it would have to be computed again."""
    if not _find_cache_problem(origin, deciding):
        for _ in deciding.warm_for_waiting_gangs():
            await asyncio.sleep(0)


def _find_cache_problem(origin: sources.Sources, deciding: decider.Decider, stale_seconds: float | None = None) -> str:
    """Return why the caches are not ready. Stale ones would place gangs on resources that no longer exist."""
    problem = origin.cache_problem(stale_seconds)
    if not problem:
        deciding.warm()  # the first request does not wait for it then; a millisecond from then on
        if not deciding.has_begun_evaluation:  # a first part, so that the first requests wait less
            end = time.monotonic() + _FIRST_TURN_SECONDS
            for _ in deciding.warm_for_waiting_gangs():
                if time.monotonic() > end:  # `_warm` does the rest
                    break
    return problem


def _show_state(state: states.State, counters: metrics.Metrics) -> None:
    """Show assumed pods and reported rails."""
    for entry_state in assumed_pods.State:
        counters.assumed_pods.labels(entry_state).set(state.assumed.count(entry_state))
    counters.assumed_pods_unseen.set(state.assumed.unseen)
    counters.rails_reported.clear()
    for labels, rails in state.cluster.health.count().items():
        counters.rails_reported.labels(*labels).set(rails)


def _get_pod_address(options: settings.Settings) -> leadership.PodAddress | None:
    return leadership.get_pod_address(os.environ) if options.leader_elect else None


def _build_election_tasks(  # noqa: PLR0913, PLR0917 - the inputs of an election
    leader: leadership.Leadership,
    origin: sources.Sources,
    address: leadership.PodAddress | None,
    options: settings.Settings,
    checks: probes.Probes,
    extender_server: server.Server,
) -> Sequence[server.Task]:
    """Return the tasks of one of several replicas: the election, and publishing its endpoints while it leads."""
    if origin.client is None or address is None:
        return ()
    election = leader.build_election(
        origin.client, address, seconds=options.lease_seconds, eligible=lambda: not checks.is_failing()
    )
    container_ports = {"extender": options.listen.port, "ops": options.ops_listen.port}
    for name, listen in (("dashboard", options.dashboard_listen), ("volcano", options.volcano_listen)):
        if listen is not None:
            container_ports[name] = listen.port
    publisher = leadership.EndpointPublisher(origin.client, address, container_ports, lambda: leader.is_leader)
    leader.notify(lambda is_leader: extender_server.turn_away(not is_leader), lambda _: publisher.wake())
    return (election.run, publisher.run)


def _build_gang_check(
    deciding: decider.Decider,
    counters: metrics.Metrics,
    poster: events.Events | None,
    pod_groups: gang_events.PodGroups,
    leader: leadership.Leadership,
) -> server.Task:
    """Return a task that checks gangs until cancelled, and counts and posts outcomes while this process leads."""
    post_event = gang_events.build_sink(poster, pod_groups)
    rails = gang_events.RailEvents(deciding.state, pod_groups, poster, lambda: leader.is_leader)

    async def check_gangs() -> None:
        while True:
            await asyncio.sleep(_CHECK_INTERVAL_SECONDS)
            rails.update()
            if leader.is_leader:
                for _ in deciding.record_waiting_pods():
                    await asyncio.sleep(0)
            for outcome in deciding.gangs.check(time.monotonic()) if leader.is_leader else ():
                post_event(outcome)
                if outcome.placement is not None:
                    counters.gang_bandwidth_ratio.observe(outcome.bandwidth)
                    counters.gang_attained_ratio.observe(outcome.attained)
                if not outcome.is_repeated:
                    counters.gangs.labels(outcome.code).inc()

    return check_gangs


def _build_observer(counters: metrics.Metrics) -> decider.Observe:
    """Return the function that counts the nodes of decisions."""
    find_nodes, unknown_nodes = functools.cache(counters.extender_nodes.labels), counters.extender_unknown_nodes

    def observe(verb: str, nodes: int, unknown: int) -> None:
        find_nodes(verb).observe(nodes)
        unknown_nodes.inc(unknown)

    return observe


def _build_poster(origin: sources.Sources, counters: metrics.Metrics) -> events.Events | None:
    """Return a poster of Events, or None without an API server."""
    if origin.client is None:
        return None
    return events.Events(
        origin.client,
        "railwright-extender",
        now=lambda: dt.datetime.now(dt.UTC),
        on_result=lambda outcome, count: counters.extender_notices.labels(outcome).inc(count),
    )


# --- the dashboard's port ------------------------------------------------------------------------------

# Serves the dashboard from the state that this process decides on. Readers need the right to `get` the path /dashboard,
# as for metrics. Without --dashboard-listen nothing runs and nothing is stored for it.


class Dashboard:
    """The dashboard's port, and the data it needs in addition to the extender's state."""

    def __init__(self, options: settings.Settings, state: states.State) -> None:
        self._options, self._state = options, state
        self._opted_in_pods, self._node_notes = pods_and_events.OptedInPods(), fabric_view.NodeNotes()

    @property
    def pods(self) -> sinks.Sink[Any] | None:
        """Return the sink of pods, or None without a dashboard."""
        return self._opted_in_pods if self._options.dashboard_listen is not None else None

    @property
    def nodes(self) -> sinks.Sink[Any] | None:
        """Return the sink of nodes, or None without a dashboard."""
        return self._node_notes if self._options.dashboard_listen is not None else None

    def build_tasks(
        self, origin: sources.Sources, policy: Callable[[], model.Policy | None], post: access.Post | None
    ) -> Sequence[server.Task]:
        """Return the dashboard's tasks. The first raises connections.ListenError if the port is not available."""
        options, state = self._options, self._state
        address = options.dashboard_listen
        if address is None:
            return ()
        builder = overview_builder.OverviewBuilder(
            state.cluster, state.assumed, self._opted_in_pods, policy, state.pools, notes=self._node_notes
        )
        source = application.Feed(
            builder,
            source=_describe_source(options),
            connection=lambda: application.describe_connection(origin, policy=options.policy),
        )
        certificate = _load_certificate(options, address)

        async def guard(authorization: str, peer: str) -> tuple[int, str] | None:
            return await access.check_path_access(authorization, application.PATH, peer, post)

        async def serve() -> None:
            context = certificate.front if certificate else None
            async with application.open_port(address, {"": source}, guard, context) as bound_address:
                sys.stderr.write(f"dashboard listening on {bound_address}\n")
                sys.stderr.flush()
                await asyncio.Event().wait()  # until the server cancels it at shutdown

        return (serve, source.run, *([certificate.watch] if certificate else []))


def _load_certificate(options: settings.Settings, address: settings.Address) -> tls.Source | None:
    """Return the server's certificate, without client certificates. None on loopback, which needs no TLS."""
    if address.is_loopback or options.tls_cert is None or options.tls_key is None:
        return None
    return tls.Source(tls.Files(options.tls_cert, options.tls_key))


def _describe_source(options: settings.Settings) -> str:
    return f"snapshot {options.snapshot.name}" if options.snapshot else "the extender's cluster"


if __name__ == "__main__":
    sys.exit(main())
