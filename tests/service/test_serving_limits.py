"""Every limit of a port, over real sockets: what is refused, how, and that the server answers on."""

import asyncio
import json
import logging
import socket
import struct
import time

import pytest
import shell

from railwright.serving import metrics, probes, routes


class BadBodyError(ValueError):
    pass


def picky(call: routes.Call) -> routes.Reply:
    if call.body == b"bad":
        raise BadBodyError('the body says "bad"\n')
    if call.body == b"bug":
        raise KeyError("secret")
    return routes.Reply(b"{}", outcome="allowed")


def slow(call: routes.Call) -> routes.Reply:
    time.sleep(0.03)  # as work does that occupies the loop
    return routes.Reply(call.body)


async def patient(call: routes.Call) -> routes.Reply:
    await asyncio.sleep(0.3)  # longer than its caller waits
    return routes.Reply(call.body * 100_000)


async def waiting(call: routes.Call) -> routes.Reply:
    await asyncio.sleep(0.03)
    return routes.Reply(call.body)


async def show_call(call: routes.Call) -> routes.Reply:
    await asyncio.sleep(0)
    if call.parameters["pod"] == "none":
        raise routes.HttpError(404, "no decision on that pod is kept")
    shown = {**call.parameters, "token": call.headers["authorization"], "peer": call.peer, "q": call.query.get("q")}
    return routes.Reply(json.dumps(shown).encode())


TABLE = (
    *shell.ECHO,
    routes.Route("/slow", slow, sheds=True),
    routes.Route("/slow/long", slow, sheds=True),
    routes.Route("/slow/patient", slow),
    routes.Route("/patient", patient),
    routes.Route("/waiting", waiting),
    routes.Route("/picky", picky, malformed=(BadBodyError,)),
    routes.Route("/volcano/{scope}/prioritize", lambda call: routes.Reply(call.parameters["scope"].encode())),
    routes.Route("/explain/{namespace}/{pod}", show_call, "GET"),
)


DEADLINE = 1.5  # seconds


@pytest.fixture
async def counters():
    return metrics.Metrics("webhook")


@pytest.fixture
async def plain(counters):
    async with shell.running(TABLE, counters=counters, max_body=1000, lingering_seconds=0.2) as server:
        yield server


@pytest.fixture
async def hasty(counters):
    """Yield a server with deadlines that a whole request keeps on a busy machine too."""
    async with shell.running(
        TABLE, counters=counters, first_byte_seconds=DEADLINE, header_seconds=DEADLINE, body_seconds=DEADLINE
    ) as server:
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
        (415, {"Content_Type": ""}),
        (415, {"Content_Type": "text/plain"}),
        (415, {"Content_Encoding": "gzip"}),
        (417, {"Expect": "a miracle", "body": b"1"}),
        (400, {"path": "/picky", "body": b"bad"}),
        (500, {"path": "/picky", "body": b"bug"}),
    ],
)
async def test_a_request_outside_the_limits_gets_its_status_with_a_json_reason_and_the_server_answers_on(
    plain, status, request_
):
    caller = await plain.open()
    answer = await caller.ask(**request_)
    assert answer.status == status
    assert reason(answer)
    if "picky" not in request_.get("path", ""):  # what no handler has read may stand in the way of the next request
        assert answer.headers["connection"] == "close"
        assert await caller.hung_up()
    await caller.close()
    assert await still_answers(plain)


async def test_a_wrong_method_is_answered_with_the_right_one(plain):
    caller = await plain.open()
    answer = await caller.ask(method="DELETE")
    assert answer.headers["allow"] == "POST"


async def test_an_exception_of_the_handler_never_shows_the_caller_its_text_and_is_logged_once(plain, caplog):
    caller = await plain.open()
    with caplog.at_level(logging.ERROR):
        answer = await caller.ask(b"bug", path="/picky")
    assert b"secret" not in answer.body
    assert b"/picky failed because of a bug in railwright; see" in answer.body
    assert [record.getMessage() for record in caplog.records] == ["a handler failed"]
    assert (await caller.ask(b"fine", path="/picky")).status == 200  # the same connection goes on


async def test_a_malformed_body_is_no_traceback_and_its_reason_is_escaped(plain, caplog):
    caller = await plain.open()
    answer = await caller.ask(b"bad", path="/picky")
    assert reason(answer) == 'the body says "bad"\n'
    assert not caplog.records


async def test_a_chunked_body_within_the_limit_is_taken(plain):
    caller = await plain.open()
    await caller.send(
        b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json; charset=utf-8\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n3\r\n[1,\r\n2\r\n2]\r\n0\r\n\r\n"
    )
    assert (await caller.answer()).body == b"[1,2]"


async def test_a_caller_that_waits_for_100_continue_gets_it(plain):
    caller = await plain.open()
    await caller.send(
        b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n"
    )
    assert (await caller.answer()).status == 100
    await caller.send(b"{}")
    assert (await caller.answer()).body == b"{}"


@pytest.mark.parametrize(
    "sent",
    [
        b"",  # silent
        b"POST /ec",  # half a request line
        b"POST /echo HTTP/1.1\r\nHost: x\r\n",  # half its headers
    ],
)
async def test_a_caller_that_does_not_finish_its_headers_is_hung_up_on(hasty, counters, sent):
    caller = await hasty.open()
    if sent:
        await caller.send(sent)
    assert await caller.hung_up()
    await caller.close()
    assert counters.http_rejected.labels("408")._value.get() == 1
    assert await still_answers(hasty)


async def test_dripping_one_byte_at_a_time_does_not_move_the_deadline(hasty):
    caller = await hasty.open()

    async def drip() -> None:
        for byte in b"POST /echo HTTP/1.1\r\n" + b"X-A: aaaaaaaaaa\r\n" * 1000:
            await caller.send(bytes([byte]))
            await asyncio.sleep(0.02)  # the pace of the attack

    dripping = asyncio.ensure_future(drip())
    assert await caller.hung_up(), "it would drip for six minutes"
    dripping.cancel()
    await asyncio.gather(dripping, return_exceptions=True)


HALF = b"POST /echo HTT"
SHORT = shell.head(4) + b"\r\n\r\n"
WAITING = SHORT.replace(b"/echo", b"/waiting")  # the handler waits
CHUNKED = SHORT[: SHORT.index(b"Content-Length")] + b"Transfer-Encoding: chunked\r\n\r\n1\r\n1\r\n0\r\n\r\n"
WITHOUT_BODY = b"GET /explain/a/b HTTP/1.1\r\nHost: x\r\nAuthorization: a\r\n\r\n"


def pieces(sent: bytes) -> list[list[bytes]]:
    """Return ways in which bytes arrive: at once, the last one alone, cut in the middle of headers or body."""
    return [[sent], [sent[:-1], sent[-1:]], [sent[:30], sent[30:]], [sent[:-2], sent[-2:]]]


@pytest.mark.parametrize("whole", [SHORT, WAITING, WITHOUT_BODY, SHORT + SHORT, WAITING + SHORT + WAITING])
async def test_half_a_request_behind_a_whole_one_has_the_deadline_of_headers(hasty, whole):
    arriving = [*pieces(whole + HALF), [whole, HALF], [whole[:40], whole[40:] + HALF[:3], HALF[3:]]]

    async def is_hung_up_on(parts: list[bytes]) -> bool:
        caller = await hasty.open()
        for part in parts:
            await caller.send(part)
            await asyncio.sleep(0.02)  # so that it arrives alone
        for _ in range(whole.count(b" HTTP/1.1")):
            await caller.answer()
        try:
            return await caller.hung_up()
        finally:
            await caller.close()

    async with asyncio.timeout(shell.PATIENCE):  # an idle connection is kept for 300 s
        assert all(await asyncio.gather(*map(is_hung_up_on, arriving)))


@pytest.mark.parametrize("whole", [SHORT, WAITING, WITHOUT_BODY])
async def test_sequential_requests_keep_the_connection_open_however_their_bytes_arrive(hasty, whole):
    async def ask(caller: shell.Caller, parts: list[bytes]) -> None:
        for part in parts:
            await caller.send(part)
            await asyncio.sleep(0.02)  # so that it arrives alone
        assert (await caller.answer()).status == 200

    callers = []
    for parts in pieces(whole):
        callers.append((await hasty.open(), parts))
        await ask(*callers[-1])  # the first byte has a deadline too
    for caller, parts in callers:
        await ask(caller, parts)
    await asyncio.sleep(DEADLINE + 0.5)  # idle is not slow
    for caller, _ in callers:
        assert (await caller.ask(b"1")).status == 200
        await caller.close()


@pytest.mark.parametrize(
    ("sent", "hard"),  # hard: a reset, as a scanner of ports or a killed process sends
    [
        (b"POST /ec", True),
        (SHORT[:-1], False),
        (CHUNKED[:-7], True),
        (SHORT + HALF, False),
        (WITHOUT_BODY, True),
        (SHORT.replace(b"/echo", b"/patient"), False),
        (SHORT.replace(b"/echo", b"/patient"), True),
        (WAITING, True),
        (WAITING + HALF, False),
    ],
)
async def test_a_caller_that_hangs_up_leaves_no_line_in_the_log(plain, caplog, sent, hard):
    caller = await plain.open()
    await caller.send(sent)
    await shell.until(lambda: plain.service.connections)
    await asyncio.sleep(0.05)  # so that what it has sent is being read
    if hard:
        caller.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    caller.writer.transport.abort() if hard else await caller.close()
    await shell.until(lambda: not plain.service.connections)
    assert await still_answers(plain)
    assert not caplog.records


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",  # TLS to a plain port
        b"NONSENSE\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nContent-Length: minus one\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"a" * 70000 + b"\r\n\r\n",
    ],
)
async def test_bytes_that_are_no_http_get_400_without_a_traceback(plain, caplog, sent):
    caller = await plain.open()
    await caller.send(sent)
    answer = await caller.answer()
    assert answer.status == 400
    assert reason(answer).startswith("not valid HTTP/1.1")
    assert await caller.hung_up()
    await caller.close()
    assert not caplog.records
    assert await still_answers(plain)


@pytest.mark.parametrize(
    ("path", "shed", "content_type"),
    [
        ("/slow", True, "application/json"),
        ("/slow/long", True, "application/json; charset=utf-8"),
        ("/slow/patient", False, "application/json"),
    ],
)
async def test_requests_beyond_the_budget_get_429_and_are_answered_later(counters, path, shed, content_type):
    async with shell.running(TABLE, counters=counters, loop_budget_seconds=0.1) as server:
        callers = [await server.open() for _ in range(12)]
        answers = await asyncio.gather(
            *(caller.ask(b"[1]", path=path, Content_Type=content_type) for caller in callers)
        )
        given = sorted(answer.status for answer in answers)
        refused = [answer for answer in answers if answer.status == 429]
        assert given[0] == 200
        assert (given[-1] == 429) is shed, given
        for answer in refused:
            assert answer.headers["retry-after"] == "1", "an API server tries again only at a whole number"
            assert "try again in 1 s" in reason(answer)
        for caller in callers:
            await caller.close()
        caller = await server.open()
        for _ in range(5):
            assert (await caller.ask(b"[1]", path=path)).status == 200, "one at a time nobody waits"
        await caller.close()
    assert counters.http_rejected.labels("429")._value.get() == len(refused)


async def test_connections_beyond_the_limit_are_refused_and_those_before_are_served():
    async with shell.running(connections=3) as server:
        first = [await server.open() for _ in range(3)]
        for caller in first:
            assert (await caller.ask(b"1")).status == 200
        fourth = await server.open()
        assert await fourth.hung_up()
        assert (await first[0].ask(b"2")).status == 200
        await first[1].close()
        await shell.until(lambda: len(server.service.connections) == 2)
        fifth = await server.open()
        assert (await fifth.ask(b"3")).status == 200
        for caller in (*first, fourth, fifth):
            await caller.close()


async def open_from(address: str, port: int) -> shell.Caller:
    return shell.Caller(*await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0)))


async def is_served(caller: shell.Caller) -> bool:
    try:
        return (await caller.ask(b"1")).status == 200
    except (ConnectionError, EOFError, ValueError, IndexError):
        return False


async def test_the_connections_of_one_address_are_limited_and_others_connect():
    async with shell.running(connections=20, peer_connections=2) as server:
        greedy = [await open_from("127.0.0.1", server.port) for _ in range(20)]
        served = [caller for caller in greedy if await is_served(caller)]
        assert len(served) == 10
        others = [await open_from("127.0.0.2", server.port) for _ in range(3)]
        assert [await is_served(caller) for caller in (*served, *others)] == [True] * 13
        await served[0].close()
        await shell.until(lambda: len(server.service.connections) == 12)
        again = await open_from("127.0.0.1", server.port)
        assert not await is_served(again), "nine of its own, seven are left"
        for caller in (*greedy, *others, again):
            await caller.close()
        await shell.until(lambda: not server.service.peers)


async def test_an_address_has_its_own_connections_however_few_are_left():
    async with shell.running(connections=20, peer_connections=15) as server:
        callers = [await open_from("127.0.0.1", server.port) for _ in range(16)]
        assert [await is_served(caller) for caller in callers] == [True] * 15 + [False]
        for caller in callers:
            await caller.close()


async def test_an_asynchronous_handler_sees_parameters_headers_query_and_peer(plain):
    caller = await plain.open()
    answer = await caller.ask(path="/explain/train/w-0?q=1&q=2", method="GET", Authorization="Bearer t")
    document = json.loads(answer.body)
    assert document == {"namespace": "train", "pod": "w-0", "token": "Bearer t", "peer": "127.0.0.1", "q": "1"}
    missing = await caller.ask(path="/explain/train/none", method="GET", Authorization="Bearer t")
    assert missing.status == 404


async def test_requests_are_counted_by_route_and_outcome_and_refusals_by_status(plain, counters):
    caller = await plain.open()
    await caller.ask(b"1", path="/picky")
    await caller.ask(b"bad", path="/picky")
    await caller.ask(b"bug", path="/picky")
    await caller.ask(b"1", path="/nowhere-with-a-name-of-the-callers-choice")
    await caller.close()
    text = counters.format_exposition().decode()
    assert 'railwright_webhook_requests_total{outcome="allowed",path="/picky"} 1.0' in text
    assert 'railwright_webhook_requests_total{outcome="malformed",path="/picky"} 1.0' in text
    assert 'railwright_webhook_requests_total{outcome="failed",path="/picky"} 1.0' in text
    assert 'railwright_http_rejected_total{code="404"} 1.0' in text
    assert "nowhere" not in text
    assert "railwright_extender" not in text


async def test_a_reason_of_readiness_is_bounded_and_printable(caplog):
    checks = probes.Probes()
    checks.add("policy", lambda: "fabrics.roce: \n\x1b[31m" + "x" * 100_000)
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
    checks.add("policy", lambda: reasons["policy"])
    checks.add("nodes", lambda: reasons["nodes"])
    async with shell.running(checks=checks) as server:
        answer = await server.ops("/readyz")
        assert answer.status == 503
        assert json.loads(answer.body) == {"ready": False, "checks": {"policy": "ok", "nodes": reasons["nodes"]}}
        assert (await server.ops("/livez")).status == 200
        reasons["nodes"] = None
        assert (await server.ops("/readyz")).status == 200
        assert (await server.ops("/metrics")).headers["content-type"].startswith("text/plain; version=")
        assert (await server.ops("/nothing")).status == 404
