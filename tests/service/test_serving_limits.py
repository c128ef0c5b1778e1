"""Every limit of a port, over real sockets: the refused requests, their answers, and further requests."""

import asyncio
import contextlib
import gzip
import json
import logging
import socket
import struct

import pytest
import shell
from aiohttp import web

from railwright.serving import application, metrics, ports, probes


class BadBodyError(ValueError):
    pass


async def picky(request: web.Request) -> web.Response:
    body = request[application.BODY]
    if body == b"bad":
        raise BadBodyError('the body says "bad"\n')
    if body == b"bug":
        raise KeyError("secret")
    return application.build_response(b"{}", outcome="allowed")


async def waiting(request: web.Request) -> web.Response:
    await asyncio.sleep(0.1)  # longer than a caller that hangs up waits
    return application.build_response(request[application.BODY] * 100_000)


async def large(request: web.Request) -> web.Response:
    return application.build_response(request[application.BODY] * 30_000_000)


TABLE = (
    *shell.ECHO,
    web.post("/waiting", waiting),
    web.post("/large", large),
    web.post("/picky", picky),
    web.post("/volcano/{scope}/prioritize", shell.echo),
    web.get("/explain/{namespace}/{pod}", shell.echo),
)


DEADLINE = 3.0  # seconds


@pytest.fixture
async def counters():
    return metrics.Metrics("webhook")


@pytest.fixture
async def plain(counters):
    async with shell.running(TABLE, counters=counters, max_body=1000, malformed=(BadBodyError,)) as server:
        yield server


@pytest.fixture
async def hasty(counters, monkeypatch):
    """Yield a server with deadlines that a complete request meets even on a busy machine."""
    monkeypatch.setattr(ports, "KEEPALIVE_SECONDS", DEADLINE)
    async with shell.running(TABLE, counters=counters, request_seconds=DEADLINE) as server:
        yield server


def reason(answer: shell.Answer) -> str:
    assert answer.headers["content-type"] == "application/json"
    error = json.loads(answer.body)["error"]
    assert error["code"] == answer.status
    return error["reason"]


async def still_answers(server: shell.Running) -> bool:
    caller = await server.open()
    answer = await caller.ask(b"[1]")
    await caller.close()
    return answer.status == 200 and answer.body == b"[1]"


@pytest.mark.parametrize(
    ("status", "request_"),
    [
        (404, {"path": "/nowhere"}),
        (404, {"path": "/volcano//prioritize"}),
        (405, {"method": "GET"}),
        (405, {"method": "PUT"}),
        (405, {"path": "/explain/a/b"}),
        (413, {"body": b"x" * 1001}),
        (413, {"Content_Length": str(1 << 40)}),
        (400, {"path": "/picky", "body": b"bad"}),
        (500, {"path": "/picky", "body": b"bug"}),
    ],
)
async def test_a_request_outside_the_limits_gets_an_error_status_with_a_json_reason(plain, status, request_):
    caller = await plain.open()
    answer = await caller.ask(**request_)
    assert answer.status == status
    assert reason(answer)
    await caller.close()
    assert await still_answers(plain)


async def test_an_exception_of_the_handler_never_shows_the_caller_its_text_and_is_logged_once(plain, caplog):
    caller = await plain.open()
    with caplog.at_level(logging.ERROR):
        answer = await caller.ask(b"bug", path="/picky")
    assert b"secret" not in answer.body
    assert b"/picky failed because of a bug in railwright; see" in answer.body
    assert [record.getMessage() for record in caplog.records] == ["a handler failed"]
    assert (await caller.ask(b"fine", path="/picky")).status == 200  # the same connection goes on


async def test_a_compressed_body_is_not_expanded(plain):
    compressed = gzip.compress(b"x" * 100_000)
    caller = await plain.open()
    assert (await caller.ask(compressed, Content_Encoding="gzip")).body == compressed


async def test_a_chunked_body_that_does_not_end_gets_413_at_the_limit(plain):
    for _ in range(2):
        caller = await plain.open()
        await caller.send(CHUNKED_HEAD)
        answering, sent = asyncio.ensure_future(caller.answer()), 0
        while not answering.done() and sent < 32 << 20:
            await caller.send(b"100\r\n" + b"x" * 256 + b"\r\n")
            await asyncio.sleep(0)
            sent += 256
        answer = await answering
        assert (answer.status, bool(reason(answer))) == (413, True)
        assert sent < 1 << 20
        await caller.close()
    await shell.until(lambda: plain.rules.bodies == 0)
    assert await still_answers(plain)


@pytest.mark.parametrize(
    "sent",
    [
        b"",  # silent
        b"POST /ec",  # half a request line
        b"POST /echo HTTP/1.1\r\nHost: x\r\n",  # half its headers
    ],
)
async def test_a_caller_that_does_not_finish_its_headers_is_disconnected(hasty, sent):
    caller = await hasty.open()
    if sent:
        await caller.send(sent)
    assert await caller.is_disconnected()
    await caller.close()
    assert await still_answers(hasty)


async def test_sending_one_byte_at_a_time_does_not_extend_the_deadline(hasty):
    caller = await hasty.open()

    async def drip() -> None:
        for byte in b"POST /echo HTTP/1.1\r\n" + b"X-A: aaaaaaaaaa\r\n" * 1000:
            await caller.send(bytes([byte]))
            await asyncio.sleep(0.02)  # the pace of the attack

    dripping = asyncio.ensure_future(drip())
    assert await caller.is_disconnected(), "it would drip for six minutes"
    dripping.cancel()
    await asyncio.gather(dripping, return_exceptions=True)


HALF = b"POST /echo HTT"
SHORT = shell.head(4) + b"\r\n\r\n"
WAITING = SHORT.replace(b"/echo", b"/waiting")  # the handler waits
CHUNKED_HEAD = SHORT[: SHORT.index(b"Content-Length")] + b"Transfer-Encoding: chunked\r\n\r\n"
CHUNKED = CHUNKED_HEAD + b"1\r\n1\r\n0\r\n\r\n"
WITHOUT_BODY = b"GET /explain/a/b HTTP/1.1\r\nHost: x\r\nAuthorization: a\r\n\r\n"


@pytest.mark.parametrize("whole", [SHORT, WAITING, WITHOUT_BODY])
async def test_a_caller_that_sends_half_a_request_after_a_whole_one_is_disconnected(hasty, whole):
    caller = await hasty.open()
    await caller.send(whole + HALF)
    await caller.answer()
    assert await caller.is_disconnected()


@pytest.mark.parametrize("sent", [shell.head(9), shell.head(9) + b"[1", CHUNKED[:-7]])
async def test_a_caller_that_sends_its_body_too_slowly_is_disconnected(hasty, counters, sent):
    caller = await hasty.open()
    await caller.send(sent)
    assert await caller.is_disconnected()
    assert b'outcome="ok"' not in counters.format_exposition()
    assert counters.requests.labels("/echo", "cancelled")._value.get() == 1
    assert await still_answers(hasty)


@pytest.mark.parametrize(
    "sent",
    [shell.head(1, "/large") + b"1", (shell.head(1) + b"1") * 100, WITHOUT_BODY * 100],
    ids=["large", "small", "GET"],
)
async def test_a_client_that_does_not_read_the_answer_is_disconnected(hasty, sent):
    """It sends requests without reading answers, until the server reads no more from it."""
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect(("127.0.0.1", hasty.port))
        deaf.setblocking(False)
        await shell.until(lambda: hasty.connections)

        async def ask_on() -> None:
            while True:
                with contextlib.suppress(BlockingIOError, ConnectionError):
                    deaf.send(sent)
                await asyncio.sleep(0.001)

        asking = asyncio.create_task(ask_on())
        await shell.until(lambda: not hasty.connections)
        asking.cancel()
    assert await still_answers(hasty)


async def test_bodies_that_arrive_at_once_are_limited_and_small_ones_are_always_accepted():
    """One body of the largest size and 64 MiB of others: received bytes count until the handler ends."""
    size = 10 << 20
    async with shell.running(max_body=size) as server:
        silent = [await server.open() for _ in range(20)]
        for caller in silent:
            await caller.send(shell.head(size) + b"1")
        callers = [await server.open() for _ in range(7)]
        for caller in callers:
            await caller.send(shell.head(size) + b"1" * (size - 1))
        await shell.until(lambda: server.rules.bodies >= 7 * (size - 1))
        last = await server.open()
        await last.send(shell.head(size) + b"1" * (5 << 20))
        refused = await last.answer()
        assert (refused.status, refused.headers["retry-after"]) == (429, "1")
        assert await still_answers(server)
        await callers[0].send(b"2")
        assert (await callers[0].answer()).status == 200
        again = await server.open()
        await again.send(shell.head(size) + b"1" * size)
        assert (await again.answer()).status == 200
        for caller in (*silent, *callers, last):
            await caller.close()
        await shell.until(lambda: server.rules.bodies == 0)


@pytest.mark.parametrize(
    ("sent", "hard"),  # hard: a reset, as a scanner of ports or a killed process sends
    [
        (b"POST /ec", True),
        (SHORT[:-1], False),
        (CHUNKED[:-7], True),
        (SHORT + HALF, False),
        (WITHOUT_BODY, True),
        (WAITING, False),
        (WAITING, True),
        (WAITING + HALF, False),
    ],
)
async def test_a_disconnected_caller_is_not_logged(plain, caplog, sent, hard):
    caller = await plain.open()
    await caller.send(sent)
    await shell.until(lambda: plain.connections)
    await asyncio.sleep(0.05)  # so that what it has sent is being read
    if hard:
        caller.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    caller.writer.transport.abort() if hard else await caller.close()
    await shell.until(lambda: not plain.connections)
    assert await still_answers(plain)
    assert not caplog.records


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",  # TLS to a plain port
        b"POST /echo HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"a" * 70000 + b"\r\n\r\n",
    ],
)
async def test_bytes_other_than_http_get_400_without_a_traceback(plain, caplog, sent):
    caller = await plain.open()
    await caller.send(sent)
    answer = await caller.answer()
    assert answer.status == 400
    assert await caller.is_disconnected()
    await caller.close()
    assert not caplog.records
    assert await still_answers(plain)


async def open_from(address: str, port: int) -> shell.Caller:
    return shell.Caller(*await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0)))


async def is_served(caller: shell.Caller) -> bool:
    try:
        return (await caller.ask(b"1")).status == 200
    except (ConnectionError, EOFError, ValueError, IndexError):
        return False


async def test_the_connections_of_one_address_are_limited(monkeypatch):
    monkeypatch.setattr(ports, "MAX_CONNECTIONS", 20)
    async with shell.running() as server:
        greedy = [await open_from("127.0.0.1", server.port) for _ in range(20)]
        served = [caller for caller in greedy if await is_served(caller)]
        assert len(served) == 10
        others = [await open_from("127.0.0.2", server.port) for _ in range(3)]
        assert [await is_served(caller) for caller in (*served, *others)] == [True] * 13
        await served[0].close()
        await shell.until(lambda: server.connections == 12)
        again = await open_from("127.0.0.1", server.port)
        assert not await is_served(again), "nine of its own, seven are left"
        for caller in (*greedy, *others, again):
            await caller.close()


async def test_requests_are_counted_by_route_and_outcome_and_refusals_by_status(plain, counters):
    caller = await plain.open()
    await caller.ask(b"1", path="/picky")
    await caller.ask(b"bad", path="/picky")
    await caller.ask(b"bug", path="/picky")
    await caller.ask(b"1", path="/nowhere-with-a-name-of-the-callers-choice")
    await caller.close()
    text = counters.format_exposition().decode()
    for outcome, path in (("allowed", "/picky"), ("malformed", "/picky"), ("failed", "/picky"), ("404", "")):
        assert f'railwright_requests_total{{outcome="{outcome}",path="{path}"}} 1.0' in text
    assert "nowhere" not in text
    assert "railwright_extender" not in text


async def test_the_reason_why_a_server_is_not_ready_is_bounded_and_printable(caplog):
    checks = probes.Probes()
    checks.add_check("policy", lambda: "fabrics.roce: \n\x1b[31m" + "x" * 100_000)
    with caplog.at_level(logging.INFO, logger="railwright.serving.probes"):
        async with shell.running(checks=checks) as server:
            answer = await server.ops("/readyz")
    policy = json.loads(answer.body)["checks"]["policy"]
    assert policy.startswith("fabrics.roce: ")
    assert policy.endswith("...")
    assert (len(policy), policy.isprintable()) == (300, True)
    assert all(len(str(record.fields)) < 500 for record in caplog.records if "failing" in record.fields)


async def test_probes_name_every_check_and_its_reason():
    checks = probes.Probes()
    reasons = {"policy": None, "nodes": "the first list of nodes has not arrived"}
    checks.add_check("policy", lambda: reasons["policy"])
    checks.add_check("nodes", lambda: reasons["nodes"])
    async with shell.running(checks=checks) as server:
        answer = await server.ops("/readyz")
        assert answer.status == 503
        assert json.loads(answer.body) == {"ready": False, "checks": {"policy": "ok", "nodes": reasons["nodes"]}}
        assert (await server.ops("/livez")).status == 200
        reasons["nodes"] = None
        assert (await server.ops("/readyz")).status == 200
        assert (await server.ops("/metrics")).headers["content-type"].startswith("text/plain; version=")
        assert (await server.ops("/nothing")).status == 404
