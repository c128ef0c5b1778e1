"""Parses the head of an HTTP/1.1 request, its request line and header fields, with httptools, and limits its size."""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import httptools

MAX_BYTES = 64 * 1024  # of a head; API servers and schedulers send a few hundred
_MAX_LINE = 8190  # bytes of a target or of a field; aiohttp's limits, which apply to the requests it handles
_MAX_FIELDS = 128
_MAX_CHUNK = 256 * 1024  # bytes that the event loops deliver at once
# RFC 9110; aiohttp's list
_SINGLE_FIELDS = (
    *(b"content-length", b"content-location", b"content-range", b"content-type", b"etag", b"host", b"max-forwards"),
    *(b"server", b"transfer-encoding", b"user-agent"),
)
_ANY_RESOURCE = (b"OPTIONS", b"*")
END = b"\r\n\r\n"


class HeadError(ValueError):
    """The bytes are not the head of an HTTP/1.1 request. The message contains none of them."""


class Head(NamedTuple):
    """A complete head."""

    method: bytes
    version: str
    target: bytes
    fields: Mapping[bytes, bytes]  # by lower-case name; the last of equal names
    has_repeated_fields: bool


class HeadParser:
    """Parses the heads of the requests of one connection, one after the other."""

    def __init__(self) -> None:
        self._parser = httptools.HttpRequestParser(self)
        self._target = b""
        self._fields: list[tuple[bytes, bytes]] = []

    def feed(self, data: bytes) -> None:
        """Parse the next bytes, up to the end of a head or of a body. Raises HeadError."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # the head is complete; whoever handles the request refuses the upgrade
        except httptools.HttpParserError as error:
            raise HeadError(str(error)) from None

    def build_head(self, size: int) -> Head:
        """Return the complete head; `size` is its length. Raises HeadError if it is too large or contradicts itself."""
        if size > _MAX_LINE:
            self._check_size()
        fields = {name.lower(): value.rstrip(b" \t") for name, value in self._fields}
        head = Head(
            self._parser.get_method(),
            self._parser.get_http_version(),
            self._target,
            fields,
            len(fields) != len(self._fields),
        )
        self._check(head)
        return head

    def _check(self, head: Head) -> None:
        """Raise HeadError for what httptools accepts and aiohttp does not, so that every rejection is ours."""
        if head.version not in {"1.0", "1.1"}:
            raise HeadError("the version is neither HTTP/1.0 nor HTTP/1.1")
        if b"host" not in head.fields and head.version == "1.1":
            raise HeadError("the Host field is missing")
        if head.has_repeated_fields:
            names = [name.lower() for name, _ in self._fields]
            if any(names.count(name) > 1 for name in _SINGLE_FIELDS):
                raise HeadError("a field is repeated that may be present once")
        if not head.target.startswith((b"/", b"http://", b"https://")) and (head.method, head.target) != _ANY_RESOURCE:
            raise HeadError("the target is neither a path nor a URL")

    def _check_size(self) -> None:
        longest = max(len(self._target), *(len(name) + len(value) for name, value in self._fields))
        if longest > _MAX_LINE or len(self._fields) > _MAX_FIELDS:
            raise HeadError(f"a header field is longer than {_MAX_LINE} bytes, or there are more than {_MAX_FIELDS}")

    # --- called by httptools ------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Forget the previous request."""
        self._target, self._fields = b"", []

    def on_url(self, url: bytes) -> None:
        """Append a part of the target."""
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Append a field."""
        self._fields.append((name, value))


class HeadObserver(HeadParser):
    """Reports when each head of a connection begins and ends.

    `is_in_body` is True from the end of a head to the end of its request.
    """

    def __init__(self, begin: Callable[[], None], end: Callable[[], None]) -> None:
        super().__init__()
        self.is_in_body = False
        self._begin, self._end = begin, end
        self._size: int | None = None  # of an incomplete head, with what came before it in the same chunk

    def feed(self, data: bytes) -> None:
        """Observe the next bytes. Raises HeadError."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:  # aiohttp refuses it, so that another request follows
            self._parser = httptools.HttpRequestParser(self)
            self.feed(data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            raise HeadError(str(error)) from None
        if self._size is not None:
            self._size += len(data)
            if self._size > _MAX_CHUNK + MAX_BYTES:
                raise HeadError(f"the headers are longer than {MAX_BYTES} bytes")

    # --- called by httptools ------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Report the beginning of a head."""
        super().on_message_begin()
        self._size = 0
        self._begin()

    def on_headers_complete(self) -> None:
        """Report the end of a head. Raises HeadError."""
        self.build_head(MAX_BYTES)
        self._size, self.is_in_body = None, True
        self._end()

    def on_message_complete(self) -> None:
        """Note the end of a body."""
        self.is_in_body = False


class Headers(Mapping[str, str]):
    """The fields of a head as text. Names are case-insensitive."""

    def __init__(self, fields: Mapping[bytes, bytes]) -> None:
        self._fields = fields

    def __getitem__(self, name: str) -> str:
        return self._fields[name.lower().encode()].decode("utf-8", "surrogateescape")

    def __iter__(self) -> Iterator[str]:
        return (name.decode() for name in self._fields)

    def __len__(self) -> int:
        return len(self._fields)
