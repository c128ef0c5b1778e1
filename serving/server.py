"""Listening, answering, draining: the one shell of both servers.

After SIGTERM the server is not ready but goes on answering for the drain time, asking callers to reconnect elsewhere;
then it stops listening, finishes what is in flight and ends. A background task that fails ends the process: a server
that no longer hears of its cluster must not look healthy.
"""

import asyncio
import contextlib
import datetime as dt
import logging
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from aiohttp import web

from serving import limits, metrics, probes, process, routes, settings, tls

KEEPALIVE_SECONDS = 3630.0  # longer than the 90 s after which the API server and Volcano drop idle connections
FINISH_SECONDS = 10.0  # for what is in flight at the end; no caller waits longer for an answer
BACKLOG = 1024
_LAG_EVERY_SECONDS = 0.5
_STALLED_SECONDS = 5.0  # a loop this late answers nobody in time

_log = logging.getLogger("railwright.serving")
Task = Callable[[], Awaitable[None]]


class Server:
    """One server: its service port and its port for probes and metrics."""

    def __init__(
        self,
        options: settings.Settings,
        offered: Sequence[routes.Route],
        checks: probes.Probes,
        counters: metrics.Metrics,
        refresh: Callable[[], None] = lambda: None,
    ) -> None:
        """`refresh` is called before /metrics is rendered, for gauges that are read rather than counted."""
        self._options = options
        self._offered = offered
        self._checks = checks
        self._counters = counters
        self._refresh = refresh
        self._stopping = asyncio.Event()
        self._live: set[limits.Guard] = set()
        self._lag = 0.0
        self._failed = False

    async def run(self, tasks: Sequence[Task]) -> int:
        """Serve until SIGTERM or SIGINT, with these tasks beside; returns the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        certificate = self._certificate()
        background = [*tasks, self._measure_lag, *([certificate.run] if certificate else [])]
        try:
            await self._serve(background, certificate)
        except* Exception as failed:  # noqa: BLE001 - whatever it was ends the process, and is told
            for error in failed.exceptions:
                _log.error("a background task failed", exc_info=error)
            self._failed = True
        return 1 if self._failed else 0

    async def _serve(self, background: Sequence[Task], certificate: tls.Source | None) -> None:
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(_for_ever(task)) for task in background]
            async with self._service(certificate) as service, self._ops() as ops:
                print(f"listening on {service}\nops listening on {ops}", file=sys.stderr, flush=True)  # noqa: T201
                process.settle()
                await self._stopping.wait()
                await self._drain()
            for task in running:
                task.cancel()

    def _certificate(self) -> tls.Source | None:
        options = self._options
        if options.tls_cert is None or options.tls_key is None:
            return None
        source = tls.Source(options.tls_cert, options.tls_key, options.client_ca)
        self._checks.add("certificate", lambda: source.problem(dt.datetime.now(dt.UTC)))
        inner = self._refresh

        def refresh() -> None:
            inner()
            self._counters.set("certificate_expiry_timestamp_seconds", source.expires.timestamp())

        self._refresh = refresh
        return source

    def _service(self, certificate: tls.Source | None) -> contextlib.AbstractAsyncContextManager[settings.Address]:
        app = limits.application(
            self._offered,
            max_body=self._options.max_body,
            counters=self._counters,
            is_draining=lambda: self._checks.draining,
        )
        return _listening(app, self._options.listen, self._live, certificate)

    def _ops(self) -> contextlib.AbstractAsyncContextManager[settings.Address]:
        app = web.Application()
        app.router.add_get("/livez", self._livez)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        return _listening(app, self._options.ops_listen, set(), None)

    async def _livez(self, _: web.Request) -> web.Response:
        """Answered by the loop itself; a loop that is far behind says so."""
        alive = self._lag < _STALLED_SECONDS
        return web.json_response({"alive": alive, "lag_seconds": round(self._lag, 3)}, status=200 if alive else 503)

    async def _readyz(self, _: web.Request) -> web.Response:
        ready, body = self._checks.readiness()
        return web.Response(body=body, status=200 if ready else 503, content_type=routes.JSON)

    async def _metrics(self, _: web.Request) -> web.Response:
        self._refresh()
        self._counters.set("event_loop_lag_seconds", self._lag)
        return web.Response(
            body=self._counters.exposition(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        )

    async def _measure_lag(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            before = loop.time()
            await asyncio.sleep(_LAG_EVERY_SECONDS)
            self._lag = max(0.0, loop.time() - before - _LAG_EVERY_SECONDS)

    async def _drain(self) -> None:
        """Not ready, still answering. A second signal ends it at once."""
        self._checks.draining = True
        self._stopping.clear()
        _log.info("draining", extra={"fields": {"seconds": self._options.drain_seconds}})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._options.drain_seconds):
                await self._stopping.wait()


def log_start(options: settings.Settings) -> None:
    """The effective settings, once."""
    _log.info("starting", extra={"fields": settings.describe(options)})


async def _for_ever(task: Task) -> None:
    """A background task has no business ending."""
    await task()
    raise RuntimeError(f"{getattr(task, '__qualname__', task)} ended; it should run as long as the server")


@contextlib.asynccontextmanager
async def _listening(
    app: web.Application, at: settings.Address, live: set[limits.Guard], certificate: tls.Source | None
) -> AsyncIterator[settings.Address]:
    runner = web.AppRunner(
        app, access_log=None, handle_signals=False, keepalive_timeout=KEEPALIVE_SECONDS, shutdown_timeout=FINISH_SECONDS
    )
    await runner.setup()
    factory = runner.server
    assert factory is not None  # noqa: S101 - set by setup()
    listener = await asyncio.get_running_loop().create_server(
        lambda: limits.Guard(factory(), live),
        sock=_socket(at),
        ssl=certificate.front if certificate else None,
        backlog=BACKLOG,
    )
    try:
        host, port = listener.sockets[0].getsockname()[:2]
        yield settings.Address(host=host, port=port)
    finally:
        listener.close()
        await runner.cleanup()


def _socket(at: settings.Address) -> socket.socket:
    """A bound socket; every interface means IPv6 and IPv4 where the machine has both."""
    host = at.host or ("::" if socket.has_dualstack_ipv6() else "0.0.0.0")  # noqa: S104 - the contract's default
    if at.host == "" and socket.has_dualstack_ipv6():
        return socket.create_server((host, at.port), family=socket.AF_INET6, dualstack_ipv6=True)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, at.port), family=family)
