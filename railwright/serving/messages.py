"""HTTP/1.1 messages: parses the heads of requests with httptools, receives bodies, and writes responses.

A body that has not arrived completely is of a known length, received in place, or comes in chunks.
"""

import email.utils
import functools
import http
import mmap
import re
import time
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import httptools

from railwright.serving import routes

MAX_BYTES = 64 * 1024  # of a head; API servers and schedulers send a few hundred
END = b"\r\n\r\n"
SERVER = "railwright"
_CLOSE = "Connection: close\r\n"
_MAX_SHORT = 1024  # bytes of a head that is kept with its parts; 128 of them take 2 MiB at most
_MAX_TARGET = 8 * 1024  # bytes
_MAX_FIELDS = 128
_SINGLE_FIELDS = frozenset({"content-length", "content-type", "expect", "host", "transfer-encoding"})
_CLOSE_OPTION = re.compile(r"(?:^|,)[ \t]*close[ \t]*(?:,|$)", re.IGNORECASE)
_LENGTH = re.compile(r"[0-9]{1,18}")
SMALL = 64 * 1024  # bytes; smaller bodies are plain bytes, allocated at once
_READ_WHILE_ARRIVING = 8 << 20  # bytes; smaller bodies are read at once, which takes less CPU time
_CHUNKED_HEAD = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
_MAX_FRAMING = 16  # bytes of chunk sizes, extensions and trailers for each byte of content; chunks of one byte have 5
_REASONS = {status.value: status.phrase for status in http.HTTPStatus}


class HeadError(ValueError):
    """The bytes are not the head of an HTTP/1.1 request. The message contains none of them."""


class Head(NamedTuple):
    """The head of a request."""

    method: str
    path: str  # percent-decoded
    query: str
    headers: Mapping[str, str]  # by lower-case name; several fields of one name are joined by ", "
    length: int | None  # of the body in bytes; None if it comes in chunks
    closes: bool  # the client wants no further response on this connection


def parse(data: bytes) -> Head:
    """Parse a head, including its empty line. Raises HeadError.

    Only one length of the body follows from a head that is accepted, for us and for any proxy: there is either one
    Content-Length or the one transfer coding `chunked`, in lines that end with CRLF.
    """
    if len(data) > _MAX_SHORT or b"authorization:" in data.lower():  # credentials are not kept
        return _parse(data)
    return _parse_short(data)


def _parse(data: bytes) -> Head:
    parts = _Parts()
    parser = httptools.HttpRequestParser(parts)
    try:
        parser.feed_data(data)
    except httptools.HttpParserUpgrade:
        pass  # RFC 9110 7.8: a server may ignore Upgrade
    except httptools.HttpParserError as error:
        raise HeadError(str(error)) from None
    if not parts.is_complete:
        raise HeadError("the headers do not end at the first empty line")
    version, headers = parser.get_http_version(), _join_fields(parts.fields)
    if version == "1.0":
        headers.pop("expect", None)  # RFC 9110 10.1.1: such clients know no 100
    elif version != "1.1":
        raise HeadError("the version is neither HTTP/1.0 nor HTTP/1.1")
    elif "host" not in headers:
        raise HeadError("the Host field is missing")
    path, query = _split_target(parts.target)
    closes = version == "1.0" or ("connection" in headers and _CLOSE_OPTION.search(headers["connection"]) is not None)
    return Head(parser.get_method().decode(), path, query, headers, _read_length(headers, version), closes)


_parse_short = functools.lru_cache(maxsize=128)(_parse)  # heads of an API server differ in the length of the body only


class _Parts:
    """Receives the parts of a head from httptools."""

    def __init__(self) -> None:
        self.target = b""
        self.fields: list[tuple[bytes, bytes]] = []
        self.is_complete = False

    def on_url(self, url: bytes) -> None:
        self.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.fields.append((name, value))

    def on_headers_complete(self) -> None:
        self.is_complete = True


def _join_fields(fields: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    texts = [(name.lower().decode("latin-1"), value.rstrip(b" \t").decode("latin-1")) for name, value in fields]
    headers = dict(texts)
    if len(fields) > _MAX_FIELDS:
        raise HeadError(f"there are more than {_MAX_FIELDS} header fields")
    if len(headers) < len(fields):
        for name in headers:
            values = [text for key, text in texts if key == name]
            if len(values) > 1 and name in _SINGLE_FIELDS:
                raise HeadError("a field is repeated that may be present once")
            headers[name] = ", ".join(values)
    return headers


def _split_target(target: bytes) -> tuple[str, str]:
    """Return the path and the query of a target: of a path, or of a URL as clients send it to proxies."""
    if len(target) > _MAX_TARGET or not target.isascii():
        raise HeadError(f"the target is longer than {_MAX_TARGET} bytes, or not ASCII")
    text = target.decode().partition("#")[0]
    if not text.startswith("/"):
        scheme, _, rest = text.partition("://")
        if scheme.lower() not in {"http", "https"} or not rest:
            raise HeadError("the target is neither a path nor a URL")
        text = f"/{rest.partition('/')[2]}"
    path, _, query = text.partition("?")
    return urllib.parse.unquote(path) if "%" in path else path, query


def _read_length(headers: Mapping[str, str], version: str) -> int | None:
    coding, length = headers.get("transfer-encoding"), headers.get("content-length", "0")
    if coding is None and _LENGTH.fullmatch(length):
        return int(length)
    if coding is None:
        raise HeadError("Content-Length is not a number of bytes")
    if coding.lower() != "chunked" or version == "1.0" or "content-length" in headers:
        raise HeadError("the only transfer coding is chunked, in HTTP/1.1 and without Content-Length")
    return None


@functools.lru_cache(maxsize=64)  # few distinct values: an API server sends its timeout
def parse_query(text: str) -> Mapping[str, str]:
    """Return the query parameters; the first of several equal names wins."""
    return dict(reversed(urllib.parse.parse_qsl(text, keep_blank_values=True))) if text else routes.NOTHING


def serialize(reply: routes.Reply, headers: Mapping[str, str], *, close: bool, head_only: bool = False) -> bytes:
    """Return the response with further `headers`, without the parts of a stream.

    `close` tells the client that the connection ends after it. `head_only`: the request is HEAD.
    """
    has_length = reply.stream is None and reply.status != http.HTTPStatus.NOT_MODIFIED
    length = f"Content-Length: {len(reply.body)}\r\n" if has_length else ""
    extra = "".join([f"{name}: {value}\r\n" for name, value in {**headers, **reply.headers}.items()])
    head = (
        f"HTTP/1.1 {reply.status} {_REASONS[reply.status]}\r\nContent-Type: {reply.content_type}\r\n"
        f"Server: {SERVER}\r\nDate: {_format_date(int(time.time()))}\r\n{length}{extra}{_CLOSE if close else ''}\r\n"
    )
    return head.encode() if head_only else head.encode() + reply.body


@functools.lru_cache(maxsize=1)
def _format_date(second: int) -> str:
    return email.utils.formatdate(second, usegmt=True)


# --- bodies -----------------------------------------------------------------------------------------------


class BodyError(ValueError):
    """The bytes are not the announced body."""


class SizedBody:
    """A body of a known length. Its bytes are received directly into its buffer, so that none is copied."""

    def __init__(self, length: int, beginning: bytes, build_reader: Callable[[], routes.Reader] | None = None) -> None:
        """`beginning` are the bytes received so far. Raises OSError if there is no memory."""
        self._body = bytearray(length) if length <= SMALL else _map(length)
        self._view = memoryview(self._body)
        self._view[: len(beginning)] = beginning
        self.size, self.is_complete = len(beginning), False
        self.reader = build_reader() if build_reader is not None and length > _READ_WHILE_ARRIVING else None

    def get_buffer(self, inbox: memoryview) -> memoryview:
        """Return the unfilled part of the buffer, so that no byte of the next request is read."""
        del inbox
        return self._view[self.size :]

    def receive(self, data: memoryview) -> None:
        """Count received bytes."""
        self.size += len(data)
        self.is_complete = self.size == len(self._body)
        if self.reader is not None and isinstance(self._body, mmap.mmap):
            self.reader.read(self._body, self.size)

    def get_content(self) -> bytes | mmap.mmap:
        """Return the body; a large one is mapped memory, which can be decoded and searched as bytes can."""
        return bytes(self._body) if isinstance(self._body, bytearray) else self._body


def _map(length: int) -> mmap.mmap:
    """Return memory of its own: pages that a client announces and does not send cost nothing."""
    buffer = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        buffer.madvise(mmap.MADV_HUGEPAGE)  # page faults of 4 KiB cost as much as the copy
    return buffer


class ChunkedBody:
    """A body in chunks. Bytes after its end are dropped, so that its connection must be closed."""

    reader = None

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
