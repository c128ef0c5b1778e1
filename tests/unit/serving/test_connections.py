"""However a request is split it gets the same answer, and it never hides another one from aiohttp's parser."""

import asyncio
import itertools
import re
from collections.abc import AsyncGenerator, Iterable

import hypothesis
import pytest
from aiohttp import web
from hypothesis import strategies

from railwright.serving import connections, dispatch, limits, routes

LIMITS = limits.Limits(max_body=2000, lingering_seconds=5.0)
Seen = list[tuple[str, str, bytes]]  # method, path and body of each request that reached a handler


class Transport(asyncio.Transport):
    """Collects the bytes that are written."""

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


def build_table(seen: Seen) -> list[routes.Route]:
    def record(method: str, call: routes.Call) -> routes.Reply:
        path = "/" + "/".join(call.parameters.values())
        seen.append((method, path, bytes(call.body)))
        return routes.Reply(
            repr((path, bytes(call.body), sorted(call.query.items()))).encode(), headers={"X-Extra": "1"}
        )

    async def record_later(call: routes.Call) -> routes.Reply:
        await asyncio.sleep(0)
        return record("POST", call)

    def fail(_call: routes.Call) -> routes.Reply:
        raise ValueError("not well")

    async def count_up() -> AsyncGenerator[bytes, None]:
        for number in range(3):
            await asyncio.sleep(0)
            yield b"%d" % number

    return [
        routes.Route("/fail", fail, malformed=(ValueError,)),
        routes.Route("/stream", lambda _: routes.Reply(b"go", stream=count_up()), "GET"),
        routes.Route("/{a}", lambda call: record("POST", call)),
        routes.Route("/{a}/{b}", record_later),
        routes.Route("/{a}", lambda call: record("GET", call), "GET"),
    ]


async def exchange(protocol, pieces: list[bytes]) -> tuple[bytes, bool]:
    """Return what is sent in answer to the pieces, and whether the connection answers no further request."""
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
    is_closed = transport.is_closed or getattr(protocol, "_is_lingering", False)
    protocol.connection_lost(None)
    await asyncio.sleep(0)
    return re.sub(rb"Date: .*", b"", transport.written), is_closed


async def ask(pieces: list[bytes]) -> tuple[bytes, bool, Seen]:
    seen: Seen = []
    written, is_closed = await exchange(
        connections.Connections(dispatch.Dispatcher(build_table(seen), LIMITS, None))(), pieces
    )
    written = written.replace(b"HTTP/1.1 100 Continue\r\n\r\n", b"")  # not if the body has arrived already
    return re.sub(rb"(HTTP/1.1: )[^\"]*", rb"\1", written), is_closed, seen


async def ask_aiohttp(data: bytes) -> Seen:
    seen: Seen = []

    async def record(request: web.BaseRequest) -> web.Response:
        method, body = request.method.replace("HEAD", "GET"), await request.read()
        seen.append((method, request.path, b"" if method == "GET" else body))
        return web.Response()

    await exchange(web.Server(record, access_log=None, auto_decompress=False)(), [data])
    return seen


def run(coroutine):
    with asyncio.Runner() as runner:
        return runner.run(coroutine)


async def check(data: bytes, splits: Iterable[list[bytes]]) -> tuple[bytes, bool, Seen]:
    """Return the answers to the whole, compared with those to every split, and its requests with those of aiohttp."""
    whole = await ask([data])
    for pieces in splits:
        assert await ask(pieces) == whole, pieces
    seen = [request for request in whole[2] if not request[1].startswith("/fail")]
    expected = [request for request in await ask_aiohttp(data) if request[1] not in {"/fail", "/stream"}]
    count = min(len(seen), len(expected))
    assert seen[:count] == expected[:count]
    return whole


def post(target=b"/echo", body=b"[1]", version=b"HTTP/1.1", method=b"POST", fields=()) -> bytes:
    lines = [b"%s %s %s" % (method, target, version), b"Host: x", b"Content-Type: application/json", *fields]
    if not any(field.lower().startswith((b"content-length", b"transfer-encoding")) for field in fields):
        lines.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


GET = b"GET /get HTTP/1.1\r\nHost: x\r\n\r\n"
CHUNKED = post(fields=[b"Transfer-Encoding: chunked"], body=b"3\r\n[1]\r\n0\r\n\r\n")
TWO_CHUNKS = post(fields=[b"Transfer-Encoding: chunked"], body=b"1;ext=a\r\n[\r\n02\r\n1]\r\n0\r\nX: y\r\n\r\n")
FIELD = b"Transfer-Encoding: chunked"
CASES = {  # the statuses, and whether the connection is closed behind them
    "plain": (post(), [200], False),
    "query": (post(b"/echo?timeout=5s&timeout=6s&empty=&x=a+b%20c", fields=[b"X-Name: a"]), [200], False),
    "encoded path": (post(b"/a%62"), [200], False),
    "handler that waits": (post(b"/a/b") + post() + post(b"/a/b"), [200] * 3, False),
    "malformed body": (post(b"/fail") + post(), [400, 200], False),
    "pipelined": (post(body=b"1") + post(body=b"22") + post(body=b"") + post(body=b"333"), [200] * 4, False),
    "empty lines": (b"\r\n\r\n" + post() + b"\r\n" + post(), [200] * 2, False),
    "chunked": (post(body=b"1") + CHUNKED, [200] * 2, True),
    "chunked, with another behind it": (TWO_CHUNKS + post(body=b"2"), [200], True),
    "chunks that are too long": (
        post(fields=[FIELD], body=b"7d1\r\n" + b"x" * 2001),
        [413],
        True,
    ),
    "not a chunk": (post(fields=[FIELD], body=b"x\r\n"), [400], True),
    "a chunk longer than it says": (post(fields=[FIELD], body=b"1\r\nxx\r\n"), [400], True),
    "endless trailers": (CHUNKED[:-2] + b"X: y\r\n" * 20000, [400], True),
    "gzip chunked": (post(fields=[b"Transfer-Encoding: gzip, chunked"]), [400], True),
    "chunked and a length": (post(fields=[FIELD, b"Content-Length: 3"]), [400], True),
    "GET": (post() + GET + post(), [200] * 3, False),
    "GET with a body": (post(method=b"GET", body=GET) + GET, [200], True),
    "HEAD": (post(method=b"HEAD", body=b"") + GET, [200] * 2, False),
    "stream": (post(b"/stream", method=b"GET", body=b"") + GET, [200], True),
    "close": (post(fields=[b"Connection: close"]) + post(), [200], True),
    "close among others": (post(fields=[b"Connection: TE , Close"]) + post(), [200], True),
    "keep-alive": (post(fields=[b"Connection: Keep-Alive"]) + post(), [200] * 2, False),
    "HTTP/1.0": (post(version=b"HTTP/1.0") + post(), [200], True),
    "HTTP/2": (post(version=b"HTTP/2.0"), [400], True),
    "upgrade": (post(fields=[b"Upgrade: h2c", b"Connection: upgrade"]) + post(), [200] * 2, False),
    "CONNECT": (post(b"x:1", method=b"CONNECT"), [400], True),
    "expect": (post(fields=[b"Expect: 100-continue"]), [200], False),
    "unknown path": (post(b"/a/b/c/d") + post(), [404], True),
    "wrong method": (post(method=b"PUT"), [405], True),
    "too long": (post(body=b"x" * 2001), [413], True),
    "as long as allowed": (post(body=b"x" * 2000) + post(), [200] * 2, False),
    "content type": (post(fields=[b"X: y"]).replace(b"application/json", b"text/plain"), [415], True),
    "absolute target": (post(b"http://x/echo?a=1"), [200], False),
    "fragment": (post(b"/echo?a=1#b"), [200], False),
    "long target": (post(b"/" + b"a" * 9000), [400], True),
    "many fields": (post(fields=[b"X: y"] * 130), [400], True),
    "head that is too long": (post(fields=[b"X: " + b"a" * 70000]), [400], True),
    "garbage": (b"NONSENSE\r\n\r\n", [400], True),
    "TLS": (b"\x16\x03\x01\x02", [400], True),
    "garbage after a request": (post() + b"NONSENSE\r\n\r\n", [200, 400], True),
    "two lengths": (post(fields=[b"Content-Length: 3", b"Content-Length: 4"]), [400], True),
    "two equal lengths": (post(fields=[b"Content-Length: 3", b"Content-Length: 3"]), [400], True),
    "two hosts": (post(fields=[b"Host: y"]), [400], True),
    "no host": (post().replace(b"Host: x\r\n", b""), [400], True),
    "space before colon": (post(fields=[b"X-Name : a"]), [400], True),
    "line folding": (post(fields=[b"X-Name: a", b" b"]), [400], True),
    "bare line feeds": (post().replace(b"\r\n", b"\n"), [400], True),
}


@pytest.mark.parametrize(("data", "statuses", "is_closed"), CASES.values(), ids=CASES)
def test_every_way_to_split_a_request_in_two_gives_the_same_answer(data, statuses, is_closed):
    cuts = range(1, len(data), 1 if len(data) < 4000 else 7777)
    written, was_closed, _ = run(check(data, ([data[:cut], data[cut:]] for cut in cuts)))
    given = [int(status) for status in re.findall(rb"HTTP/1\.1 (\d+)", written)]
    assert (given, was_closed) == (statuses, is_closed)


def test_an_answer_to_head_has_no_body_and_a_stream_no_length():
    written, _, _ = run(ask([post(method=b"HEAD", body=b"")]))
    assert written.endswith(b"\r\n\r\n")
    assert b"Content-Length: 18" in written
    written, _, _ = run(ask([post(b"/stream", method=b"GET", body=b"")]))
    assert written.endswith(b"Connection: close\r\n\r\ngo012")
    assert b"Content-Length" not in written


TARGETS = [b"/echo", b"/a/b", b"/fail", b"/%61/b", b"/a%2fb", b"/get", b"/echo?a=1&b=%20", b"/echo?a", b"*"]
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
def test_whatever_is_sent_in_whatever_parts_reaches_handlers_as_it_reaches_those_of_aiohttp(requests, draw):
    data = b"".join(requests)
    cuts = sorted(draw.draw(strategies.sets(strategies.integers(1, len(data)), max_size=5)))
    pieces = [data[start:end] for start, end in itertools.pairwise([0, *cuts, len(data)]) if start < end]
    run(check(data, [pieces]))
