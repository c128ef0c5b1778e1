"""Routes: the handler of each path, its input and its result; matching of paths and methods; the JSON of errors."""

import mmap
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

JSON = "application/json"
NOTHING: Mapping[str, str] = {}


class Reader(Protocol):
    """Reads a large body while it arrives, so that less is left to do once it is complete."""

    def read(self, body: mmap.mmap, size: int) -> None:
        """Read more: the first `size` bytes have arrived. Never raises; others wait meanwhile."""


class Call(NamedTuple):
    """A request whose body has arrived. A large body is mapped memory (`mmap`)."""

    body: bytes
    parameters: Mapping[str, str]  # of the {name} segments of the path
    query: Mapping[str, str]  # of the query string; the first of several equal names
    headers: Mapping[str, str]  # by lower-case name
    peer: str  # address of the client; "" if unknown
    reader: Reader | None = None  # that has read the body while it arrived


class Reply(NamedTuple):
    """A response. `outcome` is its label in the request counter; "" means that the status suffices."""

    body: bytes
    status: int = 200
    outcome: str = ""
    content_type: str = JSON
    headers: Mapping[str, str] = NOTHING
    stream: AsyncGenerator[bytes, None] | None = None  # parts sent after `body`, then the connection is closed


class HttpError(Exception):
    """An error response with a status and a JSON reason. Handlers may raise it too."""

    def __init__(self, status: int, reason: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(reason)
        self.status, self.reason, self.headers = status, reason, headers or {}


Handle = Callable[[Call], Reply | Awaitable[Reply]]


class Route(NamedTuple):
    """A path and its handler.

    `path` may contain `{name}` segments. `max_body` limits bodies below --max-body, with an `advice` for those that are
    larger. A route that `sheds` returns 429 if too many requests arrive at once; its clients retry after Retry-After.
    One that `requires_certificate` returns 403, with --client-ca, to clients without a certificate of that CA. A body
    of a known length above 8 MiB is read while it arrives, by a reader that `build_reader` builds for it.
    Exceptions of the types in `malformed` become status 400 with their text as the reason; any other is a bug: 500,
    and a logged traceback.
    """

    path: str
    handle: Handle
    method: str = "POST"
    malformed: tuple[type[Exception], ...] = ()
    max_body: int = 1 << 62  # bytes
    advice: str = "send a smaller one"
    sheds: bool = False
    requires_certificate: bool = False
    build_reader: Callable[[], Reader] | None = None


class Table:
    """Routes by path: one lookup for those without parameters, the others in order."""

    def __init__(self, routes: Sequence[Route]) -> None:
        """Index the routes. Raises ValueError for a duplicate one."""
        self._exact: dict[str, dict[str, Route]] = {}
        self._patterns: list[tuple[tuple[str, ...], Route]] = []
        for route in routes:
            if "{" in route.path:
                self._patterns.append((tuple(route.path.split("/")), route))
            elif self._exact.setdefault(route.path, {}).setdefault(route.method, route) is not route:
                raise ValueError(f"route {route.method} {route.path} is defined twice")

    def find(self, method: str, path: str) -> tuple[Route, Mapping[str, str]]:
        """Return the route and its path parameters; HEAD has that of GET. Raises HttpError 404, or 405 with Allow."""
        method = "GET" if method == "HEAD" else method
        exact = self._exact.get(path)
        if exact is not None and (route := exact.get(method)) is not None:
            return route, NOTHING
        allowed = set(exact or ())
        segments = path.split("/")
        for pattern, route in self._patterns:
            parameters = _match_segments(pattern, segments)
            if parameters is not None:
                if route.method == method:
                    return route, parameters
                allowed.add(route.method)
        if allowed:
            verbs = ", ".join(sorted(allowed | {"HEAD"} if "GET" in allowed else allowed))
            raise HttpError(405, f"this path accepts {verbs} only", {"Allow": verbs})
        raise HttpError(404, "no such path")


def build_error_reply(error: HttpError, outcome: str = "") -> Reply:
    """Return the reply of an error, with the JSON {"error": {"code": 400, "reason": "..."}}."""
    printable = error.reason.encode("utf-8", "replace").decode()  # UTF-8 cannot encode a lone surrogate
    body = msgspec.json.encode({"error": {"code": error.status, "reason": printable}})
    return Reply(body, error.status, outcome, headers=error.headers)


def _match_segments(pattern: Sequence[str], segments: Sequence[str]) -> Mapping[str, str] | None:
    if len(pattern) != len(segments):
        return None
    parameters: dict[str, str] = {}
    for expected, segment in zip(pattern, segments, strict=True):
        if expected.startswith("{"):
            if not segment:
                return None
            parameters[expected[1:-1]] = segment
        elif expected != segment:
            return None
    return parameters
