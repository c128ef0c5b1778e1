"""Requests over real sockets: what handlers see, and what becomes of a connection."""

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator

import shell

from railwright.serving import metrics, routes

BODY = b'{"review": 1}'


async def test_garbage_after_a_request_closes_the_connection_without_a_log_line(caplog):
    async with shell.running(shell.ECHO) as server:
        for parts in ([b"NONSENSE\r\n\r\n"], [b"POST * HTTP/1.1\r\n", b"Host: x\r\n\r\n"], [b"X" * 100_000] * 5):
            caller = await server.open()
            await caller.send(shell.head(1) + b"1")
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


async def test_a_request_in_flight_is_answered_before_its_connection_is_closed():
    async def wait(call: routes.Call) -> routes.Reply:
        await asyncio.sleep(0.4)
        return routes.Reply(call.body)

    head = shell.head(1, "/wait")
    async with shell.running((routes.Route("/wait", wait),), header_seconds=0.1) as server:
        caller = await server.open()
        await caller.send(head + b"1" + head[:20])
        assert (await caller.answer()).body == b"1"
        assert await caller.hung_up()


async def test_a_client_that_reads_nothing_is_answered_no_further_and_then_cut_off():
    def answer(call: routes.Call) -> routes.Reply:
        return routes.Reply(call.body * 1_000_000)

    counters = metrics.Metrics("webhook")
    table = (routes.Route("/large", answer),)
    async with shell.running(table, counters=counters, keepalive_seconds=0.3) as server:
        caller = await server.open()
        await caller.send((shell.head(1, "/large") + b"1") * 200)
        await shell.until(lambda: not server.service.connections)
        text = counters.format_exposition().decode()
        answered = float(re.search(r'webhook_requests_total{outcome="ok",path="/large"} (\S+)', text)[1])
        assert answered < 50, "the rest waits until the client reads"


async def test_a_stream_ends_where_its_client_hangs_up_and_its_generator_is_closed():
    closed = asyncio.Event()

    async def count_up() -> AsyncGenerator[bytes, None]:
        try:
            yield b"first"
            await asyncio.Event().wait()
        finally:
            closed.set()

    table = (routes.Route("/stream", lambda _: routes.Reply(b"", stream=count_up()), "GET"),)
    async with shell.running(table) as server:
        caller = await server.open()
        await caller.send(b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await caller.reader.readuntil(b"first")).startswith(b"HTTP/1.1 200 OK\r\n")
        await caller.close()
        async with asyncio.timeout(shell.PATIENCE):
            await closed.wait()
        await shell.until(lambda: not server.service.connections)


async def test_a_stream_that_fails_is_logged_once_and_its_connection_is_closed(caplog):
    async def fail() -> AsyncGenerator[bytes, None]:
        yield b"first"
        raise KeyError("secret")

    table = (*shell.ECHO, routes.Route("/stream", lambda _: routes.Reply(b"", stream=fail()), "GET"))
    async with shell.running(table) as server:
        caller = await server.open()
        await caller.send(b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
        async with asyncio.timeout(shell.PATIENCE):
            assert (await caller.reader.read()).endswith(b"\r\n\r\nfirst")
        await caller.close()
        other = await server.open()
        assert (await other.ask(BODY)).body == BODY
        await other.close()
    assert [record.getMessage() for record in caplog.records] == ["a stream failed"]
