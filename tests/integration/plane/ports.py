"""Free loopback ports for programs that cannot choose and print a port themselves."""

import os
import random
import re
import socket

# Below the ranges from which kernels pick the ports of outgoing connections (Linux: 32768 and up), so that no
# connection takes a port between our look and the program's bind. Each process of pytest-xdist has a share of its own.
_EACH = 3000
_WORKER = int((re.findall(r"\d+", os.environ.get("PYTEST_XDIST_WORKER", "")) or ["0"])[0])
_RANGE = range(20000, 32000)[_WORKER % 4 * _EACH :][:_EACH]
_given: set[int] = set()


def free() -> int:
    """Return a free port of 127.0.0.1 that was not returned before in this run."""
    while True:
        port = random.choice(_RANGE)  # noqa: S311 - not a secret
        if port in _given:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        _given.add(port)
        return port
