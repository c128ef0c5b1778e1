"""Sends requests over a loopback socket one after the other, and measures how long they take.

Requests are built beforehand, so that the times contain the socket and the server only.
"""

import contextlib
import dataclasses
import socket
import time
from collections.abc import Iterator


@dataclasses.dataclass(frozen=True)
class Served:
    """An answered request; times in seconds."""

    body: bytes
    whole: float  # from the first byte sent to the last received
    after: float  # from the last byte handed to the kernel to the last received


def build_request(path: str, body: bytes) -> bytes:
    """Return a POST of JSON as Go's client sends it."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: Go-http-client/1.1\r\n"
        f"Content-Length: {len(body)}\r\nContent-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n"
    )
    return head.encode() + body


class Caller:
    """One connection, kept alive."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=120)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, wire: bytes) -> Served:
        """Send a request and return its answer. Exits if its status is not 200."""
        began = time.perf_counter()
        self._socket.sendall(wire)
        sent = time.perf_counter()
        body = self._read_answer()
        ended = time.perf_counter()
        return Served(body=body, whole=ended - began, after=ended - sent)

    def post(self, path: str, body: bytes) -> Served:
        """Build a request, send it and return its answer."""
        return self.send(build_request(path, body))

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _read_answer(self) -> bytes:
        received = bytearray()
        while (end := received.find(b"\r\n\r\n")) < 0:
            received += self._receive()
        length = _read_length(bytes(received[:end]))
        parts, missing = [bytes(received[end + 4 :])], length - (len(received) - end - 4)
        while missing > 0:
            parts.append(self._receive())
            missing -= len(parts[-1])
        return b"".join(parts)

    def _receive(self) -> bytes:
        part = self._socket.recv(1 << 20)
        if not part:
            raise SystemExit("the server closed the connection")
        return part


@contextlib.contextmanager
def connect(port: int) -> Iterator[Caller]:
    """Open a connection; close it at the end of the context."""
    caller = Caller(port)
    try:
        yield caller
    finally:
        caller.close()


def _read_length(head: bytes) -> int:
    """Return the Content-Length of an answer. Exits if its status is not 200."""
    if not head.startswith(b"HTTP/1.1 200 "):
        raise SystemExit(f"a request failed: {head[:600]!r}")
    return int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
