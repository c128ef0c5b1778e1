"""Opens ports, which accept connections for an application, and closes them.

An empty host means IPv6 and IPv4 if the machine has both.
"""

import asyncio
import contextlib
import logging
import resource
import socket
import time
from collections.abc import AsyncIterator, Callable

from aiohttp import http, web

from railwright.serving import application, settings, tls

HANDSHAKE_SECONDS = 10.0  # client-go gives up after 10 s itself
KEEPALIVE_SECONDS = 120.0  # from one request to the whole head of the next; client-go closes after 90 s
LINGERING_SECONDS = 2.0  # how long the rest of a rejected body is read, so that the response arrives
FINISH_SECONDS = 10.0  # for requests in flight at shutdown, after which they are cut off
_, _most = resource.getrlimit(resource.RLIMIT_NOFILE)
# An API server keeps 25 idle ones, Volcano opens 16 at a time; 256 descriptors are for watches, probes and files. An
# idle one with TLS takes 50 KiB: without a limit, 9,000 of one caller would exceed the memory of the webhook's pod.
MAX_CONNECTIONS = 4096 if _most == resource.RLIM_INFINITY else min(4096, _most - 256)
_TLS_CLOSE_SECONDS = 2.0  # asyncio's default of 30 s would delay the exit if the client is gone
_CUT_SECONDS = 0.1  # for requests that are cut off at the end
_CLOSE_SECONDS = 0.2  # a client that is there closes within a round trip; SIGTERM must end the process within a second
_PAUSE_SECONDS = 0.1  # while no descriptor is left
_BACKLOG = 1024  # connections that the kernel queues while the event loop is busy


class ListenError(OSError):
    """Raised if a port cannot listen. The message contains address and cause."""


class Port:
    """An open port: accepts connections for an application, with a limit for each client address."""

    def __init__(self, runner: web.AppRunner, bound: socket.socket, certificate: tls.Certificate | None) -> None:
        self._runner, self._bound, self._certificate = runner, bound, certificate
        self._open: dict[str, list[socket.socket]] = {}  # by address of the client
        self._starting: set[asyncio.Task[None]] = set()
        self.address = settings.Address(*bound.getsockname()[:2])  # with the port that the system chose for port 0

    async def accept(self) -> None:
        """Accept connections until cancelled. Connections in a TLS handshake count toward the limit."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, place = await loop.sock_accept(self._bound)
            except OSError:  # no descriptor is left, or the client has hung up
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            if not self._has_room(place[0]):
                connection.close()
                if (counters := self._runner.app[application.RULES].counters) is not None:
                    counters.requests.labels("", "503").inc()
                continue
            self._open.setdefault(place[0], []).append(connection)
            task = loop.create_task(self._start(connection))
            self._starting.add(task)
            task.add_done_callback(self._starting.discard)

    def _has_room(self, peer: str) -> bool:
        """Return False if this address has as many connections as are free for others.

        So one address gets at most half of all connections, two get a third each, and a new one always gets some. API
        servers may share one address.
        """
        for address, sockets in list(self._open.items()):
            sockets[:] = [connection for connection in sockets if connection.fileno() >= 0]
            if not sockets:
                del self._open[address]
        left = MAX_CONNECTIONS - sum(map(len, self._open.values()))
        return len(self._open.get(peer, ())) < left

    async def _start(self, connection: socket.socket) -> None:
        assert self._runner.server is not None  # noqa: S101 - set up before it accepts
        certificate = self._certificate
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().connect_accepted_socket(
                self._runner.server,
                connection,
                ssl=certificate.context if certificate else None,
                ssl_handshake_timeout=HANDSHAKE_SECONDS if certificate else None,
                ssl_shutdown_timeout=_TLS_CLOSE_SECONDS if certificate else None,
            )
        except (OSError, TimeoutError):  # of the handshake, which any caller may cause as often as it likes
            connection.close()

    async def finish(self) -> None:
        """Stop listening, answer the requests in flight, and close all connections."""
        self._bound.close()
        if self._starting:  # aiohttp closes only connections that it knows
            _, late = await asyncio.wait(self._starting, timeout=_CLOSE_SECONDS)
            for task in late:
                task.cancel()  # a TLS handshake that the client does not go on with
        # aiohttp waits for handlers too, but receives no body meanwhile
        await _wait_while(lambda: self._runner.app[application.RULES].in_flight > 0, FINISH_SECONDS)
        await self._runner.cleanup()
        # a client that has not received the end of TLS when the process ends may lose its last answer
        connections = [connection for sockets in self._open.values() for connection in sockets]
        await _wait_while(lambda: any(one.fileno() >= 0 for one in connections), _CLOSE_SECONDS)


async def _wait_while(condition: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while condition() and time.monotonic() < end:  # noqa: ASYNC110 - aiohttp has no event for it
        await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def open_port(
    at: settings.Address, app: web.Application, certificate: tls.Certificate | None = None
) -> AsyncIterator[Port]:
    """Serve an application at an address during a `with` block, with TLS if there is a certificate.

    At the end, requests in flight may finish. Raises ListenError.
    """
    runner = web.AppRunner(
        app,
        access_log=None,
        auto_decompress=False,
        handler_cancellation=True,  # nobody needs the answer to a client that has hung up
        keepalive_timeout=KEEPALIVE_SECONDS,
        lingering_time=LINGERING_SECONDS,
        logger=_HTTP_LOG,
        shutdown_timeout=_CUT_SECONDS,
    )
    port = Port(runner, _bind(at), certificate)
    await runner.setup()
    accepting = asyncio.create_task(port.accept())
    try:
        yield port
    finally:
        accepting.cancel()
        await asyncio.gather(accepting, return_exceptions=True)
        await port.finish()


def _bind(at: settings.Address) -> socket.socket:
    """Return a socket that listens on `at`. Raises ListenError."""
    try:
        if not at.host and socket.has_dualstack_ipv6():
            bound = socket.create_server(("", at.port), family=socket.AF_INET6, backlog=_BACKLOG, dualstack_ipv6=True)
        else:
            family = socket.AF_INET6 if ":" in at.host else socket.AF_INET
            bound = socket.create_server((at.host, at.port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise ListenError(f"cannot listen on {at}: {error.strerror or error}") from None
    bound.setblocking(False)
    return bound


def _is_worth_a_line(record: logging.LogRecord) -> bool:
    """Return False for the error of an invalid HTTP request, because any caller can send many."""
    return record.exc_info is None or not isinstance(record.exc_info[1], http.HttpProcessingError)


_HTTP_LOG = logging.getLogger(f"{__name__}.http")
_HTTP_LOG.addFilter(_is_worth_a_line)
