"""The extender's only wiring: settings, sources, state, verbs, routes, server."""

import asyncio
import datetime as dt
import functools
import os
import sys
import time
from collections.abc import Callable, Sequence

from extender import app, gang_events, gangs, gaps, leading, publication, rail_gauges, schedulers, viewing, watched
from extender import state as states
from railwright.cluster import errors, events, sources
from railwright.fabric.placement import ledger
from railwright.serving import logs, metrics, probes, processes, server, settings, tracing, tuning

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
    groups, page = gang_events.PodGroups(), viewing.Dashboard(options, state)
    try:
        at = _place(options)
        traces = tracing.chosen(options)
        origin = await sources.connected(
            kubeconfig=options.kubeconfig,
            snapshot=options.snapshot,
            policy=options.policy,
            wanted=[groups.beside(each) for each in watched.wanted(state, pods=page.pods)],
            restarted=lambda kind, reason: counters.watch_restarts.labels(kind, reason).inc(),
            skipped=lambda kind: counters.watch_skipped.labels(kind).inc(),
        )
    except (errors.ClusterError, tracing.MissingError) as error:
        told = error.sentence if isinstance(error, errors.ClusterError) else error
        print(f"railwright extender: {told}", file=sys.stderr)  # noqa: T201 - before there is a server to log
        return 2

    def counted(verb: str, nodes: int, unknown: int) -> None:
        counters.extender_nodes.labels(verb).observe(nodes)
        counters.extender_unknown_nodes.inc(unknown)

    verbs = schedulers.Schedulers(
        state, lambda: origin.store.current, clock=time.monotonic, counted=counted, tracing=traces
    )
    checks.add("policy", origin.policy_problem)
    # a fleet not heard of for so long would place gangs on what is no longer there
    checks.add("caches", lambda: origin.cache_problem(options.stale_seconds))

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
        settled = functools.partial(tuning.freeze_when, lambda: not origin.cache_problem())
        shown = [unlabelled.watch, devices.watch, *page.tasks(origin, lambda: origin.store.current, post)]
        return await run(running, [*origin.tasks, expire, settled, look, *shown, *telling, *standing])
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
    if options.dashboard_listen is not None:
        ours["dashboard"] = options.dashboard_listen.port
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


if __name__ == "__main__":
    sys.exit(main())
