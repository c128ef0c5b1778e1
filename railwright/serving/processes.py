"""Runs `main` in one process, or in a parent and several workers that share the service port.

The kernel distributes connections over the workers by SO_REUSEPORT. A worker that dies ends the whole server with a
reason, because kubelet restarts it more reliably than the parent could. A worker whose parent dies drains and ends.
"""

import asyncio
import contextlib
import functools
import logging
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, NoReturn

import msgspec

from railwright.serving import (
    answers,
    connections,
    limits,
    listeners,
    metrics,
    probes,
    routes,
    server,
    settings,
    tls,
    tuning,
)

_LOG = logging.getLogger(__name__)
_SILENT_SECONDS = 15.0  # a worker reports every second; one this late answers no requests either
_PATIENCE_SECONDS = 60.0  # after draining and finishing, the parent kills remaining workers

Run = Callable[[server.Server, Sequence[server.Task]], Coroutine[Any, Any, int]]
Main = Callable[[Run], Coroutine[Any, Any, int]]
"""The main coroutine of a server: builds its parts inside the running loop and ends with `return await run(shell,
tasks)`.
"""


def start(options: settings.Settings, main: Main) -> int:
    """Run `main` in one process or in `options.workers` of them; return the exit code. Failures are logged."""
    tuning.raise_limits()
    _LOG.info("starting", extra={"fields": settings.describe(options)})
    try:
        if options.workers > 1:
            return _run_supervised(options, main)
        return _run_loop(main(lambda shell, tasks: shell.run(tasks)))
    except (listeners.ListenError, tls.CertificateError, _StartError) as error:
        _LOG.critical("cannot start", extra={"fields": {"reason": str(error)}})
        return 1


class _StartError(Exception):
    """Several processes cannot run here; the message names what is missing."""


class _Health(msgspec.Struct):
    """One line of a worker's report."""

    checks: dict[str, str | None]


def _run_loop(main: Coroutine[Any, Any, int]) -> int:
    with asyncio.Runner(loop_factory=tuning.loop_factory()) as runner:
        return runner.run(main)


# --- the parent ---------------------------------------------------------------------------------------


def _run_supervised(options: settings.Settings, main: Main) -> int:
    try:
        directory = tempfile.TemporaryDirectory(prefix="railwright-")
    except OSError as error:
        raise _StartError(f"--workers requires a writable directory for the counters, such as /tmp: {error}") from None
    with directory as metrics_directory, contextlib.ExitStack() as stack:
        metrics.share(metrics_directory)
        # bound but never listening: it reserves the port for the workers and gets no connections
        reserved_socket = stack.enter_context(contextlib.closing(listeners.bind(options.listen, shared=True)))
        ops = stack.enter_context(contextlib.closing(listeners.bind(options.ops_listen)))
        place = msgspec.structs.replace(options, listen=_same_port(options.listen, reserved_socket))
        workers: list[_Worker] = []
        for number in range(1, options.workers + 1):
            workers.append(_fork_worker(number, place, main, [reserved_socket, ops], workers))
        return asyncio.run(_Parent(options, workers, metrics_directory).run(reserved_socket, ops))


def _same_port(asked: settings.Address, reserved_socket: socket.socket) -> settings.Address:
    return settings.Address(asked.host, listeners.address(reserved_socket).port)


class _Worker:
    """A child process as the parent sees it."""

    def __init__(self, number: int, pid: int, reports: int) -> None:
        self.name, self.pid, self.reports = f"worker-{number}", pid, reports
        self.checks: Mapping[str, str | None] = {"start": "no report yet"}
        self.heard = float("-inf")
        self.first = asyncio.Event()


class _Parent:
    """Owns the port of the probes, the signals and the child processes."""

    def __init__(self, options: settings.Settings, workers: Sequence[_Worker], metrics_directory: str) -> None:
        self._options, self._workers, self._counted = options, workers, metrics_directory
        self._signals = 0
        self._failed = False

    async def run(self, reserved_socket: socket.socket, ops: socket.socket) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        bounds = limits.Limits(max_body=self._options.max_body, connections=tuning.connections())
        listener = await loop.create_server(_ops_port(self._ops_routes(), bounds), sock=ops, backlog=bounds.backlog)
        announcing = asyncio.ensure_future(self._announce(reserved_socket, ops))
        await asyncio.gather(*(self._follow(worker) for worker in self._workers))
        announcing.cancel()
        listener.close()
        return 1 if self._failed else 0

    async def _announce(self, reserved_socket: socket.socket, ops: socket.socket) -> None:
        for worker in self._workers:
            await worker.first.wait()
        listeners.announce(listeners.address(reserved_socket), listeners.address(ops))

    async def _follow(self, worker: _Worker) -> None:
        """Read a worker's reports until it ends."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        pipe = os.fdopen(worker.reports, "rb", buffering=0)
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        while line := await reader.readline():
            # a line truncated by a full pipe; the next one follows in a second
            with contextlib.suppress(msgspec.MsgspecError):
                worker.checks = msgspec.json.decode(line, type=_Health).checks
            worker.heard = loop.time()
            worker.first.set()
        transport.close()
        code = os.waitstatus_to_exitcode(await asyncio.to_thread(_wait_for_exit, worker.pid))
        if code != 0 or self._signals == 0:
            self._failed = True
            fields = {"worker": worker.name, "pid": worker.pid, "code": code}
            _LOG.critical("a worker ended; shutting down", extra={"fields": fields})
        if self._signals == 0:
            self._stop()

    def _stop(self) -> None:
        self._signals += 1
        for worker in self._workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGTERM)
        if self._signals == 1:
            patience = self._options.drain_seconds + _PATIENCE_SECONDS
            asyncio.get_running_loop().call_later(patience, self._kill)

    def _kill(self) -> None:
        for worker in self._workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGKILL)

    def _ops_routes(self) -> Sequence[routes.Route]:
        return (
            routes.Route("/livez", lambda _: probes.ready_reply(self._silent()), "GET"),
            routes.Route("/readyz", lambda _: probes.ready_reply(self._checks()), "GET"),
            routes.Route("/metrics", self._handle_metrics, "GET"),
        )

    def _handle_metrics(self, _call: routes.Call) -> routes.Reply:
        return routes.Reply(metrics.workers_exposition(self._counted), content_type=metrics.CONTENT_TYPE)

    def _checks(self) -> Mapping[str, str | None]:
        every = {f"{worker.name} {name}": why for worker in self._workers for name, why in worker.checks.items()}
        draining = {"draining": "this server is shutting down"} if self._signals else {}
        return {**every, **self._silent(), **draining}

    def _silent(self) -> Mapping[str, str | None]:
        now = asyncio.get_running_loop().time()
        return {
            worker.name: None
            if not worker.first.is_set() or now - worker.heard < _SILENT_SECONDS
            else f"no report for {now - worker.heard:.0f} s"
            for worker in self._workers
        }


def _ops_port(table: Sequence[routes.Route], bounds: limits.Limits) -> connections.Connections:
    answering = answers.Answers(table, bounds, None)
    return connections.Connections(answering, answering, bounds, answering.rejected)


def _wait_for_exit(pid: int) -> int:
    return os.waitpid(pid, 0)[1]


# --- a worker -----------------------------------------------------------------------------------------


def _fork_worker(
    number: int, options: settings.Settings, main: Main, inherited: Sequence[socket.socket], older: Sequence[_Worker]
) -> _Worker:
    reads, writes = os.pipe()
    sys.stderr.flush()
    pid = os.fork()
    if pid != 0:
        os.close(writes)
        return _Worker(number, pid, reads)
    for descriptor in (reads, *(worker.reports for worker in older)):
        os.close(descriptor)  # otherwise a worker would not notice the death of its parent
    for bound in inherited:
        bound.close()
    return _work(options, main, writes)


def _work(options: settings.Settings, main: Main, writes: int) -> NoReturn:
    """Run a worker until it ends; never returns into the parent's code."""
    code = 1
    try:
        # a terminal sends it to all processes; the parent forwards it as SIGTERM
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.set_blocking(writes, False)
        with contextlib.closing(listeners.bind(options.listen, shared=True)) as service:
            report = functools.partial(_send_report, writes)
            code = _run_loop(main(lambda shell, tasks: shell.run_worker(tasks, service, report)))
    except Exception:  # noqa: BLE001 - nothing may leave this function, because the parent's code is above it
        _LOG.critical("a worker failed", exc_info=True)
    finally:
        sys.stderr.flush()
        os._exit(code)


def _send_report(writes: int, checks: Mapping[str, str | None]) -> bool:
    try:
        os.write(writes, msgspec.json.encode(_Health(dict(checks))) + b"\n")
    except BlockingIOError:
        pass  # the parent is slow; the next report is newer
    except OSError:
        return False
    return True
