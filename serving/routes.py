"""What a door offers: paths with handlers from call to reply, and what a bad call looks like.

Owns the shapes and the JSON of refusals. Knows nothing of sockets; `limits` applies these, `server` listens.
"""

from collections.abc import Awaitable, Callable, Mapping

import msgspec

JSON = "application/json"


class Call(msgspec.Struct, frozen=True):
    """One request, read whole."""

    body: bytes
    parameters: Mapping[str, str]  # of the path's {names}
    headers: Mapping[str, str]  # case-insensitive
    peer: str  # the caller's address; "" where unknown


class Reply(msgspec.Struct, frozen=True):
    """One answer."""

    body: bytes
    status: int = 200


Handle = Callable[[Call], Reply | Awaitable[Reply]]


class Route(msgspec.Struct, frozen=True):
    """A path, and the handler behind it. A handler that is no coroutine puts no await between body and answer."""

    method: str
    path: str  # aiohttp's syntax: /explain/{namespace}/{pod}
    handle: Handle
    malformed: type[Exception]  # what the handler raises for a body it cannot read: answered 400 with its text


class RefusedError(Exception):
    """A call that is not answered as asked: status and the reason shown to the caller."""

    def __init__(self, status: int, reason: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.headers = dict(headers or {})


def error_body(status: int, reason: str) -> bytes:
    """The JSON of every refusal."""
    return msgspec.json.encode({"error": {"code": status, "reason": reason}})
