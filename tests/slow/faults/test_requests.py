"""Faults of requests: bodies that do not end."""

import asyncio
import json

import admitting
import processes
import shell

MIB = 1 << 20


def head(path: str, more: str) -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{more}\r\n\r\n".encode()


def is_admitted(answer: shell.Answer) -> bool:
    return answer.status == 200 and json.loads(answer.body)["response"]["allowed"]


async def test_31_an_endless_chunked_body_is_cut(fault, tmp_path, started):
    server = await started("webhook", "--plain-http", *processes.without_cluster(tmp_path))
    chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"

    async def send_endless() -> tuple[int, int]:
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

    await send_endless()
    before = server.memory()
    statuses = [(await send_endless())[0] for _ in range(8)]
    at_once = await asyncio.gather(*(send_endless() for _ in range(8)))
    grown = server.memory() - before
    assert set(statuses) == {413}
    assert {status for status, _ in at_once} == {413}
    assert grown < 8 * 7 * MIB + 16 * MIB, "more than the bodies that were under way at once"
    caller = await server.open()
    assert is_admitted(await caller.ask(admitting.review(admitting.pod()), path="/mutate/pods"))
    await caller.close()
    fault.saw(
        f"16 endless bodies, 8 of them at once: 16 times 413 at 7 MiB, {grown / MIB:.0f} MiB more memory, keeps "
        "answering"
    )
