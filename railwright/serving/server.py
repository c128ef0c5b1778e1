"""The server process of webhook and extender: listens, answers, and drains.

After SIGTERM the server is not ready but still answers during the drain time, asking clients to reconnect elsewhere.
Then it stops listening, finishes requests in flight and ends. A second signal ends the drain. A server that was never
ready does not drain, because it has no clients. If a background task fails, the process ends: a server with stale
caches must not look healthy.
"""

import asyncio
import contextlib
import logging
import resource
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import uvloop
from aiohttp import web

from railwright.serving import application, metrics, ports, probes, settings, tls

_LOG = logging.getLogger(__name__)

Task = Callable[[], Coroutine[Any, Any, None]]
OnListening = Callable[[Mapping[str, settings.Address]], None]
"""Called with the actual addresses of the ports once they are open."""
# Ports by the word before "listening on" in docs/interface.md 6.
_SERVICE, _OPS, _VOLCANO, _DASHBOARD = "", "ops ", "volcano ", "dashboard "


def print_addresses(addresses: Mapping[str, settings.Address]) -> None:
    """Print the lines of docs/interface.md 6 in one write, so that no log line comes between them."""
    with contextlib.suppress(OSError):  # a full disk behind stderr must not stop the server
        sys.stderr.write("".join(f"{name}listening on {addresses[name]}\n" for name in sorted(addresses)))
        sys.stderr.flush()


class Server:
    """One server: its ports, and background tasks."""

    def __init__(  # noqa: PLR0913 - the independent parts of a server, most by name
        self,
        options: settings.Settings,
        service: web.Application,
        checks: probes.Probes,
        counters: metrics.Metrics,
        *,
        volcano: web.Application | None = None,
        dashboard: web.Application | None = None,
        refresh: Callable[[], None] = lambda: None,
    ) -> None:
        """`volcano` is the application of --volcano-listen, `dashboard` that of --dashboard-listen.

        `refresh` runs before metrics are read, for gauges that are computed on demand. Raises tls.CertificateError.
        """
        self._options, self._checks, self._counters, self._refresh = options, checks, counters, refresh
        # in the order of opening: that of the probes closes last, so that the final metrics can be scraped
        self._applications = {_OPS: (options.ops_listen, checks.build_application(self._format_metrics))}
        others = ((_VOLCANO, options.volcano_listen, volcano), (_DASHBOARD, options.dashboard_listen, dashboard))
        self._applications |= {name: (at, app) for name, at, app in others if at is not None and app is not None}
        self._applications[_SERVICE] = options.listen, service
        self._certificates: dict[str, tls.Certificate] = {}
        if options.tls_cert is not None and options.tls_key is not None:
            # the application of an extender says who needs a certificate
            is_optional = options.server == "extender"
            certificate = tls.Certificate(options.tls_cert, options.tls_key, options.client_ca, is_optional)
            checks.add("certificate", certificate.check)
            self._certificates = {_SERVICE: certificate, _VOLCANO: certificate}
            if options.dashboard_listen is not None and not options.dashboard_listen.is_loopback:
                # a browser would ask its user for a certificate, if clients could present one
                self._certificates[_DASHBOARD] = tls.Certificate(options.tls_cert, options.tls_key)
        if options.client_ca:
            service[application.RULES].client_names = options.client_names
        self._stopping, self._drained = asyncio.Event(), asyncio.Event()

    def stop(self) -> None:
        """Drain, then end, as SIGTERM does. The second call ends the drain."""
        (self._drained if self._stopping.is_set() else self._stopping).set()

    async def run(self, tasks: Sequence[Task] = (), *, on_listening: OnListening = print_addresses) -> int:
        """Serve until `stop` or a signal, with `tasks` in the background. Return the process's exit code.

        `on_listening` is called with the actual addresses of the ports once they are open. Raises ports.ListenError.
        """
        running: list[asyncio.Task[None]] = []
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self.stop)
        try:
            async with contextlib.AsyncExitStack() as stack:
                addresses = {}
                for name, (at, app) in self._applications.items():
                    port = ports.open_port(at, app, self._certificates.get(name))
                    addresses[name] = await stack.enter_async_context(port)
                on_listening(addresses)
                background = [*tasks, *(certificate.watch for certificate in {*self._certificates.values()})]
                running += [asyncio.create_task(task()) for task in background]
                running.append(draining := asyncio.create_task(self._drain()))
                ended, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in (failed := ended - {draining}):
                    error = task.exception() or RuntimeError(f"{task.get_coro()} ended before the server")
                    _LOG.critical("a background task failed; shutting down", exc_info=error)
            return 1 if failed else 0
        finally:  # after the ports, whose last requests need them
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _drain(self) -> None:
        await self._stopping.wait()
        self._checks.run_checks()
        never_ready = not self._checks.was_ready  # clients are only sent to servers that are or were ready
        self._checks.draining = True
        for _, app in self._applications.values():
            app[application.RULES].closing = True
        if never_ready:
            _LOG.info("stopping; never became ready")
            return
        _LOG.info("draining", extra={"fields": {"seconds": self._options.drain_seconds}})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._options.drain_seconds):
                await self._drained.wait()

    def _format_metrics(self) -> bytes:
        self._refresh()
        if (certificate := self._certificates.get(_SERVICE)) is not None:
            self._counters.certificate_expiry_timestamp_seconds.set(certificate.not_after.timestamp())
        return self._counters.format_exposition()


def start(options: settings.Settings, main: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Run `main` in an event loop. Return its exit code, or 1 if the server cannot start, which is logged."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # as Go does: some runtimes start processes with 1,024
    _LOG.info("starting", extra={"fields": vars(options)})
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(main())
    except (ports.ListenError, tls.CertificateError) as error:
        _LOG.critical("cannot start", extra={"fields": {"reason": str(error)}})
        return 1
