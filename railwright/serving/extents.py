"""Finds the end of a request in the received bytes, and whether a part of the next request has arrived already.

The parser buffers such a part internally, so nothing else shows that the next request has started.
"""

from aiohttp import http, streams

_HEADERS_END = b"\r\n\r\n"


class Extent:
    """The current request of a connection, from its first byte. Chunks are measured after they were parsed."""

    def __init__(self) -> None:
        self._message: http.RawRequestMessage | None = None
        self._payload: streams.StreamReader | None = None
        # the last bytes before the current chunk, which may contain the start of the end of the headers
        self._before = b""
        self.exceeded = False  # True if a part of another request has arrived

    def reset(self) -> None:
        """Start over: the next byte is the first of a request."""
        self._message = self._payload = None
        self._before = b""
        self.exceeded = False

    def body_size(self) -> int | None:
        """Return the bytes of the body so far, for `add`; None before the end of the headers and after the body."""
        return None if self._payload is None or self._payload.is_eof() else self._payload.total_bytes

    def add(
        self, chunk: bytes, size: int | None, messages: int, newest: tuple[object, streams.StreamReader] | None
    ) -> None:
        """Record a parsed chunk.

        `size` is the value of `body_size` before the chunk, `messages` the number of requests whose headers ended in
        it, and `newest` the last of these with its body.
        """
        if messages > 1 or (self._message is not None and (messages or size is None)):
            self.exceeded = True
        elif messages and newest is not None and isinstance(newest[0], http.RawRequestMessage):
            self._message, self._payload = newest[0], newest[1]
            self.exceeded = self._payload.is_eof() and self._ends_before(self._before + chunk)
        elif self._message is not None and self._payload is not None and size is not None and self._payload.is_eof():
            length = self._length(self._message)
            joined = self._before + chunk
            self.exceeded = len(chunk) > length - size if length else not joined.endswith(_HEADERS_END)
        self._before = (self._before + chunk)[-len(_HEADERS_END) + 1 :]

    def _ends_before(self, data: bytes) -> bool:
        """True if the request whose headers end in `data` is followed by more bytes."""
        length = self._length(self._message) if self._message is not None else 0
        if length:
            return len(data) > data.find(_HEADERS_END) + len(_HEADERS_END) + length
        return not data.endswith(_HEADERS_END)  # the end of the headers, of a last chunk, or of its trailers

    @staticmethod
    def _length(message: http.RawRequestMessage) -> int:
        """Return Content-Length, or 0 also for a chunked body, whose end is visible."""
        return 0 if message.chunked else int(message.headers.get("Content-Length", "0"))
