"""The extender's only wiring: settings, sources, state, verbs, routes, server."""

import asyncio
import datetime as dt
import os
import sys
import time
from collections.abc import Callable, Sequence

from cluster import errors, events, sources
from extender import app, gang_events, gangs, gaps, schedulers, viewing, watched
from extender import state as states
from fabric.placement import ledger
from serving import logs, metrics, probes, processes, server, settings, tuning

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
    groups, page = gang_events.PodGroups(), viewing.Dashboard(options, state)
    try:
        origin = await sources.connected(
            kubeconfig=options.kubeconfig,
            snapshot=options.snapshot,
            policy=options.policy,
            wanted=[page.beside(groups.beside(each)) for each in watched.wanted(state)],
            restarted=lambda kind, reason: counters.watch_restarts.labels(kind, reason).inc(),
        )
    except errors.ClusterError as error:
        print(f"railwright extender: {error}", file=sys.stderr)  # noqa: T201 - before there is a server to log
        return 2

    def counted(verb: str, nodes: int, unknown: int) -> None:
        counters.extender_nodes.labels(verb).observe(nodes)
        counters.extender_unknown_nodes.inc(unknown)

    verbs = schedulers.Schedulers(state, lambda: origin.store.current, clock=time.monotonic, counted=counted)
    checks.add("policy", origin.policy_problem)
    checks.add("caches", lambda: origin.cache_problem(STALE_SECONDS))

    async def expire() -> None:
        frozen = False
        while True:
            await asyncio.sleep(_EXPIRE_EVERY_SECONDS)
            if not frozen and origin.cache_problem(STALE_SECONDS) is None:
                tuning.freeze()  # the lists are in: a collection over 100,000 pods would hold up a request for long
                frozen = True
            verbs.warm()
            counters.ledger_expired.inc(len(state.ledger.expire(time.monotonic())))

    posting = _posting(origin, counters)
    look = _looking(verbs, counters, gang_events.telling(posting, groups))
    unlabelled = gaps.Gaps(state, counters, policy=lambda: origin.store.current, incomplete=origin.cache_problem)

    def refresh() -> None:
        unlabelled.show()
        counters.show_sources(**origin.readings())
        for each in ledger.State:
            counters.ledger_entries.labels(each).set(state.ledger.count(each))

    post = origin.client.post if origin.client is not None else None
    running = server.Server(options, app.offered(verbs, post), checks, counters, refresh=refresh)
    try:
        more = [*([posting.run] if posting else []), *page.tasks(origin, lambda: origin.store.current, post)]
        return await run(running, [*origin.tasks, expire, unlabelled.watch, look, *more])
    finally:
        if origin.client is not None:
            await origin.client.close()


def _looking(
    verbs: schedulers.Schedulers, counters: metrics.Metrics, tell: Callable[[gangs.Outcome], None]
) -> server.Task:
    """Looks at what became of the gangs, for ever; counts it and tells it."""

    async def look() -> None:
        while True:
            await asyncio.sleep(_LOOK_EVERY_SECONDS)
            for outcome in verbs.gangs.look(time.monotonic()):
                tell(outcome)
                if outcome.landed is not None:
                    counters.gang_bandwidth.observe(outcome.bandwidth)
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
