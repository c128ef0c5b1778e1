"""Where a request ends in the bytes that bring it: whether a connection has sent a part of the next one already.

The parser keeps such a part to itself, so nobody else would know that the next request has begun. Knows no socket.
"""

from aiohttp import http, streams

_HEADERS_END = b"\r\n\r\n"


class Extent:
    """The request that a connection brings, from its first byte on. Its chunks are measured after they were parsed."""

    def __init__(self) -> None:
        self._message: http.RawRequestMessage | None = None
        self._payload: streams.StreamReader | None = None
        self._before = b""  # the last bytes of the chunks before, in which the headers may have begun to end
        self.exceeded = False  # a part of another request has come

    def reset(self) -> None:
        """Begin anew: the next byte is the first one of a request."""
        self._message = self._payload = None
        self._before = b""
        self.exceeded = False

    def body_size(self) -> int | None:
        """Bytes of the body so far, to be given to `add`; None where the headers have not ended or the body has."""
        return None if self._payload is None or self._payload.is_eof() else self._payload.total_bytes

    def add(
        self, chunk: bytes, size: int | None, messages: int, newest: tuple[object, streams.StreamReader] | None
    ) -> None:
        """Take note of a parsed chunk.

        `size` is what `body_size` was before, `messages` how many requests' headers ended in the chunk, and `newest`
        the last of these with its body.
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
        """True where the request, whose headers end in `data`, ends before it."""
        length = self._length(self._message) if self._message is not None else 0
        if length:
            return len(data) > data.find(_HEADERS_END) + len(_HEADERS_END) + length
        return not data.endswith(_HEADERS_END)  # of the headers, of a last chunk, or of its trailers

    @staticmethod
    def _length(message: http.RawRequestMessage) -> int:
        """Content-Length; 0 also for a chunked body, whose end shows."""
        return 0 if message.chunked else int(message.headers.get("Content-Length", "0"))
