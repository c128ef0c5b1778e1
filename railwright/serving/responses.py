"""Responses as bytes, and the replies of errors."""

import email.utils
import functools
import http
import time

from railwright.serving import routes

SERVER = "railwright"
_CLOSE = "Connection: close\r\n"
_REASONS = {status.value: status.phrase for status in http.HTTPStatus}


def serialize(reply: routes.Reply, *, close: bool) -> bytes:
    """Return the HTTP/1.1 response. `close` tells the client that the connection ends after it."""
    extra = "".join([f"{name}: {value}\r\n" for name, value in reply.headers.items()]) if reply.headers else ""
    head = (
        f"HTTP/1.1 {reply.status} {_REASONS[reply.status]}\r\nContent-Type: {reply.content_type}\r\n"
        f"Server: {SERVER}\r\nDate: {_format_date(int(time.time()))}\r\nContent-Length: {len(reply.body)}\r\n"
        f"{extra}{_CLOSE if close else ''}\r\n"
    )
    return head.encode() + reply.body


def build_error_reply(error: routes.HttpError, outcome: str = "") -> routes.Reply:
    """Return the reply of an error."""
    body = routes.build_error_body(error.status, error.reason)
    return routes.Reply(body, status=error.status, outcome=outcome, headers=error.headers)


@functools.lru_cache(maxsize=1)
def _format_date(second: int) -> str:
    return email.utils.formatdate(second, usegmt=True)
