"""Reserves a loopback port for a server that is absent, or that stops and starts again."""

import contextlib
import socket
from collections.abc import Iterator


@contextlib.contextmanager
def reserve() -> Iterator[int]:
    """Reserve a port for a `with` block. Connections to it are refused until a server of the test listens on it.

    The kernel gives a bound port to no other process, and refuses connections to it while no process listens. A server
    that sets SO_REUSEADDR, as asyncio's and ours do, can bind it too.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]
