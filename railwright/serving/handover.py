"""Gives the bytes of a connection to an aiohttp server, by its public protocol, and limits the time for headers.

aiohttp has limits for bodies and for idle connections, but none for the time that headers take.
"""

import asyncio
import logging
from typing import Any

from aiohttp import http, web

from railwright.serving import deadlines, heads, slow_path
from railwright.serving import limits as bounds

_LOG = logging.getLogger("railwright.serving.aiohttp")
# a client's error is no reason for a traceback
_LOG.addFilter(lambda record: not (record.exc_info and isinstance(record.exc_info[1], http.HttpProcessingError)))


def build_server(slow: slow_path.SlowPath, limits: bounds.Limits) -> web.Server:
    """Return the aiohttp server to which connections are handed over."""
    return web.Server(slow, **list_server_options(limits))


def list_server_options(limits: bounds.Limits) -> dict[str, Any]:
    """Return the options of such a server."""
    return {
        "keepalive_timeout": limits.keepalive_seconds,
        "lingering_time": limits.lingering_seconds,
        "max_line_size": heads.MAX_BYTES,  # HeadObserver has stricter limits
        "max_field_size": heads.MAX_BYTES,
        "access_log": None,
        "logger": _LOG,
        "auto_decompress": False,  # a small compressed body can expand to gigabytes
    }


class Handover:
    """A connection that aiohttp answers. `deadline` is the connection's; when it expires, call `shut_down`."""

    def __init__(self, transport: asyncio.Transport, deadline: deadlines.Deadline, limits: bounds.Limits) -> None:
        self._transport, self._deadline, self._limits = transport, deadline, limits
        self._observer: heads.HeadObserver | None = heads.HeadObserver(self._begin_head, deadline.clear)
        self._handler: web.RequestHandler
        self._shutdown: asyncio.Task[None] | None = None  # referenced until it is done

    def start(self, server: web.Server, data: bytes) -> None:
        """Let the server answer the request at the start of `data`, and all that follow. Raises heads.HeadError."""
        self._deadline.clear()
        if self._observer is not None:
            self._observer.feed(data)
        self._handler = server()
        self._handler.connection_made(self._transport)
        self._handler.data_received(data)

    def feed(self, data: bytes) -> None:
        """Give aiohttp further bytes.

        Raises heads.HeadError if the request that they begin is malformed. The connection then ends after the request
        in flight; a response would come before that of this one.
        """
        observer = self._observer
        if observer is None:
            return  # the connection ends
        is_in_body = observer.is_in_body
        try:
            observer.feed(data)
        except heads.HeadError:
            if is_in_body:
                self._handler.data_received(data)  # a part of it belongs to the request in flight
            self.shut_down()
            raise
        self._handler.data_received(data)

    def shut_down(self) -> None:
        """Let aiohttp end the request in flight, then close the connection."""
        self._observer = None
        self._deadline.clear()
        self._handler.close()
        self._shutdown = asyncio.get_running_loop().create_task(self._handler.shutdown(self._limits.body_seconds))

    def pause_writing(self) -> None:
        """Forward to aiohttp."""
        self._handler.pause_writing()

    def resume_writing(self) -> None:
        """Forward to aiohttp."""
        self._handler.resume_writing()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Forward to aiohttp."""
        self._handler.connection_lost(exc)

    def _begin_head(self) -> None:
        self._deadline.set(self._limits.header_seconds)
