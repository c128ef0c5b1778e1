"""Opens listening sockets and ports, and formats their actual addresses.

An empty host means IPv6 and IPv4 if the machine has both.
"""

import contextlib
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import NamedTuple

from railwright.serving import connections, dispatch, settings

OnListening = Callable[[settings.Address, settings.Address, settings.Address | None], None]
"""Called with the actual addresses of the service, of the probes and of Volcano's port once they are open."""


class Sockets(NamedTuple):
    """The bound sockets of a server."""

    service: socket.socket
    ops: socket.socket
    volcano: socket.socket | None


class ListenError(OSError):
    """Listening on the address failed; the message contains address and cause."""


def bind(at: settings.Address) -> socket.socket:
    """Return a socket bound to `at` that does not listen yet. Raises ListenError."""
    family, host = _resolve(at.host)
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if at.host == "" else 1)
        bound.bind((host, at.port))
    except OSError as error:
        bound.close()
        raise ListenError(f"cannot listen on {at}: {error.strerror or error}") from None
    bound.setblocking(False)
    return bound


def read_address(bound: socket.socket) -> settings.Address:
    """Return the actual address, with the port that the system chose for port 0."""
    host, port = bound.getsockname()[:2]
    return settings.Address(host, port)


@contextlib.contextmanager
def open_sockets(options: settings.Settings) -> Iterator[Sockets]:
    """Open the sockets of all ports, and close them at the end. Raises ListenError."""
    with contextlib.ExitStack() as stack:

        def open_socket(at: settings.Address) -> socket.socket:
            return stack.enter_context(contextlib.closing(bind(at)))

        service, ops = open_socket(options.listen), open_socket(options.ops_listen)
        yield Sockets(service, ops, open_socket(options.volcano_listen) if options.volcano_listen else None)


@contextlib.asynccontextmanager
async def open_port(
    at: settings.Address, dispatcher: dispatch.Dispatcher, context: ssl.SSLContext | None = None
) -> AsyncIterator[settings.Address]:
    """Serve the routes of a dispatcher during a `with` block; yields the actual address. Raises ListenError."""
    with contextlib.closing(bind(at)) as bound:
        async with connections.open_port(bound, dispatcher, context):
            yield read_address(bound)


def print_addresses(service: settings.Address, ops: settings.Address, volcano: settings.Address | None) -> None:
    """Print the lines of docs/interface.md 6 in one write, so that no log line comes between them."""
    with contextlib.suppress(OSError):  # a full disk behind stderr must not stop the server
        third = f"volcano listening on {volcano}\n" if volcano else ""
        sys.stderr.write(f"listening on {service}\nops listening on {ops}\n{third}")
        sys.stderr.flush()


def _resolve(host: str) -> tuple[socket.AddressFamily, str]:
    if host == "":
        return (socket.AF_INET6, "::") if socket.has_dualstack_ipv6() else (socket.AF_INET, "0.0.0.0")  # noqa: S104 - default
    try:
        family, _, _, _, place = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except OSError as error:
        raise ListenError(f"cannot listen on {host}: {error.strerror or error}") from None
    return family, str(place[0])
