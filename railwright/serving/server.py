"""The server process of webhook and extender: listens, answers, and drains.

After SIGTERM the server is not ready but still answers during the drain time, asking clients to reconnect elsewhere.
Then it stops listening, finishes requests in flight and ends. A second signal ends the drain. A server that was never
ready does not drain, because it has no clients. If a background task fails, the process ends: a server with stale
caches must not look healthy.
"""

import asyncio
import contextlib
import logging
import pathlib
import resource
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any

import uvloop
from aiohttp import web

from railwright.serving import application, metrics, ports, probes, settings, tls

_LOG = logging.getLogger(__name__)


def print_addresses(addresses: Mapping[str, settings.Address]) -> None:
    """Print a line `listening on HOST:PORT` for each port, after the port's name (docs/interface.md 6).

    All lines are one write, so that no log line comes between them.
    """
    with contextlib.suppress(OSError):  # a full disk behind stderr must not stop the server
        sys.stderr.write("".join(f"{name}listening on {addresses[name]}\n" for name in sorted(addresses)))
        sys.stderr.flush()


class Server:
    """A server: its ports, its certificate, and how it stops."""

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
        self._stopping, self._drained = asyncio.Event(), asyncio.Event()
        self.certificate = _load_certificate(options, options.client_ca)
        if self.certificate is not None:
            checks.add_check("certificate", self.certificate.find_expiry_problem)
        if options.client_ca:
            service[application.RULES].client_names = options.client_names
        # in the order of opening: that of the probes closes last, so that the final metrics can be scraped
        self.ports = [ports.Port("ops ", options.ops_listen, checks.build_application(self._format_metrics))]
        if volcano is not None and options.volcano_listen is not None:
            self.ports.append(ports.Port("volcano ", options.volcano_listen, volcano, self.certificate))
        if dashboard is not None and (at := options.dashboard_listen) is not None:
            # a browser would ask its user for a certificate, if clients could present one
            certificate = None if at.is_loopback else _load_certificate(options, client_ca=None)
            self.ports.append(ports.Port("dashboard ", at, dashboard, certificate))
        self.ports.append(ports.Port("", options.listen, service, self.certificate))

    def stop(self) -> None:
        """Drain, then end, as SIGTERM does. The second call ends the drain."""
        (self._drained if self._stopping.is_set() else self._stopping).set()

    async def run(self, tasks: Iterable[ports.Task] = (), *, on_listening: ports.Announce = print_addresses) -> int:
        """Serve until `stop` or a signal, with `tasks` in the background. Return the process's exit code.

        Raises ports.ListenError.
        """
        ports.call_on_signal(self.stop)
        certificates = {port.certificate for port in self.ports if port.certificate is not None}
        background = [*tasks, *(certificate.watch for certificate in certificates)]
        try:
            await ports.serve_ports(self.ports, background, on_listening, self._wait_for_drain)
        except ExceptionGroup as failed:
            _LOG.critical("a background task failed, so the server has ended", exc_info=failed)
            return 1
        return 0

    async def _wait_for_drain(self) -> None:
        await self._stopping.wait()
        self._checks.run_checks()
        never_ready = not self._checks.was_ready  # clients are only sent to servers that are or were ready
        self._checks.draining = True
        for port in self.ports:
            port.app[application.RULES].closing = True
        if never_ready:
            _LOG.info("stopping; never became ready")
            return
        _LOG.info("draining", extra={"fields": {"seconds": self._options.drain_seconds}})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._options.drain_seconds):
                await self._drained.wait()

    def _format_metrics(self) -> bytes:
        self._refresh()
        if self.certificate is not None:
            self._counters.certificate_expiry_timestamp_seconds.set(self.certificate.not_after.timestamp())
        return self._counters.format_exposition()


def _load_certificate(options: settings.Settings, client_ca: pathlib.Path | None) -> tls.Certificate | None:
    """Return the serving certificate, None for plain HTTP. Raises tls.CertificateError."""
    if options.tls_cert is None or options.tls_key is None:
        return None
    return tls.Certificate(options.tls_cert, options.tls_key, client_ca)


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
