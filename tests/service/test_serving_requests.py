"""Requests over real sockets: the handlers' view, and the state of the connection afterwards."""

import asyncio

import shell

BODY = b'{"review": 1}'
LARGE = 20 << 20  # bytes


async def test_bodies_in_any_parts_are_received_whole_with_and_without_tls(tmp_path):
    authority = shell.Authority(tmp_path)
    for context, options in ((None, ()), (authority.context(), authority.write_options("server"))):
        async with shell.running(shell.ECHO, *options, max_body=LARGE) as server:
            caller = await server.open(context)
            for length in (2, 9300, 65_537, 3 << 20, LARGE, 100):
                body = bytes(range(256)) * (length // 256) + b"x" * (length % 256)
                await caller.send(shell.head(length))
                await asyncio.sleep(0.02)  # so that the head arrives alone
                sending = asyncio.create_task(caller.send(body))
                answer = await caller.answer()
                await sending
                assert (answer.status, answer.body == body) == (200, True)


async def test_several_requests_without_a_body_are_answered_on_one_connection():
    """All of them share one stream of aiohttp's."""
    async with shell.running() as server:
        caller = await server.open()
        for _ in range(3):
            assert (await caller.ask(b"")).body == b""


async def test_small_requests_are_answered_while_a_large_body_arrives():
    async with shell.running(max_body=LARGE) as server:
        large, small = await server.open(), await server.open()
        await large.send(shell.head(LARGE) + b"1" * (LARGE // 2))
        assert (await small.ask(BODY)).body == BODY
        sending = asyncio.create_task(large.send(b"1" * (LARGE // 2)))
        assert (await large.answer()).body == b"1" * LARGE
        await sending
