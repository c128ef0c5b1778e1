"""Plain requests of immediate routes go a short way through the server; nobody can tell but by the cost."""

import pytest
import shell

from railwright.serving import metrics, routes

BODY = b'{"review": 1}'


def taken_long(server) -> int:
    """Requests that aiohttp's own way has taken."""
    return server.shell._service.requests_count


async def test_a_plain_request_goes_the_short_way_and_is_answered_as_by_the_long_one():
    async with shell.running(shell.ECHO) as server:
        caller = await server.open()
        short = await caller.ask(BODY)
        assert taken_long(server) == 0
        long = await caller.ask(BODY, path="/long")
        assert taken_long(server) == 1
        assert (short.status, short.body) == (long.status, long.body) == (200, BODY)
        assert short.headers.keys() == long.headers.keys()
        assert {k: v for k, v in short.headers.items() if k != "date"} == {
            k: v for k, v in long.headers.items() if k != "date"
        }
        await caller.close()


@pytest.mark.parametrize(
    "changed",
    [
        {"Content_Type": "application/json; charset=utf-8"},
        {"Connection": "close"},
        {"Expect": "100-continue"},
        {"Content_Encoding": "identity"},
    ],
)
async def test_what_is_not_plain_goes_the_long_way_and_is_answered_all_the_same(changed):
    async with shell.running(shell.ECHO) as server:
        caller = await server.open()
        answer = await caller.ask(BODY, **changed)
        if answer.status == 100:
            answer = await caller.answer()
        assert (answer.status, answer.body) == (200, BODY)
        assert taken_long(server) == 1
        await caller.close()


async def test_requests_in_one_packet_are_answered_in_their_order_and_those_after_them_too():
    async with shell.running(shell.ECHO) as server:
        caller = await server.open()
        one = b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1\r\n\r\n"
        await caller.send(one + b"1" + one + b"2" + one + b"3")
        assert [(await caller.answer()).body for _ in range(3)] == [b"1", b"2", b"3"]
        assert (await caller.ask(b"4")).body == b"4"
        await caller.close()


async def test_a_request_in_pieces_is_answered_and_the_next_whole_one_goes_the_short_way():
    async with shell.running(shell.ECHO) as server:
        caller = await server.open()
        head = b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 4\r\n\r\n"
        for piece in (head[:30], head[30:], b"12"):
            await caller.send(piece)
            await shell.until(lambda: True)
        await caller.send(b"34")
        assert (await caller.answer()).body == b"1234"
        long = taken_long(server)
        assert (await caller.ask(BODY)).body == BODY
        assert taken_long(server) == long
        await caller.close()


async def test_an_idle_connection_is_closed_after_its_time_by_the_short_way_too():
    async with shell.running(shell.ECHO, keepalive_seconds=0.3) as server:
        caller = await server.open()
        await caller.ask(BODY)
        assert await caller.hung_up()
        await caller.close()


async def test_the_query_and_the_peer_reach_an_immediate_handler_and_errors_are_json():
    def shown(call: routes.Call) -> routes.Reply:
        if call.query.get("fail"):
            raise ValueError("secret")
        return routes.Reply(f"{call.query['timeout']} {call.peer} {call.headers['X-Some']}".encode())

    counters = metrics.Metrics("webhook")
    table = (routes.Route("/shown", shown, immediate=True),)
    async with shell.running(table, counters=counters) as server:
        caller = await server.open()
        answer = await caller.ask(BODY, path="/shown?timeout=5s&timeout=6s", X_Some="thing")
        assert answer.body == b"5s 127.0.0.1 thing"
        failed = await caller.ask(BODY, path="/shown?timeout=5s&fail=1")
        assert failed.status == 500
        assert b"secret" not in failed.body
        assert b"/shown failed because of a bug in railwright; see" in failed.body
        assert taken_long(server) == 0
        samples = server.shell._counters.exposition().decode()
        assert 'railwright_webhook_requests_total{outcome="failed",path="/shown"} 1.0' in samples
        await caller.close()
