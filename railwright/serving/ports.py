"""Serves applications on ports until a signal, with background tasks.

An empty host means IPv6 and IPv4 if the machine has both.
"""

import asyncio
import contextlib
import logging
import resource
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any, NamedTuple

from aiohttp import http, web

from railwright.serving import application, settings, tls

HANDSHAKE_SECONDS = 10.0  # client-go gives up after 10 s itself
KEEPALIVE_SECONDS = 120.0  # from one request to the whole head of the next; client-go closes after 90 s
LINGERING_SECONDS = 2.0  # how long the rest of a rejected body is read, so that the response arrives
FINISH_SECONDS = 5.0  # for the handlers that run at shutdown, and again for their cancellation
_, _most = resource.getrlimit(resource.RLIMIT_NOFILE)
# An API server keeps 25 idle ones, Volcano opens 16 at a time; 256 descriptors are for watches, probes and files. An
# idle one with TLS takes 50 KiB: without a limit, 9,000 of one caller would exceed the memory of the webhook's pod.
MAX_CONNECTIONS = 4096 if _most == resource.RLIM_INFINITY else min(4096, _most - 256)
_TLS_CLOSE_SECONDS = 2.0  # asyncio's default of 30 s would delay the exit if the client is gone
# A client that is there closes within a round trip; SIGTERM must end the process within a second.
_CLOSE_CHECKS, _CLOSE_CHECK_SECONDS = 10, 0.02
_PAUSE_SECONDS = 0.1  # while no descriptor is left
_BACKLOG = 1024  # connections that the kernel queues while the event loop is busy


class ListenError(OSError):
    """Raised if a port cannot listen. The message contains address and cause."""


Task = Callable[[], Coroutine[Any, Any, None]]
Announce = Callable[[Mapping[str, settings.Address]], None]
"""Called with the actual addresses of the ports by name, once they are open."""


class Port(NamedTuple):
    """An application and the address where it is served, with TLS if there is a certificate."""

    name: str
    address: settings.Address
    app: web.Application
    certificate: tls.Certificate | None = None


def call_on_signal(stop: Callable[[], None]) -> None:
    """Call `stop` at each SIGINT and SIGTERM."""
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop)


async def serve_ports(
    ports: Iterable[Port],
    tasks: Iterable[Task],
    announce: Announce,
    wait: Callable[[], Awaitable[object]] | None = None,
) -> None:
    """Serve the ports, with `tasks` in the background, until `wait` returns; without `wait`, until SIGINT or SIGTERM.

    Raises ListenError, and ExceptionGroup if a task fails.
    """
    if wait is None:
        stopped = asyncio.Event()
        call_on_signal(stopped.set)
        wait = stopped.wait
    async with contextlib.AsyncExitStack() as stack:
        # outside of the group, which would wrap ListenError
        announce({port.name: await stack.enter_async_context(open_port(port)) for port in ports})
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(task()) for task in tasks]
            await wait()
            for task in running:
                task.cancel()


@contextlib.asynccontextmanager
async def open_port(port: Port) -> AsyncIterator[settings.Address]:
    """Serve an application during a `with` block. Yields the actual address.

    At the end, running handlers get FINISH_SECONDS to finish. Raises ListenError.
    """
    rules = port.app[application.RULES]
    runner = web.AppRunner(
        port.app,
        access_log=None,
        auto_decompress=False,
        handler_cancellation=True,  # nobody needs the answer to a client that has hung up
        keepalive_timeout=KEEPALIVE_SECONDS,
        lingering_time=LINGERING_SECONDS,
        logger=_HTTP_LOG,
        shutdown_timeout=FINISH_SECONDS,
    )
    with _open_socket(port.address) as bound:
        await runner.setup()
        accepting = asyncio.create_task(_accept_connections(bound, runner, port.certificate))
        try:
            yield settings.Address(*bound.getsockname()[:2])  # with the port that the system chose for port 0
        finally:
            accepting.cancel()
            await asyncio.wait([accepting])
            bound.close()
            await runner.cleanup()
            # a client that has not received the end of TLS when the process ends may lose its last answer
            for _ in range(_CLOSE_CHECKS):
                if any(one.fileno() >= 0 for _, one in rules.connections):
                    await asyncio.sleep(_CLOSE_CHECK_SECONDS)


def _open_socket(at: settings.Address) -> socket.socket:
    """Return a socket that listens on `at`. Raises ListenError."""
    both = not at.host and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both or ":" in at.host else socket.AF_INET
    try:
        bound = socket.create_server((at.host, at.port), family=family, backlog=_BACKLOG, dualstack_ipv6=both)
    except OSError as error:
        raise ListenError(f"cannot listen on {at}: {error.strerror or error}") from None
    bound.setblocking(False)
    return bound


async def _accept_connections(bound: socket.socket, runner: web.AppRunner, certificate: tls.Certificate | None) -> None:
    """Accept connections until cancelled, which also ends the TLS handshakes in progress.

    One client address gets at most as many connections as are still free, so at most half of all; two addresses get a
    third each. The share is large, because API servers may share an address. Connections in a TLS handshake count too.
    """
    loop, rules = asyncio.get_running_loop(), runner.app[application.RULES]
    async with asyncio.TaskGroup() as handshakes:
        while True:
            try:
                connection, (peer, *_) = await loop.sock_accept(bound)
            except OSError:  # no descriptor is left, or the client has hung up
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            rules.connections = [(address, one) for address, one in rules.connections if one.fileno() >= 0]
            own = sum(address == peer for address, _ in rules.connections)
            if own >= MAX_CONNECTIONS - len(rules.connections):
                connection.close()
                if rules.counters is not None:
                    rules.counters.requests.labels("", "503").inc()
                continue
            rules.connections.append((peer, connection))
            handshakes.create_task(_serve_connection(connection, runner.server, certificate))


async def _serve_connection(
    connection: socket.socket, server: web.Server | None, certificate: tls.Certificate | None
) -> None:
    assert server is not None  # noqa: S101 - set up before it accepts
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().connect_accepted_socket(
            server,
            connection,
            ssl=certificate.context if certificate else None,
            ssl_handshake_timeout=HANDSHAKE_SECONDS if certificate else None,
            ssl_shutdown_timeout=_TLS_CLOSE_SECONDS if certificate else None,
        )
    except Exception:  # noqa: BLE001 - of the handshake, which any caller may cause as often as it likes
        connection.close()


def _is_logged(record: logging.LogRecord) -> bool:
    """Return False for the error of an invalid HTTP request, because any caller can cause many."""
    return record.exc_info is None or not isinstance(record.exc_info[1], http.HttpProcessingError)


_HTTP_LOG = logging.getLogger(f"{__name__}.http")
_HTTP_LOG.addFilter(_is_logged)
