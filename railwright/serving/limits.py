"""Limits of a port, which protect against huge bodies, slow clients and many connections (docs/security.md).

Large bodies are rejected before the kernel kills the process for its memory: the container's limit and usage are read
(cgroup v2), and bytes reserved for bodies in transit are counted. Without a limit or a readable cgroup there is always
room.
"""

import pathlib
import time
from collections.abc import Callable

import msgspec

CGROUP = pathlib.Path("/sys/fs/cgroup")  # as seen from inside the container
SMALL = 64 * 1024  # bytes; smaller bodies are always accepted, because rejecting costs as much as answering
SHARE = 0.9  # of the limit; the rest is for decoded bodies and for growing caches


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits in bytes, seconds and counts. The defaults suit the service port; tests shorten the times."""

    max_body: int
    first_byte_seconds: float = 30.0  # Go's transports connect ahead of need; controller-runtime allows 32 s
    header_seconds: float = 10.0  # from the first byte of a request to the end of its headers
    body_seconds: float = 30.0  # from the headers to the last byte of the body
    handshake_seconds: float = 10.0  # TLS handshake; client-go gives up after 10 s itself
    keepalive_seconds: float = 300.0  # well over the 90 s after which client-go closes idle connections
    lingering_seconds: float = 2.0  # how long the rest of a rejected body is read, so that the response arrives
    stream_seconds: float = 20.0  # a client that reads nothing of a streamed response for this long is disconnected
    finish_seconds: float = 10.0  # for requests in flight at shutdown; no client waits longer
    # budget of one event-loop iteration before load is shed; a request waits for at most two, an API server for 5 s
    loop_budget_seconds: float = 1.0
    retry_seconds: int = 1  # a whole number, otherwise an API server does not retry (client-go rest/with_retry.go)
    # an API server keeps 25 idle ones, Volcano opens 16 at a time; `server.compute_max_connections` lowers it
    connections: int = 4096
    # of one address in any case; beyond, it may have as many as are left (API servers may share one address)
    peer_connections: int = 64
    backlog: int = 1024  # connections that the kernel queues while the event loop is busy


class Memory:
    """Memory headroom of the container. Reserved bytes do not show in memory.current until they arrive."""

    def __init__(self, folder: pathlib.Path = CGROUP) -> None:
        self._folder = folder
        self.reserved_bytes = 0

    def has_room(self, length: int) -> bool:
        """True if a body of `length` bytes may be accepted."""
        if length <= SMALL:
            return True
        limit = _read_number(self._folder / "memory.max")  # "max" if there is no limit
        used = _read_number(self._folder / "memory.current")
        if limit is None or used is None:
            return True
        return used - self._read_reclaimable() + self.reserved_bytes + length <= limit * SHARE

    def _read_reclaimable(self) -> int:
        """Return the bytes of page cache that the kernel drops before it kills a process; kubelet ignores them too."""
        try:
            text = (self._folder / "memory.stat").read_text("ascii")
        except (OSError, UnicodeDecodeError):
            return 0
        matches = [line.split()[1] for line in text.splitlines() if line.startswith("inactive_file ")]
        return int(matches[0]) if matches and matches[0].isdecimal() else 0


def _read_number(path: pathlib.Path) -> int | None:
    try:
        text = path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return int(text) if text.isdecimal() else None


class TokenBucket:
    """At most `burst` tokens, refilled by `rate` per second. It starts full."""

    def __init__(self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._tokens, self._clock, self._updated = rate, burst, burst, clock, clock()

    def take(self) -> bool:
        """Take one token. Return True if there was one."""
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._updated) * self._rate)
        self._updated = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
