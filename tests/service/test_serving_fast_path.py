"""Plain requests are answered without aiohttp, by the fast path; clients see no difference but the speed."""

import asyncio
import contextlib
import re

import pytest
import shell

from railwright.serving import metrics, routes

BODY = b'{"review": 1}'


CHARSET = "application/json; charset=utf-8"  # not plain, so that aiohttp answers


def count_slow(server) -> int:
    """Return the number of requests that aiohttp has answered."""
    return server.shell._service.server.requests_count


async def test_a_plain_request_goes_the_short_way_and_is_answered_as_by_the_long_one():
    async with shell.running(shell.ECHO) as server:
        caller = await server.open()
        short = await caller.ask(BODY)
        assert count_slow(server) == 0
        long = await caller.ask(BODY, path="/long", Content_Type=CHARSET)
        assert count_slow(server) == 1
        assert (short.status, short.body) == (long.status, long.body) == (200, BODY)
        assert short.headers.keys() == long.headers.keys()
        assert {k: v for k, v in short.headers.items() if k != "date"} == {
            k: v for k, v in long.headers.items() if k != "date"
        }
        await caller.close()


@pytest.mark.parametrize(
    "changed",
    [
        {"Content_Type": CHARSET},
        {"Connection": "close"},
        {"Expect": "100-continue"},
        {"Content_Encoding": "identity"},
    ],
)
async def test_requests_that_are_not_plain_are_answered_by_aiohttp(changed):
    async with shell.running(shell.ECHO) as server:
        caller = await server.open()
        answer = await caller.ask(BODY, **changed)
        if answer.status == 100:
            answer = await caller.answer()
        assert (answer.status, answer.body) == (200, BODY)
        assert count_slow(server) == 1
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
        long = count_slow(server)
        assert (await caller.ask(BODY)).body == BODY
        assert count_slow(server) == long
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
        assert count_slow(server) == 0
        samples = server.shell._counters.format_exposition().decode()
        assert 'railwright_webhook_requests_total{outcome="failed",path="/shown"} 1.0' in samples
        await caller.close()


async def test_garbage_after_a_request_for_aiohttp_closes_the_connection_without_a_log_line(
    caplog,
):
    head = f"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: {CHARSET}\r\nContent-Length: 1\r\n\r\n".encode()
    async with shell.running(shell.ECHO) as server:
        for parts in ([b"NONSENSE\r\n\r\n"], [b"POST * HTTP/1.1\r\n", b"Host: x\r\n\r\n"], [b"X" * 100_000] * 5):
            caller = await server.open()
            await caller.send(head + b"1")
            assert (await caller.answer()).body == b"1"
            for part in parts:
                with contextlib.suppress(ConnectionError):
                    await caller.send(part)
                await asyncio.sleep(0.02)  # so that it arrives alone
            with contextlib.suppress(ConnectionError):
                assert b"NONSENSE" not in await caller.reader.read()
            await caller.close()
        caller = await server.open()
        assert (await caller.ask(BODY)).body == BODY
        await caller.close()
    assert not caplog.records


async def test_a_request_in_flight_at_aiohttp_is_answered_before_its_connection_is_closed():
    async def wait(call: routes.Call) -> routes.Reply:
        await asyncio.sleep(0.4)
        return routes.Reply(call.body)

    head = f"POST /wait HTTP/1.1\r\nHost: x\r\nContent-Type: {CHARSET}\r\nContent-Length: 1\r\n\r\n".encode()
    async with shell.running((routes.Route("/wait", wait),), header_seconds=0.1) as server:
        caller = await server.open()
        await caller.send(head + b"1" + head[:20])
        assert (await caller.answer()).body == b"1"
        assert await caller.hung_up()
        await caller.close()


async def test_a_client_that_reads_nothing_is_answered_no_further_and_then_cut_off():
    def answer(call: routes.Call) -> routes.Reply:
        return routes.Reply(call.body * 1_000_000)

    head = b"POST /large HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1\r\n\r\n1"
    counters = metrics.Metrics("webhook")
    table = (routes.Route("/large", answer, immediate=True),)
    async with shell.running(table, counters=counters, keepalive_seconds=0.3) as server:
        caller = await server.open()
        await caller.send(head * 200)
        await shell.until(lambda: not server.shell._service.connections)
        text = counters.format_exposition().decode()
        answered = float(re.search(r'webhook_requests_total{outcome="ok",path="/large"} (\S+)', text)[1])
        assert answered < 50, "the rest waits until the client reads"
        await caller.close()
