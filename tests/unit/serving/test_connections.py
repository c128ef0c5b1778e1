"""The fast path answers as aiohttp does, whatever is sent and however it is split."""

import asyncio
import itertools
import re
from collections.abc import Iterable

import hypothesis
import pytest
from aiohttp import web
from hypothesis import strategies

from railwright.serving import connections, dispatch, fast_path, handover, limits, memory, routes, slow_path

LIMITS = limits.Limits(max_body=2000, lingering_seconds=5.0)


class Transport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written, self.is_closed, self.is_reading_paused = b"", False, False
        self.protocol: asyncio.BaseProtocol | None = None

    def write(self, data) -> None:
        if not self.is_closed:
            self.written += bytes(data)

    def writelines(self, parts) -> None:
        self.write(b"".join(parts))

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed

    def set_protocol(self, protocol) -> None:
        self.protocol = protocol

    def pause_reading(self) -> None:
        self.is_reading_paused = True

    def resume_reading(self) -> None:
        self.is_reading_paused = False

    def receive(self, data: bytes) -> None:
        """Deliver bytes as the event loop does, in as many parts as the protocol has room for."""
        while data and not self.is_closed:
            if isinstance(self.protocol, asyncio.BufferedProtocol):
                room = self.protocol.get_buffer(-1)
                count = min(len(room), len(data))
                room[:count] = data[:count]
                self.protocol.buffer_updated(count)
                data = data[count:]
            else:
                self.protocol.data_received(data)
                return


def describe(call: routes.Call) -> routes.Reply:
    parts = (bytes(call.body), dict(call.parameters), sorted(dict(call.query).items()), call.headers.get("X-Name"))
    return routes.Reply(repr(parts).encode(), headers={"X-Extra": "1"})


async def describe_later(call: routes.Call) -> routes.Reply:
    await asyncio.sleep(0)
    return describe(call)


def fail(_call: routes.Call) -> routes.Reply:
    raise ValueError("not well")


TABLE = (
    routes.Route("/echo", describe, immediate=True),
    routes.Route("/later", describe_later),
    routes.Route("/fail", fail, malformed=(ValueError,), immediate=True),
    routes.Route("/scope/{scope}/x", describe, immediate=True),
    routes.Route("/get", describe, "GET"),
)


def build() -> connections.Connections:
    dispatcher = dispatch.Dispatcher(TABLE, LIMITS, None, memory.Memory())
    server = handover.build_server(slow_path.SlowPath(dispatcher), LIMITS)
    return connections.Connections(server, LIMITS, lambda _status: None, fast=fast_path.FastPath(dispatcher))


async def exchange(protocol: asyncio.Protocol, pieces: list[bytes]) -> tuple[list[tuple], bool]:
    """Return the responses to the pieces, and whether the connection was closed."""
    transport = Transport()
    transport.protocol = protocol
    protocol.connection_made(transport)
    for piece in pieces:
        for _ in range(200):
            if not transport.is_reading_paused:
                break
            await asyncio.sleep(0)
        transport.receive(piece)
        await asyncio.sleep(0)
    for _ in range(30):
        await asyncio.sleep(0)
    is_closed = transport.is_closed
    protocol.connection_lost(None)
    await asyncio.sleep(0)
    return list(read_responses(transport.written)), is_closed


def read_responses(data: bytes):
    """Yield (status, headers, body). Of a 400 without a handler only the status: ours is JSON, aiohttp's text."""
    while data:
        head, _, data = data.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        length = int(headers.pop("content-length", 0))
        headers.pop("date", None)
        body, data = data[:length], data[length:]
        status = int(first.split()[1])
        if status == 400 and (b"not valid HTTP" in body or headers["content-type"].startswith("text/plain")):
            yield (400,)
        else:
            yield first, headers, re.sub(rb"(HTTP/1.1: ).*", rb"\1", body)


def run(coroutine):
    with asyncio.Runner() as runner:
        return runner.run(coroutine)


async def check(data: bytes, splits: Iterable[list[bytes]]) -> None:
    """Compare the answers to every split with those of aiohttp's server to the whole."""
    dispatcher = dispatch.Dispatcher(TABLE, LIMITS, None, memory.Memory())
    server = web.Server(slow_path.SlowPath(dispatcher), lingering_time=5.0, access_log=None, auto_decompress=False)
    expected, is_closed = await exchange(server(), [data])
    for pieces in splits:
        answers, was_closed = await exchange(build()(), pieces)
        assert was_closed == is_closed, pieces
        if expected[-1:] == [(400,)]:
            # one chunk with valid requests and other bytes: aiohttp rejects all of it, or closes after an answer
            assert (400,) not in answers[:-1], pieces
        else:
            assert answers == expected, pieces


def post(target=b"/echo", body=b"[1]", version=b"HTTP/1.1", method=b"POST", fields=()) -> bytes:
    lines = [b"%s %s %s" % (method, target, version), b"Host: x", b"Content-Type: application/json", *fields]
    if not any(field.lower().startswith((b"content-length", b"transfer-encoding")) for field in fields):
        lines.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


CHUNKED = post(fields=[b"Transfer-Encoding: chunked"], body=b"3\r\n[1]\r\n0\r\n\r\n")
CASES = {
    "plain": post(),
    "query": post(b"/echo?timeout=5s&timeout=6s&empty=&x=a+b%20c", fields=[b"X-Name: a"]),
    "parameters": post(b"/scope/a/x"),
    "encoded path": post(b"/scope/a%62/x"),
    "handler that waits": post(b"/later") + post() + post(b"/later"),
    "malformed body": post(b"/fail") + post(),
    "pipelined": post(body=b"1") + post(body=b"22") + post(body=b"") + post(body=b"333"),
    "empty lines": b"\r\n\r\n" + post() + b"\r\n" + post(),
    "chunked": post(body=b"1") + CHUNKED + post(body=b"2"),
    "GET": post() + post(b"/get", method=b"GET", body=b"") + post(),
    "close": post() + post(fields=[b"Connection: close"]) + post(),
    "keep-alive": post(fields=[b"Connection: Keep-Alive"]) + post(),
    "HTTP/1.0": post(version=b"HTTP/1.0"),
    "unknown path": post(b"/nowhere") + post(),
    "wrong method": post(method=b"PUT"),
    "HEAD": post(method=b"HEAD", body=b""),
    "too long": post(body=b"x" * 2001),
    "as long as allowed": post(body=b"x" * 2000) + post(),
    "content type": post(fields=[b"Content-Type: text/plain"]),
    "absolute target": post(b"http://x/echo?a=1"),
    "fragment": post(b"/echo?a=1#b"),
    "garbage": b"NONSENSE\r\n\r\n",
    "garbage after a request": post() + b"NONSENSE\r\n\r\n",
    "two lengths": post(fields=[b"Content-Length: 3", b"Content-Length: 4"]),
    "length and chunked": post(fields=[b"Content-Length: 3", b"Transfer-Encoding: chunked"]),
    "space before colon": post(fields=[b"X-Name : a"]),
    "line folding": post(fields=[b"X-Name: a", b" b"]),
    "bare line feeds": post().replace(b"\r\n", b"\n"),
}


@pytest.mark.parametrize("data", CASES.values(), ids=CASES)
def test_every_way_to_split_a_request_in_two_gives_the_answer_of_aiohttp(data):
    run(check(data, ([data[:cut], data[cut:]] for cut in range(1, len(data)))))


TARGETS = [b"/echo", b"/later", b"/fail", b"/scope/a/x", b"/scope/%61/x", b"/get", b"/echo?a=1&b=%20", b"/echo?a", b"*"]
TARGETS += [
    b"/echo#a",
    b"//echo",
    b"/echo/",
    b"/echo;a",
    b"http://x/echo",
    b"/",
    b"?",
    b"/e\xc3\xa9",
    b"/echo?a=1?b=2",
    b"x:1",
]
FIELDS = [
    b"X-Name: a",
    b"X-Name:",
    b"X-Name:  a b ",
    b"x-name: b",
    b"X-Name : a",
    b"X-\xc3\xa9: a",
    b"X-Name: \xc3\xa9",
]
FIELDS += [
    b"X-Name: a\tb",
    b"X-Name: a\x00b",
    b"X-Name: a\x7fb",
    b" X-Name: a",
    b"X-Name",
    b": a",
    b"X-Name: " + b"a" * 9000,
]
FIELDS += [b"Host: y", b"Host:", b"Connection: close", b"connection: keep-alive", b"Connection: keep-alive, X-Name"]
FIELDS += [b"Content-Type: text/plain", b"content-type: application/json; charset=utf-8", b"Content-Encoding: gzip"]
FIELDS += [
    b"Content-Length: 1",
    b"content-length: 0",
    b"Content-Length: 99999",
    b"Content-Length: -1",
    b"Content-Length: 1,1",
]
FIELDS += [
    b"Content-Length: 0x1",
    b"Content-Length: 1 1",
    b"Content-Length: +1",
    b"Content-Length: 007",
    b"Content-Length: \xb2",
]
FIELDS += [
    b"Transfer-Encoding: gzip",
    b"Transfer-Encoding: identity",
    b"Transfer-Encoding: chunked, chunked",
    b"TE: trailers",
]
FIELDS += [b"Expect: 200-ok", b"Accept-Encoding: gzip", b"Trailer: x", b"Content-Encoding: identity"]
BODIES = [b"", b"1", b"[1]", b"x" * 300, b"x" * 2001, b"\r\n\r\n", b"POST / HTTP/1.1\r\n\r\n", b"1\r\na\r\n0\r\n\r\n"]
REQUESTS = strategies.builds(
    post,
    strategies.sampled_from([b"/echo"] * 9 + TARGETS),
    strategies.sampled_from(BODIES),
    strategies.sampled_from([b"HTTP/1.1"] * 9 + [b"HTTP/1.0", b"HTTP/1.2", b"http/1.1", b"HTTP/1.1 "]),
    strategies.sampled_from([b"POST"] * 9 + [b"GET", b"HEAD", b"PUT", b"OPTIONS", b"post", b"PRI", b"P@ST"]),
    strategies.lists(strategies.sampled_from(FIELDS), max_size=3),
)
CHUNKS = strategies.sampled_from([CHUNKED, b"\r\n", b"\n", b" ", b"\x16\x03\x01"])


@hypothesis.given(strategies.lists(REQUESTS | REQUESTS | REQUESTS | CHUNKS, min_size=1, max_size=4), strategies.data())
def test_whatever_is_sent_in_whatever_parts_gets_the_answers_of_aiohttp(requests, draw):
    data = b"".join(requests)
    cuts = sorted(draw.draw(strategies.sets(strategies.integers(1, len(data)), max_size=5)))
    pieces = [data[start:end] for start, end in itertools.pairwise([0, *cuts, len(data)]) if start < end]
    run(check(data, [pieces]))
