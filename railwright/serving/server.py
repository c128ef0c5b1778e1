"""The server process of webhook and extender: listens, answers, and drains.

After SIGTERM the server is not ready but still answers for the drain time, asking clients to reconnect elsewhere.
Then it stops listening, finishes requests in flight and ends. A second signal ends it at once; so does the first one
if it was never ready, because no client was sent to it. If a background task fails, the process ends: a server with
stale caches must not look healthy.
"""

import asyncio
import collections
import contextlib
import logging
import resource
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any

from railwright.serving import connections, dispatch, limits, metrics, probes, routes, settings, tls

_LOG = logging.getLogger(__name__)
_CONNECTIONS = 4096  # an API server keeps 25 idle ones, Volcano opens 16 at a time
_FILES_LEFT = 256  # descriptors for 20 watches, probes, metrics, certificates
_FILES = 8192  # up to the hard limit: enough for connections, watches and log files
_LAG_SECONDS = 0.5  # between two measurements of the event loop's delay
_LAG_SAMPLES = 60  # measurements: 30 s, so that a scrape every 15 or 30 s sees every stall

Task = Callable[[], Coroutine[Any, Any, None]]
OnListening = Callable[[Mapping[str, settings.Address]], None]
"""Called with the actual addresses of the ports once they are open."""
# Ports by the word before "listening on" in docs/interface.md 6.
_SERVICE, _OPS, _VOLCANO = "", "ops ", "volcano "


def print_addresses(ports: Mapping[str, settings.Address]) -> None:
    """Print the lines of docs/interface.md 6 in one write, so that no log line comes between them."""
    with contextlib.suppress(OSError):  # a full disk behind stderr must not stop the server
        sys.stderr.write("".join(f"{name}listening on {address}\n" for name, address in ports.items()))
        sys.stderr.flush()


class Server:
    """One server: its service port, its port for probes and metrics, and background tasks."""

    def __init__(  # noqa: PLR0913 - the independent parts of a server, most by name
        self,
        options: settings.Settings,
        table: Sequence[routes.Route],
        checks: probes.Probes,
        counters: metrics.Metrics,
        *,
        ops_routes: Sequence[routes.Route] = (),
        volcano_routes: Sequence[routes.Route] = (),
        refresh: Callable[[], None] = lambda: None,
        stopping: Callable[[], None] = lambda: None,
        bounds: limits.Limits | None = None,
        memory: limits.Memory | None = None,
    ) -> None:
        """`ops_routes` are added to the port for probes and metrics. `volcano_routes` are those of --volcano-listen.

        `refresh` runs before metrics are read, for gauges that are computed on demand.

        `stopping` is called when draining starts. Raises tls.CertificateError.
        """
        self._options, self._checks, self._counters, self._refresh = options, checks, counters, refresh
        bounds = bounds or limits.Limits(max_body=options.max_body, connections=compute_max_connections())
        memory = memory or limits.Memory()
        # all clients of the webhook are API servers, so that it closes other connections
        is_certified = tls.build_client_check(options.client_names) if options.client_ca else connections.admit_any
        self._is_admitted = is_certified if options.server == "webhook" else connections.admit_any
        # in the order of opening: that of the probes closes last, so that the final metrics can be scraped
        self._dispatchers = {
            _OPS: dispatch.Dispatcher([*self._list_ops_routes(), *ops_routes], bounds, None),
            _VOLCANO: dispatch.Dispatcher(volcano_routes, bounds, counters, memory),
            _SERVICE: dispatch.Dispatcher(table, bounds, counters, memory, is_certified=is_certified),
        }
        self._ports: dict[str, connections.Connections] = {}  # those that are open
        self._certificate = _load_certificate(options)
        if self._certificate is not None:
            checks.add("certificate", self._certificate.check)
        self._lags: collections.deque[float] = collections.deque([0.0], maxlen=_LAG_SAMPLES)
        self._stopping, self._stop_at_once = asyncio.Event(), asyncio.Event()
        self._on_stopping = stopping

    def stop(self) -> None:
        """Drain, then end, as SIGTERM does. The second call ends at once."""
        (self._stop_at_once if self._stopping.is_set() else self._stopping).set()

    def turn_away(self, away: bool) -> None:  # noqa: FBT001 - a state, as `closing` is
        """Set whether responses ask clients to reconnect elsewhere. While draining they always do."""
        self._set_closing(away or self._stopping.is_set())

    def _set_closing(self, closing: bool) -> None:  # noqa: FBT001 - a state
        self._dispatchers[_SERVICE].closing = self._dispatchers[_VOLCANO].closing = closing

    async def run(self, tasks: Sequence[Task] = (), *, on_listening: OnListening = print_addresses) -> int:
        """Serve until `stop` or a signal, with `tasks` in the background. Return the process's exit code.

        `on_listening` is called with the actual addresses of the ports once they are open. Raises
        connections.ListenError.
        """
        options, sockets = self._options, {}
        addresses = {_SERVICE: options.listen, _OPS: options.ops_listen, _VOLCANO: options.volcano_listen}
        with contextlib.ExitStack() as stack:
            for name, address in addresses.items():
                if address is not None:
                    sockets[name] = stack.enter_context(contextlib.closing(connections.bind(address)))
            return await self._run(tasks, sockets, on_listening)

    async def _run(self, tasks: Sequence[Task], sockets: Mapping[str, socket.socket], on_listening: OnListening) -> int:
        background = [*tasks, self._measure_lag]
        if self._certificate is not None:
            background.append(self._certificate.watch)
        failed = False
        try:
            async with asyncio.TaskGroup() as group:
                running = [group.create_task(_run_forever(task)) for task in background]
                async with self._open_ports(sockets):
                    on_listening({name: connections.read_address(bound) for name, bound in sockets.items()})
                    await self._drain()
                for task in running:
                    task.cancel()
        except* Exception as errors:  # noqa: BLE001 - any error ends the process with its reason
            failed = True
            for error in errors.exceptions:
                _LOG.critical("a background task failed; shutting down", exc_info=error)
        return 1 if failed else 0

    @contextlib.asynccontextmanager
    async def _open_ports(self, sockets: Mapping[str, socket.socket]) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            stack.enter_context(_handle_signals(self.stop))
            for name, dispatcher in self._dispatchers.items():
                if name in sockets:
                    context = self._certificate.front if self._certificate and name != _OPS else None
                    port = connections.serve_socket(
                        sockets[name],
                        dispatcher,
                        context,
                        is_admitted=self._is_admitted if context else connections.admit_any,
                        stopped=self._stop_at_once.wait,
                    )
                    self._ports[name] = await stack.enter_async_context(port)
            yield

    async def _drain(self) -> None:
        await self._stopping.wait()
        never_ready = not self._checks.was_ready()  # clients are only sent to servers that are or were ready
        self._checks.draining = True
        self._set_closing(True)
        self._on_stopping()
        if never_ready:
            _LOG.info("stopping; never became ready")
            return
        _LOG.info("draining", extra={"fields": {"seconds": self._options.drain_seconds}})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._options.drain_seconds):
                await self._stop_at_once.wait()

    def _list_ops_routes(self) -> Sequence[routes.Route]:
        return (
            routes.Route("/livez", self._checks.handle_live, "GET"),
            routes.Route("/readyz", self._checks.handle_ready, "GET"),
            routes.Route("/metrics", self._handle_metrics, "GET"),
        )

    def _handle_metrics(self, _call: routes.Call) -> routes.Reply:
        self._update_gauges()
        return routes.Reply(self._counters.format_exposition(), content_type=metrics.CONTENT_TYPE)

    def _update_gauges(self) -> None:
        self._refresh()
        self._counters.event_loop_lag_seconds.set(max(self._lags))
        self._counters.connections.set(sum(len(port.connections) for name, port in self._ports.items() if name != _OPS))
        if self._certificate is not None:
            source = self._certificate
            self._counters.show_certificate(
                source.not_after.timestamp(), source.left.total_seconds(), source.lifetime.total_seconds()
            )

    async def _measure_lag(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _LAG_SECONDS
            await asyncio.sleep(_LAG_SECONDS)
            self._lags.append(max(0.0, loop.time() - due))


@contextlib.contextmanager
def _handle_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` on SIGTERM and SIGINT. Does nothing outside the main thread, where no signal arrives."""
    numbers = (signal.SIGTERM, signal.SIGINT) if threading.current_thread() is threading.main_thread() else ()
    loop = asyncio.get_running_loop()
    previous = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
            # not the default handler, which PID 1 ignores; None stands for a handler that Python did not set
            signal.signal(number, previous[number] or signal.SIG_DFL)


def _load_certificate(options: settings.Settings) -> tls.Source | None:
    if options.tls_cert is None or options.tls_key is None:
        return None
    is_client_optional = options.server == "extender"  # its routes say who needs a certificate
    return tls.Source(tls.Files(options.tls_cert, options.tls_key, options.client_ca, is_client_optional))


async def _run_forever(task: Task) -> None:
    await task()
    raise RuntimeError(f"{getattr(task, '__qualname__', task)} ended before the server")


Main = Callable[[], Coroutine[Any, Any, int]]
"""The main coroutine of a server. It builds its parts inside the running loop and returns the exit code."""


def start(options: settings.Settings, main: Main) -> int:
    """Run `main` in an event loop of its own. Return the exit code: 1 if the server cannot start, which is logged."""
    raise_file_limit()
    _LOG.info("starting", extra={"fields": settings.describe(options)})
    try:
        with asyncio.Runner(loop_factory=find_loop_factory()) as runner:
            return runner.run(main())
    except (connections.ListenError, tls.CertificateError) as error:
        _LOG.critical("cannot start", extra={"fields": {"reason": str(error)}})
        return 1


# --- settings of the process ------------------------------------------------------------------------------


def raise_file_limit() -> None:
    """Raise the limit of open files as far as is useful. Never fails: the server works with fewer connections too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < target:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))


def compute_max_connections() -> int:
    """Return the maximum connections of a port, leaving descriptors for watches, probes and files."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _CONNECTIONS if soft == resource.RLIM_INFINITY else min(_CONNECTIONS, soft - min(_FILES_LEFT, soft // 4))


def find_loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's loop factory if it is installed, otherwise None for asyncio's own."""
    try:
        import uvloop  # noqa: PLC0415 - optional: it lags behind new Python versions
    except ImportError:
        return None
    return uvloop.new_event_loop
