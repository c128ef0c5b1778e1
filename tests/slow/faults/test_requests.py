"""Faults of what callers send: bodies that do not end, or come over a bad network."""

import asyncio
import json
import time

import admitting
import processes
import shell
from proxy import Proxy

MIB = 1 << 20


def head(path: str, more: str) -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{more}\r\n\r\n".encode()


def admits(answer: shell.Answer) -> bool:
    return answer.status == 200 and json.loads(answer.body)["response"]["allowed"]


async def test_31_an_endless_chunked_body_is_cut(fault, tmp_path, started):
    server = await started("webhook", "--plain-http", *processes.without_cluster(tmp_path))
    chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"

    async def endless() -> tuple[int, int]:
        """Send an endless body. Return the status, and the number of bytes sent before it."""
        caller = await server.open()
        await caller.send(head("/mutate/pods", "Transfer-Encoding: chunked"))
        answering, sent = asyncio.ensure_future(caller.answer()), 0
        while not answering.done() and sent < 32 * MIB:
            await caller.send(chunk)
            sent += 65536
            await asyncio.sleep(0)
        answer = await answering
        await caller.close()
        return answer.status, sent

    await endless()
    before = server.memory()
    statuses = [(await endless())[0] for _ in range(8)]
    at_once = await asyncio.gather(*(endless() for _ in range(8)))
    grown = server.memory() - before
    assert set(statuses) == {413}
    assert {status for status, _ in at_once} == {413}
    assert grown < 8 * 7 * MIB + 16 * MIB, "more than the bodies that were under way at once"
    caller = await server.open()
    assert admits(await caller.ask(admitting.review(admitting.pod()), path="/mutate/pods"))
    await caller.close()
    fault.saw(
        f"16 endless bodies, 8 of them at once: 16 times 413 at 7 MiB, {grown / MIB:.0f} MiB more memory, keeps "
        "answering"
    )


async def test_61_a_bad_network_stays_within_the_timeout(fault, tmp_path, started):
    authority = shell.Authority(tmp_path)
    server = await started("webhook", *authority.write_options("webhook"), *processes.without_cluster(tmp_path))
    env = [{"name": f"SETTING_{number}", "value": "a value of the usual length, as jobs have"} for number in range(100)]
    body, context, seconds = admitting.review(admitting.pod(admitting.gpus(8, env=env))), authority.context(), []
    assert len(body) > 8000, "of several packets"

    async def connection(port: int) -> None:
        caller = await server.open(context, port)
        for _ in range(4):
            began = time.monotonic()
            await caller.send(head("/mutate/pods?timeout=5s", f"Content-Length: {len(body)}"))
            await caller.send(body)  # apart, as Go writes them
            assert admits(await caller.answer())
            seconds.append(time.monotonic() - began)
        await caller.close()

    async with Proxy(server.port) as proxy:
        proxy.delay_seconds, proxy.loss = 0.15, 0.05
        await asyncio.gather(*(connection(proxy.port) for _ in range(20)))
        stalls = proxy.stalls
    seconds.sort()
    assert stalls > 0
    assert seconds[0] >= 0.3
    assert seconds[-1] < 5.0
    assert await server.metric("railwright_requests_total") == len(seconds)
    fault.saw(
        f"{len(seconds)} reviews over 20 connections, {stalls} stalls: median {seconds[len(seconds) // 2]:.2f} s, "
        f"slowest {seconds[-1]:.2f} s of 5 s; {len(seconds)} requests arrived, none twice"
    )
