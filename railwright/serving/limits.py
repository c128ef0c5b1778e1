"""Limits on a request before it reaches a handler: headers, and size and speed of its body.

They protect against huge bodies, compressed bombs and slow clients (docs/security.md).
"""

import asyncio

import msgspec
from aiohttp import HttpVersion11, web

from railwright.serving import memory as memories
from railwright.serving import routes


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits in bytes, seconds and counts. The defaults suit the service port; tests shorten the times."""

    max_body: int
    first_byte_seconds: float = 30.0  # Go's transports connect ahead of need; controller-runtime allows 32 s
    header_seconds: float = 10.0  # from the first byte of a request to the end of its headers
    body_seconds: float = 30.0  # from the headers to the last byte of the body
    handshake_seconds: float = 10.0  # TLS handshake; client-go gives up after 10 s itself
    keepalive_seconds: float = 300.0  # well over the 90 s after which client-go closes idle connections
    lingering_seconds: float = 2.0  # how long the rest of a rejected body is read, so that the response arrives
    finish_seconds: float = 10.0  # for requests in flight at shutdown; no client waits longer
    # budget of one event-loop iteration before load is shed; a request waits for at most two, an API server for 5 s
    loop_budget_seconds: float = 1.0
    retry_seconds: int = 1  # a whole number, otherwise an API server does not retry (client-go rest/with_retry.go)
    connections: int = 4096  # an API server keeps 25 idle ones, Volcano opens 16 at a time; `tuning` lowers it
    # of one address in any case; beyond, it may have as many as are left (API servers may share one address)
    peer_connections: int = 64
    backlog: int = 1024  # connections that the kernel queues while the event loop is busy


def _check(request: web.BaseRequest, route: routes.Route, limits: Limits) -> None:
    """Check a request by its headers. Raises HttpError 413, 415 or 417."""
    headers = request.headers
    if headers.get("Content-Encoding", "identity").lower() not in ("identity", ""):
        raise routes.HttpError(415, "compressed bodies are not accepted: send the body without Content-Encoding")
    if request.content_type != routes.JSON:
        raise routes.HttpError(415, f"expected Content-Type: {routes.JSON}")
    if headers.get("Expect", "100-continue").lower() != "100-continue":
        raise routes.HttpError(417, "only Expect: 100-continue is supported")
    if (length := request.content_length) is not None and length > min(route.max_body, limits.max_body):
        raise _build_too_large_error(route, limits)


async def read(request: web.BaseRequest, route: routes.Route, limits: Limits, memory: memories.Memory) -> bytes:
    """Return the body. Raises HttpError: 413 once it is too long, 408 if it does not arrive in time, 400 if it is
    malformed, 415 or 417 for headers that are not supported.

    429 if there is not enough memory; the API server retries after Retry-After within its own timeout. Raises
    ConnectionError if the client has disconnected.
    """
    _check(request, route, limits)
    max_body = min(route.max_body, limits.max_body)
    if "Expect" in request.headers and request.version == HttpVersion11:
        if request.transport is None:
            raise ConnectionResetError("the client has disconnected")
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    if request.content.is_eof() and request.content.total_bytes <= max_body:
        return request.content.read_nowait()  # most bodies arrive with their headers, so no timer is needed
    declared_length = request.content_length or 0
    if not memory.has_room(declared_length):
        raise _build_no_memory_error()
    memory.reserved_bytes += declared_length
    try:
        async with asyncio.timeout(limits.body_seconds):
            return await _collect_body(request, max_body, memory)
    except _TooLargeError:
        raise _build_too_large_error(route, limits) from None
    except TimeoutError:
        raise routes.HttpError(408, describe_late_body(limits)) from None
    except (web.RequestPayloadError, ValueError) as error:
        raise routes.HttpError(400, f"the body does not match its headers: {type(error).__name__}") from None
    finally:
        memory.reserved_bytes -= declared_length


def describe_late_body(limits: Limits) -> str:
    """Return the reason of status 408."""
    return f"the body did not arrive within {limits.body_seconds:g} s"


async def _collect_body(request: web.BaseRequest, max_body: int, memory: memories.Memory) -> bytes:
    parts: list[bytes] = []
    size = 0
    while part := await request.content.readany():
        parts.append(part)
        size += len(part)
        if size > max_body:
            raise _TooLargeError
        if request.content_length is None and not memory.has_room(size):  # the number of chunks is unknown in advance
            raise _build_no_memory_error()
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _build_no_memory_error() -> routes.HttpError:
    reason = "not enough memory to buffer this request: retry, or raise the container's memory limit"
    return routes.HttpError(429, reason, {"Retry-After": "1"})


class _TooLargeError(Exception):
    """Raised once a body is too long."""


def _build_too_large_error(route: routes.Route, limits: Limits) -> routes.HttpError:
    if limits.max_body <= route.max_body:
        reason = f"the body is larger than {limits.max_body} bytes, the limit set by --max-body"
    else:
        reason = f"the body is larger than {route.max_body} bytes, the limit of {route.path}: {route.advice}"
    return routes.HttpError(413, reason)
