"""Answers plain requests without aiohttp: no request or response object, and no task unless the handler waits.

A plain request is a POST of JSON with a Content-Length, as API servers and schedulers send it. aiohttp answers the
others.
"""

import asyncio
import functools
import time
import urllib.parse
from collections.abc import Awaitable, Mapping
from typing import NamedTuple

from railwright.serving import dispatch, heads, responses, routes

_KEEP_ALIVE = b"keep-alive"
_UNUSUAL = frozenset({b"transfer-encoding", b"content-encoding", b"expect", b"upgrade"})


class Match(NamedTuple):
    """A plain request whose body may still be incomplete."""

    route: routes.Route
    parameters: Mapping[str, str]
    query: str
    fields: Mapping[bytes, bytes]
    length: int  # of the body


class FastPath:
    """The plain requests of one port."""

    def __init__(self, dispatcher: dispatch.Dispatcher) -> None:
        self._dispatcher = dispatcher

    @property
    def closing(self) -> bool:
        """True if the connection must be closed after a response."""
        return self._dispatcher.closing

    def match(self, head: heads.Head, transport: asyncio.BaseTransport) -> Match | None:
        """Return the request if it is plain and the client may use its route; None if aiohttp must answer it."""
        fields = head.fields
        if head.method != b"POST" or head.version != "1.1" or head.has_repeated_fields or not _has_plain_fields(fields):
            return None
        length = fields.get(b"content-length", b"")
        if not length.isdigit() or not head.target.isascii():
            return None
        path, _, query = head.target.decode().partition("?")
        if "%" in path or "#" in query:  # aiohttp decodes and removes them
            return None
        try:
            route, parameters = self._dispatcher.find("POST", path, transport)
        except routes.HttpError:
            return None
        if int(length) > min(self._dispatcher.limits.max_body, route.max_body):
            return None
        return Match(route, parameters, query, fields, int(length))

    def reserve(self, length: int) -> bool:
        """Reserve memory for a body that has not arrived completely. Return False if there is not enough."""
        if not self._dispatcher.memory.has_room(length):
            return False
        self._dispatcher.memory.reserved_bytes += length
        return True

    def release(self, length: int) -> None:
        """Release reserved memory."""
        self._dispatcher.memory.reserved_bytes -= length

    def answer(self, match: Match, body: bytes, peer: str) -> bytes | Awaitable[bytes]:
        """Return the complete response, or an awaitable of it if the handler waits."""
        start = time.perf_counter()
        try:
            self._dispatcher.check_load(match.route, start)
        except routes.HttpError as error:
            self._dispatcher.count_rejected(error.status)
            return responses.serialize(responses.build_error_reply(error), close=self.closing)
        query = _parse_query(match.query)
        call = routes.Call(body, match.parameters, query, heads.Headers(match.fields), peer)
        reply = self._dispatcher.call(match.route, call)
        if isinstance(reply, routes.Reply):
            self._dispatcher.count(match.route, reply, start)
            return responses.serialize(reply, close=self.closing)
        if match.route.immediate:
            raise TypeError(f"the handler of {match.route.path} is declared immediate but returned an awaitable")
        return self._answer_later(match.route, reply, start)

    async def _answer_later(self, route: routes.Route, reply: Awaitable[routes.Reply], start: float) -> bytes:
        result = await self._dispatcher.wait(route, reply)
        self._dispatcher.count(route, result, start)
        return responses.serialize(result, close=self.closing)


def _has_plain_fields(fields: Mapping[bytes, bytes]) -> bool:
    return (
        fields.get(b"content-type") == b"application/json"
        and _UNUSUAL.isdisjoint(fields)
        and fields.get(b"connection", _KEEP_ALIVE).lower() == _KEEP_ALIVE
    )


@functools.lru_cache(maxsize=64)  # few distinct values: an API server sends its timeout
def _parse_query(text: str) -> Mapping[str, str]:
    """Return the query parameters; the first of several equal names wins, as in aiohttp."""
    return dict(reversed(urllib.parse.parse_qsl(text, keep_blank_values=True))) if text else routes.NOTHING
