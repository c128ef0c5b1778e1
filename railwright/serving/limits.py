"""What a request may be before a handler sees it: headers, size and speed of its body, and the numbers for all that.

Owns the limits (threats T11 and T12: huge bodies, compressed bombs, dripping clients) and the reading of bodies.
Knows no path and no handler.
"""

import asyncio

import msgspec
from aiohttp import HttpVersion11, web

from railwright.serving import memory as memories
from railwright.serving import routes


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes, seconds and counts. The defaults suit the service port; tests shorten the times."""

    max_body: int
    first_byte_seconds: float = 30.0  # Go's transports dial ahead of need; controller-runtime gives 32 s
    header_seconds: float = 10.0  # from the first byte of a request to the end of its headers
    body_seconds: float = 30.0  # from the headers to the last byte of the body
    handshake_seconds: float = 10.0  # of TLS; client-go gives up after 10 s itself
    keepalive_seconds: float = 300.0  # well over the 90 s after which client-go drops idle connections itself
    lingering_seconds: float = 2.0  # how long the rest of a refused body is read, so that the answer arrives
    finish_seconds: float = 10.0  # for what is in flight at the end; no caller waits longer for an answer
    turn_seconds: float = 1.0  # of answers in one turn; a caller waits for two at most, an API server 5 s for us
    retry_seconds: int = 1  # whole, or an API server does not try again (client-go rest/with_retry.go)
    connections: int = 4096  # an API server keeps 25 idle ones, Volcano opens 16 at a time; see tuning.connections
    backlog: int = 1024  # connections the kernel may queue while the loop is busy


def check(request: web.BaseRequest, max_body: int) -> None:
    """Refuse by the headers alone. Raises HttpError 413, 415 or 417."""
    headers = request.headers
    if headers.get("Content-Encoding", "identity").lower() not in ("identity", ""):
        raise routes.HttpError(415, "compressed bodies are not taken: send it without Content-Encoding")
    if request.content_type != routes.JSON:
        raise routes.HttpError(415, f"expected Content-Type: {routes.JSON}")
    if headers.get("Expect", "100-continue").lower() != "100-continue":
        raise routes.HttpError(417, "only Expect: 100-continue is known")
    if (length := request.content_length) is not None and length > max_body:
        raise _too_large(max_body)


async def read(request: web.BaseRequest, limits: Limits, memory: memories.Memory) -> bytes:
    """The body. Raises HttpError: 413 as soon as it is too long, 408 if it does not end in time, 400 if broken.

    429 where there is no room for it: the API server tries again after the time it is told, within its own.
    """
    if "Expect" in request.headers and request.version == HttpVersion11:
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # as aiohttp's own expect handler does: the answer has not begun yet
    if request.content.is_eof() and request.content.total_bytes <= limits.max_body:
        return request.content.read_nowait()  # most bodies arrive with their headers: nothing to wait for, no timer
    announced = request.content_length or 0
    if not memory.has_room(announced):
        raise _no_room()
    memory.promised += announced
    try:
        async with asyncio.timeout(limits.body_seconds):
            return await _collected(request, limits.max_body, memory)
    except TimeoutError:
        raise routes.HttpError(408, late(limits)) from None
    except (web.RequestPayloadError, ValueError) as error:
        raise routes.HttpError(400, f"the body is not what its headers announced: {type(error).__name__}") from None
    finally:
        memory.promised -= announced


def late(limits: Limits) -> str:
    """Why a request is refused whose body did not end in time."""
    return f"the body did not arrive within {limits.body_seconds:g} s"


async def _collected(request: web.BaseRequest, max_body: int, memory: memories.Memory) -> bytes:
    parts: list[bytes] = []
    size = 0
    while part := await request.content.readany():
        parts.append(part)
        size += len(part)
        if size > max_body:
            raise _too_large(max_body)
        if request.content_length is None and not memory.has_room(size):  # nobody knows how many chunks will come
            raise _no_room()
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _no_room() -> routes.HttpError:
    reason = "too little memory is left for so large a body: send it again, or raise the container's memory limit"
    return routes.HttpError(429, reason, {"Retry-After": "1"})


def _too_large(max_body: int) -> routes.HttpError:
    return routes.HttpError(413, f"the body has more than {max_body} bytes, the limit of --max-body")
