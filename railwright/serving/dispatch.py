"""Calls the handler of a route, maps its exceptions to a status, sheds load, and counts requests.

Knows no connection and no bytes of HTTP.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

from railwright.serving import limits, messages, routes
from railwright.serving import metrics as counters

_LOG = logging.getLogger(__name__)
IsCertified = Callable[[asyncio.BaseTransport | None], bool]
"""True for the connection of a client with an accepted certificate."""
_SEE_LOG = 'see "a handler failed" in this server\'s log, and report it'


class Dispatcher:
    """The routes of one port. While `closing` is True, every response asks the client to reconnect."""

    def __init__(  # noqa: PLR0913 - the independent parts of a port, most by name
        self,
        table: Sequence[routes.Route],
        bounds: limits.Limits,
        metrics: counters.Metrics | None,
        memory: limits.Memory | None = None,
        *,
        is_certified: IsCertified = lambda _transport: True,
        headers: Mapping[str, str] = routes.NOTHING,
    ) -> None:
        """`headers` are those of every response. Without `metrics`, requests are not counted."""
        self._table, self._is_certified = routes.Table(table), is_certified
        self.limits, self.headers = bounds, headers
        self.memory = memory or limits.Memory()
        self.closing = False
        self._budget = _LoopBudget(bounds.loop_budget_seconds)
        self._metrics = metrics

    def accept(self, head: messages.Head, transport: asyncio.BaseTransport) -> tuple[routes.Route, Mapping[str, str]]:
        """Return the route of a request and its path parameters.

        Raises HttpError for one that is rejected before its body is read: 403, 404, 405, 413, 415, 417.
        """
        route, parameters = self._table.find(head.method, head.path)
        if route.requires_certificate and not self._is_certified(transport):
            raise routes.HttpError(
                403, f"{route.path} requires a client certificate: see --client-ca and --client-names"
            )
        if route.method != "GET":
            _check_media(head.headers)
            self.check_size(head.length or 0, route)
        return route, parameters

    def check_size(self, size: int, route: routes.Route) -> None:
        """Raise HttpError 413 for a body of so many bytes that is too long for the route, 429 without memory for it.

        The API server retries after Retry-After within its own timeout.
        """
        if size > min(route.max_body, self.limits.max_body):
            if self.limits.max_body <= route.max_body:
                reason = f"the body is larger than {self.limits.max_body} bytes, the limit set by --max-body"
            else:
                reason = f"the body is larger than {route.max_body} bytes, the limit of {route.path}: {route.advice}"
            raise routes.HttpError(413, reason)
        if not self.memory.has_room(size):
            reason = "not enough memory to buffer this request: retry, or raise the container's memory limit"
            raise routes.HttpError(429, reason, {"Retry-After": "1"})

    def answer(self, route: routes.Route, call: routes.Call) -> routes.Reply | Awaitable[routes.Reply]:
        """Return the reply of the handler, or of an error, counted; an awaitable of it if the handler waits."""
        start = time.perf_counter()
        if route.sheds and self._budget.is_exceeded(start):
            seconds = self.limits.retry_seconds
            reason = f"too many requests at once; try again in {seconds} s"
            return self.reject(routes.HttpError(429, reason, {"Retry-After": str(seconds)}))
        try:
            reply = route.handle(call)
        except Exception as error:  # noqa: BLE001 - the server must survive any error of a handler
            reply = _build_failure_reply(route, error)
        return self._count(route, reply, start) if isinstance(reply, routes.Reply) else self._wait(route, reply, start)

    def reject(self, error: routes.HttpError) -> routes.Reply:
        """Return the reply to a request that reaches no handler, and count it."""
        self.count_rejected(error.status)
        return routes.build_error_reply(error)

    def count_rejected(self, status: int) -> None:
        """Count a request that reached no handler."""
        if self._metrics is not None:
            self._metrics.http_rejected.labels(str(status)).inc()

    async def _wait(self, route: routes.Route, awaitable: Awaitable[routes.Reply], start: float) -> routes.Reply:
        try:
            reply = await awaitable
        except Exception as error:  # noqa: BLE001 - as above
            reply = _build_failure_reply(route, error)
        return self._count(route, reply, start)

    def _count(self, route: routes.Route, reply: routes.Reply, start: float) -> routes.Reply:
        if self._metrics is not None:
            outcome = reply.outcome or ("ok" if reply.status < 400 else str(reply.status))
            self._metrics.count_request(route.path, outcome, time.perf_counter() - start)
        return reply


class _LoopBudget:
    """Time budget of one iteration of the event loop, so that the last of many requests are not answered too late.

    A connection has one request at a time and an iteration handles all that are ready, so a request waits at most for
    the iteration in which it arrived and the one that answers it.
    """

    def __init__(self, max_seconds: float) -> None:
        self._max_seconds = max_seconds
        self._start: float | None = None

    def is_exceeded(self, now: float) -> bool:
        """True if the iteration has lasted too long for the requests that are still to be answered in it."""
        if self._start is None:
            self._start = now
            asyncio.get_running_loop().call_soon(self._reset)  # runs before later events
            return False
        return now - self._start > self._max_seconds

    def _reset(self) -> None:
        self._start = None


def _check_media(headers: Mapping[str, str]) -> None:
    if headers.get("content-encoding", "identity").lower() not in {"identity", ""}:
        raise routes.HttpError(415, "compressed bodies are not accepted: send the body without Content-Encoding")
    if headers.get("content-type", "").partition(";")[0].strip().lower() != routes.JSON:
        raise routes.HttpError(415, f"expected Content-Type: {routes.JSON}")
    if headers.get("expect", "100-continue").lower() != "100-continue":
        raise routes.HttpError(417, "only Expect: 100-continue is supported")


def _build_failure_reply(route: routes.Route, error: Exception) -> routes.Reply:
    if isinstance(error, route.malformed):
        return routes.build_error_reply(routes.HttpError(400, str(error)), "malformed")
    if isinstance(error, routes.HttpError):
        return routes.build_error_reply(error)
    _LOG.error("a handler failed", exc_info=error, extra={"fields": {"path": route.path}})
    failure = routes.HttpError(500, f"{route.path} failed because of a bug in railwright; {_SEE_LOG}")
    return routes.build_error_reply(failure, "failed")
