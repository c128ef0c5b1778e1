"""Limits of a port, which protect against huge bodies, slow clients and many connections (docs/security.md)."""

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits in bytes, seconds and counts. The defaults suit the service port; tests shorten the times."""

    max_body: int
    first_byte_seconds: float = 30.0  # Go's transports connect ahead of need; controller-runtime allows 32 s
    header_seconds: float = 10.0  # from the first byte of a request to the end of its headers
    body_seconds: float = 30.0  # from the headers to the last byte of the body
    handshake_seconds: float = 10.0  # TLS handshake; client-go gives up after 10 s itself
    keepalive_seconds: float = 300.0  # well over the 90 s after which client-go closes idle connections
    lingering_seconds: float = 2.0  # how long the rest of a rejected body is read, so that the response arrives
    stream_seconds: float = 20.0  # a client that takes nothing of a streamed response for this long is disconnected
    finish_seconds: float = 10.0  # for requests in flight at shutdown; no client waits longer
    # budget of one event-loop iteration before load is shed; a request waits for at most two, an API server for 5 s
    loop_budget_seconds: float = 1.0
    retry_seconds: int = 1  # a whole number, otherwise an API server does not retry (client-go rest/with_retry.go)
    connections: int = 4096  # an API server keeps 25 idle ones, Volcano opens 16 at a time; `tuning` lowers it
    # of one address in any case; beyond, it may have as many as are left (API servers may share one address)
    peer_connections: int = 64
    backlog: int = 1024  # connections that the kernel queues while the event loop is busy
