"""Bodies that have not arrived completely: of a known length, received in place, or in chunks."""

import mmap

import httptools

SMALL = 64 * 1024  # bytes; smaller bodies are plain bytes, allocated at once
_CHUNKED_HEAD = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
_MAX_FRAMING = 16  # bytes of chunk sizes, extensions and trailers for each byte of content; chunks of one byte have 5


class BodyError(ValueError):
    """The bytes are not the announced body."""


class SizedBody:
    """A body of a known length. Its bytes are received directly into its buffer, so that none is copied."""

    def __init__(self, length: int, beginning: bytes) -> None:
        """`beginning` are the bytes received so far. Raises OSError if there is no memory."""
        self._body = memoryview(bytearray(length) if length <= SMALL else _map(length))
        self._body[: len(beginning)] = beginning
        self.size, self.is_complete = len(beginning), False

    def get_buffer(self, inbox: memoryview) -> memoryview:
        """Return the unfilled part of the buffer, so that no byte of the next request is read."""
        del inbox
        return self._body[self.size :]

    def receive(self, data: memoryview) -> None:
        """Count received bytes."""
        self.size += len(data)
        self.is_complete = self.size == len(self._body)

    def get_content(self) -> bytes | memoryview:
        """Return the body; a large one is a view, which msgspec reads as it does bytes."""
        return bytes(self._body) if len(self._body) <= SMALL else self._body


def _map(length: int) -> mmap.mmap:
    """Return memory of its own: pages that a client announces and does not send cost nothing."""
    buffer = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        buffer.madvise(mmap.MADV_HUGEPAGE)  # page faults of 4 KiB cost as much as the copy
    return buffer


class ChunkedBody:
    """A body in chunks. Bytes after its end are dropped, so that its connection must be closed."""

    def __init__(self) -> None:
        self._received = 0
        self._content = _Content()
        self._parser = httptools.HttpRequestParser(self._content)
        self._parser.feed_data(_CHUNKED_HEAD)

    @property
    def size(self) -> int:
        """Bytes of content so far."""
        return self._content.size

    @property
    def is_complete(self) -> bool:
        """True once the last chunk has arrived."""
        return self._content.is_complete

    def get_buffer(self, inbox: memoryview) -> memoryview:
        """Return the inbox, because the bytes are parsed."""
        return inbox

    def receive(self, data: memoryview) -> None:
        """Decode received bytes. Raises BodyError."""
        self._received += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            if not self.is_complete:
                raise BodyError(str(error)) from None
        if self._received > _MAX_FRAMING * self.size + SMALL:
            raise BodyError("it has more chunk sizes, extensions and trailers than content")

    def get_content(self) -> bytes:
        """Return the decoded body."""
        return b"".join(self._content.parts)


class _Content:
    """Receives content from httptools. No cycle with the parser: its megabytes would wait for a garbage collection."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.size = 0
        self.is_complete = False

    def on_body(self, data: bytes) -> None:
        if not self.is_complete:
            self.parts.append(data)
            self.size += len(data)

    def on_message_complete(self) -> None:
        self.is_complete = True
