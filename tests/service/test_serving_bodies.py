"""Bodies that arrive in parts, on both event loops, in plain and over TLS."""

import asyncio
import pathlib
import random
import ssl
import sys

import pytest
import shell
import uvloop

from railwright.serving import messages, routes

LARGE = 3 << 20
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


def on_every_loop(scenario):
    """Return the scenario as a test on either event loop: they change protocols in ways of their own."""

    @pytest.mark.parametrize("loop", LOOPS)
    def test(loop, tmp_path):
        with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
            runner.run(scenario(tmp_path))

    test.__name__ = scenario.__name__
    return test


def text(length: int) -> bytes:
    """Return a text of which no two parts are equal, so that a part in a wrong place shows."""
    return random.Random(length).randbytes(length)  # noqa: S311 - the same every time


async def send_in_parts(server: shell.Running, context: ssl.SSLContext | None) -> None:
    """Send bodies of several lengths, each head alone, and assert that they are echoed."""
    caller = await server.open(context)
    for length in (2, 9300, messages.SMALL, messages.SMALL + 1, LARGE, 100, LARGE - 1):
        body = text(length)
        await caller.send(shell.head(length))
        await asyncio.sleep(0.02)  # so that the head arrives alone
        await caller.send(body[: length // 2])
        await asyncio.sleep(0.02)
        await caller.send(body[length // 2 :])
        answer = await caller.answer()
        assert (answer.status, answer.body == body) == (200, True)


@on_every_loop
async def test_a_body_in_parts_is_whole_for_the_handler(folder):
    async with shell.running() as server:
        await send_in_parts(server, None)


@on_every_loop
async def test_bodies_are_received_in_place_over_tls(folder):
    authority = shell.Authority(folder)
    async with shell.running(shell.ECHO, *authority.write_options("server")) as server:
        await send_in_parts(server, authority.context())


@on_every_loop
async def test_the_request_behind_a_large_one_in_the_same_packet_is_the_next_one(folder):
    async with shell.running() as server:
        caller = await server.open()
        await caller.send(shell.head(LARGE) + text(LARGE)[:10])
        await caller.send(
            text(LARGE)[10:] + shell.head(3) + b"two" + shell.head(LARGE) + text(LARGE) + shell.head(4) + b"four"
        )
        answers = [(await caller.answer()).body for _ in range(4)]
        assert answers == [text(LARGE), b"two", text(LARGE), b"four"]


@on_every_loop
async def test_two_large_bodies_at_the_same_time_do_not_share_their_room(folder):
    async with shell.running() as server:
        one, two = await server.open(), await server.open()
        first, second = text(LARGE), text(LARGE + 1)
        for _ in range(2):
            await one.send(shell.head(len(first)) + first[:1000])
            await two.send(shell.head(len(second)) + second[:1000])
            await one.send(first[1000:])
            assert (await one.answer()).body == first
            await two.send(second[1000:])
            assert (await two.answer()).body == second


@on_every_loop
async def test_bytes_that_a_handler_keeps_of_a_body_do_not_change(folder):
    bodies = []

    def keep(call: routes.Call) -> routes.Reply:
        bodies.append(memoryview(call.body))
        return routes.Reply(b"{}")

    async with shell.running((routes.Route("/echo", keep),)) as server:
        caller = await server.open()
        for length in (LARGE, LARGE - 1):
            await caller.send(shell.head(length))
            await asyncio.sleep(0.02)
            await caller.send(text(length))
            assert (await caller.answer()).status == 200
        assert [bytes(body) for body in bodies] == [text(LARGE), text(LARGE - 1)]
        await caller.close()
        bodies.clear()


class Arrivals:
    """Records how many bytes of how many have arrived, each time that some do."""

    def __init__(self):
        self.sizes = []

    def read(self, body, size):
        self.sizes.append((size, len(body)))


@on_every_loop
async def test_a_body_of_more_than_8_mib_is_read_while_it_arrives(folder):
    readers = []

    def keep(call: routes.Call) -> routes.Reply:
        readers.append(call.reader)
        return routes.Reply(b"")

    async with shell.running((routes.Route("/echo", keep, build_reader=Arrivals),), max_body=16 << 20) as server:
        caller = await server.open()
        for length in (8 << 20, (8 << 20) + 1):
            await caller.send(shell.head(length) + text(length))
            assert (await caller.answer()).status == 200
        none, arrivals = readers
        assert none is None
        assert len(arrivals.sizes) > 1
        assert arrivals.sizes[-1] == (length, length)


@on_every_loop
async def test_the_idle_time_does_not_count_while_a_body_arrives(folder):
    async with shell.running(keepalive_seconds=1.0) as server:
        caller = await server.open()
        assert (await caller.ask(b"1")).status == 200
        await caller.send(shell.head(4) + b"1")
        await asyncio.sleep(1.5)
        await caller.send(b"234")
        assert (await caller.answer()).body == b"1234"
        assert await caller.hung_up()  # then it counts again


@on_every_loop
async def test_a_body_that_arrives_when_the_drain_ends_is_answered_and_its_connection_closed(folder):
    async with shell.running() as server:
        caller = await server.open()
        await caller.send(shell.head(LARGE) + text(LARGE)[:10])
        await asyncio.sleep(0.05)
        server.shell.stop()
        await shell.until(lambda: server.service.dispatcher.closing)
        await asyncio.sleep(0.1)
        await caller.send(text(LARGE)[10:])
        answer = await caller.answer()
        assert (answer.body == text(LARGE), answer.headers["connection"]) == (True, "close")
        assert await caller.hung_up()
        await caller.close()
        assert await server.ended == 0


def resident() -> int:
    """KiB of this process that are in memory."""
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1])


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_room_that_was_announced_and_not_filled_takes_no_memory():
    before = resident()
    held = [messages.SizedBody(256 << 20, b"{") for _ in range(4)]
    assert resident() - before < 16 << 10
    assert len(held) == 4
