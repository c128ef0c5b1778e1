"""Which handler answers which path: routes, what a handler is given, and what it gives back.

Owns the matching of paths and methods and the JSON of errors. Knows no socket and no body limit; a handler knows no
HTTP beyond a status.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

JSON = "application/json"
NOTHING: Mapping[str, str] = {}


class Call(NamedTuple):
    """One request, read whole."""

    body: bytes
    parameters: Mapping[str, str]  # of the path's {name} segments
    query: Mapping[str, str]  # of the query string; the first of several equal names
    headers: Mapping[str, str]  # names in any case
    peer: str  # the caller's address; "" where unknown


class Reply(NamedTuple):
    """One answer. `outcome` is what the request counter calls it; "" means that the status tells enough."""

    body: bytes
    status: int = 200
    outcome: str = ""
    content_type: str = JSON
    headers: Mapping[str, str] = NOTHING


class HttpError(Exception):
    """A request that gets an error status and a JSON reason. Handlers may raise it too."""

    def __init__(self, status: int, reason: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(reason)
        self.status, self.reason, self.headers = status, reason, headers or {}


Handle = Callable[[Call], Reply | Awaitable[Reply]]


class Route(NamedTuple):
    """A path and the handler behind it.

    `path` may hold `{name}` segments. An `immediate` handler returns a Reply and never an awaitable: nothing waits
    between its body and its answer, and its requests take the short way.
    A route that `sheds` answers 429 where too many requests came at one moment; its callers try again at Retry-After.
    Exceptions of the types in `malformed` mean status 400 with their text as the reason; any other is our own
    mistake: 500, and one logged traceback.
    """

    path: str
    handle: Handle
    method: str = "POST"
    malformed: tuple[type[Exception], ...] = ()
    immediate: bool = False
    sheds: bool = False


class Table:
    """Routes by path: those without parameters by one look-up, the others in their order."""

    def __init__(self, routes: Sequence[Route]) -> None:
        """Raises ValueError for a route given twice."""
        self._exact: dict[str, dict[str, Route]] = {}
        self._patterns: list[tuple[tuple[str, ...], Route]] = []
        for route in routes:
            if "{" in route.path:
                self._patterns.append((tuple(route.path.split("/")), route))
            elif self._exact.setdefault(route.path, {}).setdefault(route.method, route) is not route:
                raise ValueError(f"route {route.method} {route.path} is given twice")

    def find(self, method: str, path: str) -> tuple[Route, Mapping[str, str]]:
        """The route and its path parameters. Raises HttpError 404, or 405 with Allow."""
        exact = self._exact.get(path)
        if exact is not None and (route := exact.get(method)) is not None:
            return route, NOTHING
        allowed = set(exact or ())
        segments = path.split("/")
        for pattern, route in self._patterns:
            parameters = _matched(pattern, segments)
            if parameters is not None:
                if route.method == method:
                    return route, parameters
                allowed.add(route.method)
        if allowed:
            verbs = ", ".join(sorted(allowed))
            raise HttpError(405, f"this path takes {verbs} only", {"Allow": verbs})
        raise HttpError(404, "no such path")


def error_body(status: int, reason: str) -> bytes:
    """The JSON of every error: {"error": {"code": 400, "reason": "..."}}."""
    printable = reason.encode("utf-8", "replace").decode()  # a lone surrogate cannot stand in UTF-8
    return msgspec.json.encode({"error": {"code": status, "reason": printable}})


def _matched(pattern: Sequence[str], segments: Sequence[str]) -> Mapping[str, str] | None:
    if len(pattern) != len(segments):
        return None
    parameters: dict[str, str] = {}
    for expected, found in zip(pattern, segments, strict=True):
        if expected.startswith("{"):
            if not found:
                return None
            parameters[expected[1:-1]] = found
        elif expected != found:
            return None
    return parameters
