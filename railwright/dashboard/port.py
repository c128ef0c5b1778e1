"""The dashboard's port: the page for anybody, its data for authorised readers, by server-sent events.

The port is read-only: GET and HEAD. The page itself contains nothing about the cluster; data needs the guard's
permission, again each time a stream reconnects. On loopback the Host header must be loopback too, so that no web site
can reach the port under its own name (DNS rebinding).
"""

import asyncio
import contextlib
import ipaddress
import logging
import secrets
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from urllib import parse

import msgspec
from aiohttp import web

from railwright.dashboard import assets, feed
from railwright.fabric.overview import deltas
from railwright.serving import connections, limits, listeners, routes, settings

_LOG = logging.getLogger(__name__)
PATH = "/dashboard"  # the nonResourceURL on which a reader's account needs the verb get
_MAX_REVIEWS = 4  # concurrent token reviews: unauthenticated clients must not keep the API server busy through us
_EXPLAIN_RATE, _EXPLAIN_BURST = 5, 10  # each is a decision over all nodes, which takes milliseconds of the event loop
_MAX_QUERY = 2048
_MAX_VERSION_DIGITS = 18  # digits; Python refuses to parse numbers of thousands of digits


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """Timing of a stream in seconds; tests shorten it."""

    beat: float = 5.0  # heartbeat interval: the page shows itself as stale after two and a half intervals
    renew: float = 600.0  # then the stream ends and the reader is authorised again
    slow: float = 20.0  # a reader that receives nothing for this long is disconnected


Guard = Callable[[str, str], Awaitable[tuple[int, str] | None]]
"""(Authorization header, peer) -> None if the client may read, otherwise (status, reason)."""


class Port:
    """Handles the requests of the port."""

    def __init__(self, source: feed.Feed, guard: Guard, times: Times, *, loopback: bool) -> None:
        self._feed, self._guard, self._times, self._loopback = source, guard, times, loopback
        self._assets = assets.load()
        self._epoch = secrets.token_hex(4)  # invalidates versions from before a restart of the server
        self._asking = asyncio.Semaphore(_MAX_REVIEWS)
        self._explain_bucket = _Bucket(_EXPLAIN_RATE, _EXPLAIN_BURST)
        self._closing = asyncio.Event()

    def close(self) -> None:
        """End all streams; their readers reconnect, possibly to another replica."""
        self._closing.set()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Handle one request. Never raises because of a client's input."""
        try:
            return await self._handle(request)
        except routes.HttpError as error:
            response = _build_response(routes.error_body(error.status, error.reason), routes.JSON, error.status)
            response.headers.update(error.headers)
            response.force_close()  # a body may not have been read
            return response

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if self._loopback and not _is_loopback_host(request.headers.get("Host", "")):
            raise routes.HttpError(421, "this port accepts its own address only: open the printed URL")
        if request.method not in ("GET", "HEAD"):
            raise routes.HttpError(405, "this port is read-only: use GET", {"Allow": "GET, HEAD"})
        if (asset := self._assets.get(request.path)) is not None:
            return _build_asset_response(asset, request)
        if request.path == "/api/stream" and request.method == "GET":
            await self._admit(request)
            return await self._stream(request)
        if request.path == "/api/why" and request.method == "GET":
            await self._admit(request)
            return self._why(request)
        raise routes.HttpError(404, "no such path")

    async def _admit(self, request: web.BaseRequest) -> None:
        """Raise HttpError if the client may not read."""
        async with self._asking:
            refused = await self._guard(request.headers.get("Authorization", ""), request.remote or "")
        if refused is not None:
            status, reason = refused
            raise routes.HttpError(status, reason, {"WWW-Authenticate": "Bearer"} if status == 401 else None)

    def _why(self, request: web.BaseRequest) -> web.Response:
        if len(request.query_string) > _MAX_QUERY:
            raise routes.HttpError(414, f"the query has more than {_MAX_QUERY} characters")
        if not self._explain_bucket.take():
            raise routes.HttpError(429, "too many requests at once: retry in a second", {"Retry-After": "1"})
        query = dict(parse.parse_qsl(request.query_string))
        explanation = self._feed.builder.explain(query.get("gang", "") or query.get("pod", ""), query.get("node", ""))
        if explanation is None:
            raise routes.HttpError(404, "no such gang, pod or node: it may have been deleted")
        return _build_response(msgspec.json.encode(explanation), routes.JSON)

    # --- the stream -------------------------------------------------------------------------------------------

    async def _stream(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            with self._feed.reading():
                return await self._send_stream(request)
        except feed.CrowdedError as error:
            raise routes.HttpError(503, str(error), {"Retry-After": "5"}) from None

    async def _send_stream(self, request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={**assets.SECURITY, **_STREAM_HEADERS})
        response.force_close()
        await response.prepare(request)
        version = self._version(request.headers.get("Last-Event-ID", ""))
        until = time.monotonic() + self._times.renew
        try:
            await self._write(response, b"retry: 1000\n\n")
            while not self._closing.is_set() and time.monotonic() < until:
                delta = await self._next_delta(version)
                await self._write(response, _HEARTBEAT if delta is None else self._event(delta))
                version = version if delta is None else delta.version
            await self._write(response, b"event: again\ndata: {}\n\n")
        except TimeoutError:
            _LOG.info("disconnected a slow reader of the dashboard", extra={"fields": {"peer": request.remote}})
            if request.transport is not None:
                request.transport.abort()
        except ConnectionError:
            pass  # the page was closed
        return response

    async def _next_delta(self, version: int | None) -> deltas.Delta | None:
        """Return the next change, or None if a heartbeat is due or the port closes."""
        waiting = asyncio.ensure_future(self._feed.after(version, self._times.beat))
        closing = asyncio.ensure_future(self._closing.wait())
        try:
            await asyncio.wait((waiting, closing), return_when=asyncio.FIRST_COMPLETED)
            return waiting.result() if waiting.done() else None
        finally:
            waiting.cancel()
            closing.cancel()

    def _event(self, delta: deltas.Delta) -> bytes:
        return b"id: %s-%d\nevent: change\ndata: %s\n\n" % (self._epoch.encode(), delta.version, delta.body)

    def _version(self, last: str) -> int | None:
        """Return the version that the reader has, or None if it is unknown or from before a restart."""
        epoch, _, number = last.partition("-")
        ours = epoch == self._epoch and len(number) <= _MAX_VERSION_DIGITS
        return int(number) if ours and number.isascii() and number.isdigit() else None

    async def _write(self, response: web.StreamResponse, text: bytes) -> None:
        async with asyncio.timeout(self._times.slow):
            await response.write(text)


_HEARTBEAT = b"event: beat\ndata: {}\n\n"
_STREAM_HEADERS: Mapping[str, str] = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # otherwise nginx buffers events
    "Server": "railwright",
}


class _Bucket:
    """A token bucket: `at_once` tokens at most, refilled by `a_second` per second."""

    def __init__(self, a_second: float, at_once: float) -> None:
        self._rate, self._most, self._left, self._at = a_second, at_once, at_once, time.monotonic()

    def take(self) -> bool:
        """Take one token; True if there was one."""
        now = time.monotonic()
        self._left = min(self._most, self._left + (now - self._at) * self._rate)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


def _build_asset_response(asset: assets.Asset, request: web.BaseRequest) -> web.Response:
    same = request.headers.get("If-None-Match") == asset.etag
    response = _build_response(
        b"" if same or request.method == "HEAD" else asset.body, asset.content_type, 304 if same else 200
    )
    response.headers["ETag"] = asset.etag
    response.headers["Cache-Control"] = "no-cache"
    return response


def _build_response(body: bytes, content_type: str, status: int = 200) -> web.Response:
    response = web.Response(body=body, status=status, headers=assets.SECURITY)
    response.headers["Content-Type"] = content_type
    response.headers["Cache-Control"] = "no-store"
    response.headers["Server"] = "railwright"  # otherwise aiohttp sends its own version and Python's
    return response


def _is_loopback_host(header: str) -> bool:
    """True if a Host header names this machine: 127.0.0.1:8080, localhost, [::1]:8080."""
    host = header.rpartition(":")[0] if header.rpartition(":")[2].isdigit() else header
    host = host.removeprefix("[").removesuffix("]").lower()
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


# --- the open port ------------------------------------------------------------------------------------------------


_TIMES = Times()
_BOUNDS = limits.Limits(max_body=0, connections=128, keepalive_seconds=60.0, backlog=64, finish_seconds=2.0)


@contextlib.asynccontextmanager
async def opened(
    at: settings.Address,
    source: feed.Feed,
    guard: Guard,
    context: ssl.SSLContext | None = None,
    *,
    times: Times = _TIMES,
) -> AsyncIterator[settings.Address]:
    """Open the port at `at`; yields the actual address. Raises listeners.ListenError."""
    with contextlib.closing(listeners.bind(at)) as bound:
        port = Port(source, guard, times, loopback=at.is_loopback)
        accepted = connections.Connections(web.Server(port.handle, access_log=None), _BOUNDS, lambda _status: None)
        listener = await asyncio.get_running_loop().create_server(
            accepted,
            sock=bound,
            backlog=_BOUNDS.backlog,
            ssl=context,
            ssl_handshake_timeout=_BOUNDS.handshake_seconds if context else None,
        )
        try:
            yield listeners.address(bound)
        finally:
            port.close()
            listener.close()
            await accepted.finish(_BOUNDS.finish_seconds)
