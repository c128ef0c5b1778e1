"""Protects the dashboard: security headers of every response, rejected methods and hosts, and errors as JSON."""

import ipaddress
import logging
from collections.abc import Mapping

from aiohttp import typedefs, web

from railwright.serving import responses, routes

_LOG = logging.getLogger(__name__)
# Only our own files; no inline script or style, no markup from text (trusted types), no framing.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Server": responses.SERVER,  # otherwise aiohttp sends its own version and Python's
}
_METHODS = ("GET", "HEAD")


async def add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    """Add the security headers. Browsers revalidate the page's files before each use, and store nothing else."""
    response.headers.update(_HEADERS)
    response.headers["Cache-Control"] = "no-cache" if isinstance(response, web.FileResponse) else "no-store"


@web.middleware
async def answer_errors(request: web.Request, handler: typedefs.Handler) -> web.StreamResponse:
    """Return the response of the handler, or the JSON of its error."""
    try:
        return await handler(request)
    except routes.HttpError as error:
        return _build_response(error)
    except web.HTTPException as error:  # of aiohttp's router and of its static files, which call a folder forbidden
        if error.status in {403, 404}:
            return _build_response(routes.HttpError(404, "no such path"))
        allow = error.headers.get("Allow")
        return _build_response(routes.HttpError(error.status, error.reason, {"Allow": allow} if allow else None))
    except ConnectionError:  # aiohttp ends the connection
        raise
    except Exception:  # noqa: BLE001 - the response must be ours, not aiohttp's
        _LOG.exception("a request of the dashboard failed", extra={"fields": {"path": request.path}})
        return _build_response(routes.HttpError(500, "failed because of a bug in railwright; see this server's log"))


def build_filter(*, loopback: bool) -> typedefs.Middleware:
    """Return a middleware that rejects methods other than GET and HEAD and, with `loopback`, other Host headers."""

    @web.middleware
    async def check_request(request: web.Request, handler: typedefs.Handler) -> web.StreamResponse:
        if loopback and not is_loopback_host(request.headers.get("Host", "")):
            raise routes.HttpError(
                421, "the Host header does not name this machine: open the URL that the command printed"
            )
        if request.method not in _METHODS:
            raise routes.HttpError(405, "this port is read-only: use GET", {"Allow": ", ".join(_METHODS)})
        return await handler(request)

    return check_request


def is_loopback_host(header: str) -> bool:
    """True if a Host header names this machine: 127.0.0.1:8080, localhost, [::1]:8080."""
    host = header.rpartition(":")[0] if header.rpartition(":")[2].isdigit() else header
    host = host.removeprefix("[").removesuffix("]").lower()
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _build_response(error: routes.HttpError) -> web.Response:
    body = routes.build_error_body(error.status, error.reason)
    response = web.Response(body=body, status=error.status, headers=error.headers, content_type=routes.JSON)
    response.force_close()  # a body may not have been read
    return response
