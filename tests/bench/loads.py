"""Sends requests over a loopback socket, one after the other or at a fixed rate, and measures how long they take.

Requests are built beforehand, so that the times contain the socket and the server only.
"""

import contextlib
import dataclasses
import heapq
import select
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple


@dataclasses.dataclass(frozen=True)
class Served:
    """One answered request; seconds."""

    body: bytes
    whole: float  # from the first byte sent to the last received
    after: float  # from the last byte handed to the kernel to the last received


_MAX_DELAY_SECONDS = 0.25


class Pace(NamedTuple):
    """One answered request of `send_paced`; seconds of time.perf_counter."""

    due: float  # when it was to be sent
    waited: float  # from then to the whole answer


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


def send_at_rate(port: int, wires: Sequence[bytes], rate: float, connections: int) -> Mapping[str, list[float]]:
    """Send each request when it is due and a connection is free, whether the ones before were answered or not.

    Returns seconds: `due` from the due time to the answer, `served` from the sending to the answer, `late` by how
    much the sending itself was late. Uses its core completely.
    """
    sockets = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(connections)]
    poll = select.epoll()
    for connection in sockets:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        poll.register(connection.fileno(), select.EPOLLIN)
    by_number = {connection.fileno(): connection for connection in sockets}
    free, busy = sorted(by_number), {}
    seconds: dict[str, list[float]] = {"due": [], "served": [], "late": []}
    began, clock, number = time.perf_counter() + 0.05, time.perf_counter, 0
    while number < len(wires) or busy:
        due = began + number / rate
        if number < len(wires) and free and clock() >= due:
            file_number = heapq.heappop(free)
            sent = clock()
            by_number[file_number].sendall(wires[number])
            busy[file_number] = (due, sent)
            number += 1
            continue
        for ready, _ in poll.poll(0):
            answer = by_number[ready].recv(1 << 16)
            now = clock()
            _read_length(answer)
            due_then, sent_then = busy.pop(ready)
            seconds["due"].append(now - due_then)
            seconds["served"].append(now - sent_then)
            seconds["late"].append(sent_then - due_then)
            heapq.heappush(free, ready)
    poll.close()
    for connection in sockets:
        connection.close()
    return seconds


def _read_length(head: bytes) -> int:
    """Return the Content-Length of an answer. Exits if its status is not 200."""
    if not head.startswith(b"HTTP/1.1 200 "):
        raise SystemExit(f"a request failed: {head[:600]!r}")
    return int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])


def send_paced(
    port: int, wires: Iterator[bytes], rate: float, connections: int, ended: Callable[[], bool]
) -> list[Pace]:
    """Send each request when it is due and a connection is free, until `ended()`. Sleeps between two.

    For long runs beside other processes, because `send_at_rate` uses a core completely. Requests that would be later
    than _MAX_DELAY_SECONDS are not sent: on a busy machine, they would only measure the backlog.
    """
    free = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(connections)]
    sockets = list(free)
    busy: dict[int, tuple[float, socket.socket]] = {}
    poll = select.epoll()
    for connection in sockets:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        poll.register(connection.fileno(), select.EPOLLIN)
    answers: list[Pace] = []
    due = time.perf_counter()
    while busy or not ended():
        if free and time.perf_counter() >= due and not ended():
            connection = free.pop()
            connection.sendall(next(wires))
            busy[connection.fileno()] = (due, connection)
            due = max(due + 1 / rate, time.perf_counter() - _MAX_DELAY_SECONDS)
            continue
        pause = max(0.0, due - time.perf_counter()) if free else 1.0
        for ready, _ in poll.poll(pause):
            began, connection = busy.pop(ready)
            received = connection.recv(1 << 20)
            end = received.find(b"\r\n\r\n") + 4
            missing = end + _read_length(received) - len(received)
            while missing > 0:
                missing -= len(connection.recv(missing))
            answers.append(Pace(due=began, waited=time.perf_counter() - began))
            free.append(connection)
    for connection in sockets:
        connection.close()
    return answers
