"""Requests over a loopback socket, and how long they took: one after the other, or at a fixed rate.

A request is made whole beforehand, so that nothing but the socket is in the time. Owns no meaning of any body.
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


_BEHIND = 0.25


class Pace(NamedTuple):
    """One answered request of `paced`; seconds of time.perf_counter."""

    due: float  # when it was to be sent
    waited: float  # from then to the whole answer


def request(path: str, body: bytes) -> bytes:
    """A POST of JSON as Go's client sends it."""
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

    def ask(self, wire: bytes) -> Served:
        """The answer to a whole request. Ends the run where it is not 200."""
        began = time.perf_counter()
        self._socket.sendall(wire)
        sent = time.perf_counter()
        body = self._answer()
        ended = time.perf_counter()
        return Served(body=body, whole=ended - began, after=ended - sent)

    def post(self, path: str, body: bytes) -> Served:
        """`ask`, for a request that is not made beforehand."""
        return self.ask(request(path, body))

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def _answer(self) -> bytes:
        got = bytearray()
        while (end := got.find(b"\r\n\r\n")) < 0:
            got += self._received()
        length = _length(bytes(got[:end]))
        parts, missing = [bytes(got[end + 4 :])], length - (len(got) - end - 4)
        while missing > 0:
            parts.append(self._received())
            missing -= len(parts[-1])
        return b"".join(parts)

    def _received(self) -> bytes:
        part = self._socket.recv(1 << 20)
        if not part:
            raise SystemExit("the server hung up")
        return part


@contextlib.contextmanager
def calling(port: int) -> Iterator[Caller]:
    """One connection for the length of a `with` block."""
    caller = Caller(port)
    try:
        yield caller
    finally:
        caller.close()


def open_loop(port: int, wires: Sequence[bytes], rate: float, connections: int) -> Mapping[str, list[float]]:
    """Send each request when it is due, whatever became of the ones before, as long as a connection is free.

    Returns seconds: `due` from the due time to the answer, `served` from the sending to the answer, `late` by how
    much the sending itself was late. Spins: the core is the load's own.
    """
    sockets = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(connections)]
    poll = select.epoll()
    for each in sockets:
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        poll.register(each.fileno(), select.EPOLLIN)
    by_number = {each.fileno(): each for each in sockets}
    free, busy = sorted(by_number), {}
    found: dict[str, list[float]] = {"due": [], "served": [], "late": []}
    began, clock, number = time.perf_counter() + 0.05, time.perf_counter, 0
    while number < len(wires) or busy:
        due = began + number / rate
        if number < len(wires) and free and clock() >= due:
            chosen = heapq.heappop(free)
            sent = clock()
            by_number[chosen].sendall(wires[number])
            busy[chosen] = (due, sent)
            number += 1
            continue
        for ready, _ in poll.poll(0):
            answer = by_number[ready].recv(1 << 16)
            now = clock()
            _length(answer)
            due_then, sent_then = busy.pop(ready)
            found["due"].append(now - due_then)
            found["served"].append(now - sent_then)
            found["late"].append(sent_then - due_then)
            heapq.heappush(free, ready)
    poll.close()
    for each in sockets:
        each.close()
    return found


def _length(head: bytes) -> int:
    """The Content-Length of an answer. Ends the run where its status is not 200."""
    if not head.startswith(b"HTTP/1.1 200 "):
        raise SystemExit(f"a request failed: {head[:600]!r}")
    return int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])


def paced(port: int, wires: Iterator[bytes], rate: float, connections: int, ended: Callable[[], bool]) -> list[Pace]:
    """Send each request when it is due, as long as a connection is free; until told to end. Sleeps between two.

    For long runs beside other processes: `open_loop` keeps a core to itself. What is over _BEHIND seconds late is not
    sent at all: of a machine that is busy with others, only their backlog would be measured.
    """
    free = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(connections)]
    every = list(free)
    busy: dict[int, tuple[float, socket.socket]] = {}
    poll = select.epoll()
    for each in every:
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        poll.register(each.fileno(), select.EPOLLIN)
    found: list[Pace] = []
    due = time.perf_counter()
    while busy or not ended():
        if free and time.perf_counter() >= due and not ended():
            chosen = free.pop()
            chosen.sendall(next(wires))
            busy[chosen.fileno()] = (due, chosen)
            due = max(due + 1 / rate, time.perf_counter() - _BEHIND)
            continue
        pause = max(0.0, due - time.perf_counter()) if free else 1.0
        for ready, _ in poll.poll(pause):
            began, chosen = busy.pop(ready)
            got = chosen.recv(1 << 20)
            end = got.find(b"\r\n\r\n") + 4
            missing = end + _length(got) - len(got)
            while missing > 0:
                missing -= len(chosen.recv(missing))
            found.append(Pace(due=began, waited=time.perf_counter() - began))
            free.append(chosen)
    for each in every:
        each.close()
    return found
