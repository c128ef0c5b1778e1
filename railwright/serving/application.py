"""Builds the web applications of the servers: a middleware applies limits, counts requests, and formats errors.

A handler finds the body of a request in `request[BODY]`, and raises HttpError for a status of its own. Each error is
JSON: {"error": {"code": 400, "reason": "..."}}.
"""

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
from aiohttp import hdrs, typedefs, web

from railwright.serving import metrics

_LOG = logging.getLogger(__name__)
JSON = "application/json"
BODY = web.RequestKey[Any]("body", object)  # bytes, or of the type in `Rules.body_types`
OUTCOME = web.ResponseKey("outcome", str)
"""Label of a response in the request counter; without it the status decides."""

_SMALL_BODY = 64 << 10  # bytes; smaller bodies are always accepted (a review of a pod has 10 KB)
_OTHER_BODIES = 64 << 20  # bytes of bodies that may be there at once beside one of the largest size
_HEADERS = {hdrs.CONTENT_TYPE: JSON, hdrs.SERVER: "railwright"}  # aiohttp's names its version and Python's


class HttpError(Exception):
    """Raised to send an error response with a status and a reason for the caller.

    The metric of requests counts the response under `outcome`, by default the status.
    """

    def __init__(self, status: int, reason: str, outcome: str = "", **headers: str) -> None:
        super().__init__(reason)
        self.outcome = outcome or str(status)
        printable = reason.encode("utf-8", "replace").decode()  # UTF-8 cannot encode a lone surrogate
        body = msgspec.json.encode({"error": {"code": status, "reason": printable}})
        self.response = build_response(body, status=status)
        self.response.headers.update({name.replace("_", "-"): value for name, value in headers.items()})


class Rules(msgspec.Struct, kw_only=True):
    """The limits of an application, its metrics, and its open bodies and connections. Sizes are bytes.

    Each port has its own limit for bodies. So callers of Volcano's port, who need no certificate, cannot use up the
    limit of kube-scheduler.
    """

    max_body: int
    counters: metrics.Metrics | None = None  # None: nothing is counted
    malformed: tuple[type[Exception], ...] = ()  # raised by handlers and bodies for what a caller has written: 400
    # of paths whose bodies are read while they arrive: like a bytearray, whose `extend` gets each part
    body_types: Mapping[str, Callable[[], Any]] = {}
    client_names: frozenset[str] | None = None  # of clients' certificates, empty for any. None: none is needed
    public: frozenset[str] = frozenset()  # paths for which no client needs a certificate
    request_seconds: float = 30.0  # from its headers until the answer is sent; API servers wait 30 s at most
    closing: bool = False  # every response asks its client to reconnect, to another replica
    bodies: int = 0  # bytes that bodies keep, from their arrival until the handler ends
    connections: list[tuple[str, socket.socket]] = []  # each with the address of its client


RULES = web.AppKey("rules", Rules)


def build_application(
    rules: Rules, routes: Iterable[web.RouteDef], *middlewares: typedefs.Middleware
) -> web.Application:
    """Return an application with these routes. The caller adds the values that its handlers read.

    `middlewares` run after the checks of this module, and may raise HttpError.
    """
    app = web.Application(middlewares=[answer_request, *middlewares])
    app[RULES] = rules
    app.add_routes(routes)
    return app


def build_response(body: bytes, *, outcome: str = "", status: int = 200, content_type: str = JSON) -> web.Response:
    """Return a response with this body, which is JSON by default."""
    response = web.Response(body=body, status=status, headers=_HEADERS)
    if content_type is not JSON:
        response.headers[hdrs.CONTENT_TYPE] = content_type
    if outcome:
        response[OUTCOME] = outcome
    return response


def get_route_path(request: web.Request) -> str:
    """Return the path of the route, such as /volcano/{scope}/allocate."""
    resource = request.match_info.route.resource
    return resource.canonical if resource is not None else ""


@web.middleware
async def answer_request(request: web.Request, handler: typedefs.Handler) -> web.StreamResponse:
    """Check a request, receive its body, run its handler, count it and send the response, all before the deadline.

    A client that does not send the body, or does not read the response, is disconnected.
    """
    rules, path, outcome = (
        request.app[RULES],
        get_route_path(request),
        "cancelled",
    )  # by the caller, whose own time is over
    body = rules.body_types.get(path, bytearray)()
    try:
        async with asyncio.timeout(rules.request_seconds):
            try:
                response = await _run_handler(request, handler, rules, path, body)
                outcome = response.get(OUTCOME, "") or ("ok" if response.status < 400 else str(response.status))
            except HttpError as error:
                response, outcome = error.response, error.outcome
            finally:
                rules.bodies -= len(body)
                request.pop(BODY, None)  # the connection keeps the request until the next one
                if rules.counters is not None:
                    rules.counters.get_requests(path, outcome).inc()
            if rules.closing:
                response.force_close()
            await response.prepare(request)
            await response.write_eof()
            return response
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
    except ConnectionError:  # the client has hung up
        pass
    return web.Response(status=400)  # nobody receives it


def _check_request(request: web.Request, rules: Rules, path: str) -> None:
    """Raise HttpError for an unknown path or method, or a client without the certificate that the path requires."""
    unrouted = request.match_info.http_exception
    if isinstance(unrouted, web.HTTPMethodNotAllowed):
        verbs = ", ".join(sorted(unrouted.allowed_methods))
        raise HttpError(405, f"this path accepts {verbs} only", Allow=verbs)
    if unrouted is not None:
        raise HttpError(unrouted.status, "no such path")
    if rules.client_names is None or path in rules.public:
        return
    certificate = request.get_extra_info("peercert") or {}  # verified by `ssl`
    common = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    given = {*common, *(value for _, value in certificate.get("subjectAltName", ()))}
    if not certificate or (rules.client_names and not given & rules.client_names):
        shown = f"that of this client names {', '.join(sorted(given)) or 'nobody'}" if certificate else "none was sent"
        raise HttpError(
            403,
            f"{path} requires a client certificate: {shown}; use one that --client-ca issued and --client-names allows",
        )


async def _run_handler(
    request: web.Request, handler: typedefs.Handler, rules: Rules, path: str, body: Any
) -> web.StreamResponse:
    """Receive the body, and return the response of the handler. Raises HttpError for any error."""
    _check_request(request, rules, path)
    if request.method == hdrs.METH_POST:
        await _receive_body(body, request, rules)
    request[BODY] = body
    start = time.perf_counter()
    try:
        return await handler(request)
    except HttpError:
        raise
    except rules.malformed as error:
        raise HttpError(400, str(error), "malformed") from None
    except Exception:  # noqa: BLE001 - the server must survive any error of a handler
        _LOG.exception("a handler failed", extra={"fields": {"path": path}})
        advice = 'see "a handler failed" in this server\'s log, and report it'
        raise HttpError(500, f"{path} failed because of a bug in railwright; {advice}", "failed") from None
    finally:
        if rules.counters is not None:
            rules.counters.get_duration(path).observe(time.perf_counter() - start)


async def _receive_body(body: Any, request: web.Request, rules: Rules) -> None:
    """Read the request's body into `body`, without expanding it.

    Raises HttpError if it is too large, or if too many large bodies arrive at once. Received bytes count, not the
    announced length: a caller that sends nothing blocks nobody. Unlike `request.read`, this copies the body only once,
    and the request keeps no copy.
    """
    size, received = request.content_length or 0, 0
    try:
        while size <= rules.max_body and not request.content.at_eof():
            chunk, _ = await request.content.readchunk()  # as it arrived: `readany` would copy several into one
            kept = len(body)
            try:
                body.extend(chunk)
            finally:
                rules.bodies += len(body) - kept
            received += len(chunk)
            size = max(size, received)
            if len(body) > _SMALL_BODY and rules.bodies > rules.max_body + _OTHER_BODIES:
                raise HttpError(429, "too many large bodies arrive at once; try again in 1 s", Retry_After="1")
    except rules.malformed as error:
        raise HttpError(400, str(error), "malformed") from None
    except web.RequestPayloadError as error:
        raise HttpError(400, f"the body does not match its headers: {error}") from None
    if size > rules.max_body:
        raise HttpError(413, f"the body is larger than {rules.max_body} bytes, the limit of this server")
