"""Calls the handler of a route, maps its exceptions to a status, sheds load, and counts requests.

Shared by the fast path and by aiohttp's. Knows no connection and no bytes of HTTP.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

from railwright.serving import limits as bounds
from railwright.serving import loop_budget, responses, routes
from railwright.serving import memory as memories
from railwright.serving import metrics as counters

_LOG = logging.getLogger(__name__)
IsCertified = Callable[[asyncio.BaseTransport | None], bool]
"""True for the connection of a client with an accepted certificate."""
_SEE_LOG = 'see "a handler failed" in this server\'s log, and report it'


class Dispatcher:
    """The routes of one port. While `closing` is True, every response asks the client to reconnect."""

    def __init__(
        self,
        table: Sequence[routes.Route],
        limits: bounds.Limits,
        metrics: counters.Metrics | None,
        memory: memories.Memory | None = None,
        *,
        is_certified: IsCertified = lambda _transport: True,
    ) -> None:
        self._table, self._is_certified = routes.Table(table), is_certified
        self.limits = limits
        self.memory = memory or memories.Memory()
        self.closing = False
        self._budget = loop_budget.LoopBudget(limits.loop_budget_seconds)
        self._metrics = metrics  # None: probes and metrics are not counted as requests

    def find(
        self, method: str, path: str, transport: asyncio.BaseTransport | None
    ) -> tuple[routes.Route, Mapping[str, str]]:
        """Return the route and its path parameters. Raises HttpError 403 without the required certificate, 404, 405."""
        route, parameters = self._table.find(method, path)
        if route.requires_certificate and not self._is_certified(transport):
            raise routes.HttpError(
                403, f"{route.path} requires a client certificate: see --client-ca and --client-names"
            )
        return route, parameters

    def check_load(self, route: routes.Route, now: float) -> None:
        """Raise HttpError 429 if the route sheds load and this iteration of the event loop has lasted too long."""
        if route.sheds and self._budget.is_exceeded(now):
            seconds = self.limits.retry_seconds
            reason = f"too many requests at once; try again in {seconds} s"
            raise routes.HttpError(429, reason, {"Retry-After": str(seconds)})

    def call(self, route: routes.Route, call: routes.Call) -> routes.Reply | Awaitable[routes.Reply]:
        """Return the result of the handler, or the error reply for its exception."""
        try:
            return route.handle(call)
        except Exception as error:  # noqa: BLE001 - the server must survive any error of a handler
            return _build_failure_reply(route, error)

    async def wait(self, route: routes.Route, reply: Awaitable[routes.Reply]) -> routes.Reply:
        """Return the awaited reply of a handler, or the error reply for its exception."""
        try:
            return await reply
        except Exception as error:  # noqa: BLE001 - as above
            return _build_failure_reply(route, error)

    def count(self, route: routes.Route, reply: routes.Reply, start: float) -> None:
        """Count an answered request."""
        if self._metrics is not None:
            outcome = reply.outcome or ("ok" if reply.status < 400 else str(reply.status))
            self._metrics.count_request(route.path, outcome, time.perf_counter() - start)

    def count_rejected(self, status: int) -> None:
        """Count a request that reached no handler."""
        if self._metrics is not None:
            self._metrics.http_rejected.labels(str(status)).inc()


def _build_failure_reply(route: routes.Route, error: Exception) -> routes.Reply:
    if isinstance(error, route.malformed):
        return responses.build_error_reply(routes.HttpError(400, str(error)), "malformed")
    if isinstance(error, routes.HttpError):
        return responses.build_error_reply(error)
    _LOG.error("a handler failed", exc_info=error, extra={"fields": {"path": route.path}})
    failure = routes.HttpError(500, f"{route.path} failed because of a bug in railwright; {_SEE_LOG}")
    return responses.build_error_reply(failure, "failed")
