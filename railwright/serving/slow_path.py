"""Answers requests that aiohttp has parsed: any that is not plain."""

import time

from aiohttp import web

from railwright.serving import dispatch, responses, routes
from railwright.serving import limits as bounds


class SlowPath:
    """The handler of an aiohttp server."""

    def __init__(self, dispatcher: dispatch.Dispatcher) -> None:
        self._dispatcher = dispatcher

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """Return the response. Raises only cancellation."""
        dispatcher = self._dispatcher
        try:
            route, call = await self._receive(request)
            start = time.perf_counter()
            dispatcher.check_load(route, start)
        except routes.HttpError as error:
            dispatcher.count_rejected(error.status)
            return _build_response(responses.build_error_reply(error), close=True)  # the body may be unread
        except ConnectionError:
            return web.Response()  # the client has disconnected; aiohttp cannot send it and ends the connection
        reply = dispatcher.call(route, call)
        if not isinstance(reply, routes.Reply):
            reply = await dispatcher.wait(route, reply)
        dispatcher.count(route, reply, start)
        return _build_response(reply, close=dispatcher.closing)

    async def _receive(self, request: web.BaseRequest) -> tuple[routes.Route, routes.Call]:
        dispatcher = self._dispatcher
        route, parameters = dispatcher.find(request.method, request.path, request.transport)
        body = b""
        if route.method != "GET":
            body = await bounds.read(request, route, dispatcher.limits, dispatcher.memory)
        query = request.query if request.query_string else routes.NOTHING
        return route, routes.Call(body, parameters, query, request.headers, request.remote or "")


def _build_response(reply: routes.Reply, *, close: bool) -> web.Response:
    response = web.Response(body=reply.body, status=reply.status)
    response.headers["Content-Type"] = reply.content_type
    response.headers["Server"] = responses.SERVER  # otherwise aiohttp sends its own version and Python's
    response.headers.update(reply.headers)
    if close:
        response.force_close()
    return response
