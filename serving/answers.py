"""From a request to an answer: route, limits, handler, error answers, counters.

Owns the one place where an exception becomes a status. Between the body's last byte and the answer of a synchronous
handler stands no await. Knows no socket and no protocol of callers.
"""

import logging
import time
from collections.abc import Sequence

from aiohttp import web

from serving import limits as bounds
from serving import metrics as counters
from serving import routes

_LOG = logging.getLogger(__name__)


class Answers:
    """Answers the requests of one port. While `closing` is set, every answer asks the caller to connect anew."""

    def __init__(
        self,
        table: Sequence[routes.Route],
        limits: bounds.Limits,
        metrics: counters.Metrics | None,
    ) -> None:
        self._routes = routes.Table(table)
        self._limits = limits
        self._metrics = metrics  # None: probes and metrics are not counted among the requests
        self.closing = False

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """The answer; raises nothing but cancellation and the caller's hanging up."""
        try:
            route, call = await self._received(request)
        except routes.HttpError as error:
            self.rejected(error.status)
            return self._refused(error)
        began = time.perf_counter()
        reply = await self._replied(route, call)
        if self._metrics is not None:
            outcome = reply.outcome or ("ok" if reply.status < 400 else str(reply.status))
            self._metrics.answered(route.path, outcome, time.perf_counter() - began)
        answer = _response(reply.body, reply.status, reply.content_type)
        if self.closing:
            answer.force_close()  # pooled connections of the API server move to another replica
        return answer

    def rejected(self, status: int) -> None:
        """Count a request that no handler saw."""
        if self._metrics is not None:
            self._metrics.http_rejected.labels(str(status)).inc()

    async def _received(self, request: web.BaseRequest) -> tuple[routes.Route, routes.Call]:
        route, parameters = self._routes.find(request.method, request.path)
        body = b""
        if route.method != "GET":
            bounds.check(request, self._limits.max_body)
            body = await bounds.read(request, self._limits)
        query = request.query if request.query_string else routes.NOTHING
        return route, routes.Call(body, parameters, query, request.headers, request.remote or "")

    async def _replied(self, route: routes.Route, call: routes.Call) -> routes.Reply:
        try:
            outcome = route.handle(call)
            return outcome if isinstance(outcome, routes.Reply) else await outcome
        except route.malformed as error:
            return _error(400, str(error), "malformed")
        except routes.HttpError as error:
            return _error(error.status, error.reason, "")
        except Exception:  # noqa: BLE001 - whatever it was, the server answers on
            _LOG.exception("a handler failed", extra={"fields": {"path": route.path}})
            return _error(500, "internal error; the log of this server says more", "failed")

    def _refused(self, error: routes.HttpError) -> web.Response:
        answer = _response(routes.error_body(error.status, error.reason), error.status, routes.JSON)
        answer.headers.update(error.headers)
        answer.force_close()  # the body may not have been read
        return answer


def _response(body: bytes, status: int, content_type: str) -> web.Response:
    answer = web.Response(body=body, status=status)
    answer.headers["Content-Type"] = content_type
    answer.headers["Server"] = "railwright"  # else aiohttp tells its own and the interpreter's version
    return answer


def _error(status: int, reason: str, outcome: str) -> routes.Reply:
    return routes.Reply(routes.error_body(status, reason), status=status, outcome=outcome)
