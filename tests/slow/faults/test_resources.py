"""Faults of the machine: no more file descriptors, and a full disk."""

import asyncio
import json
import os
import resource

import admitting
import processes
import reserved_ports
import shell

REVIEWS = "/mutate/pods?timeout=5s"


def limit_resources(**limits: int):
    """Return a function that sets these resource limits in a new process."""

    def set_limits() -> None:
        for name, most in limits.items():
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (most, most))

    return set_limits


async def is_admitting(server) -> bool:
    try:
        caller = await server.open()
        try:
            answer = await caller.ask(admitting.review(admitting.pod()), path=REVIEWS)
            return answer.status == 200 and json.loads(answer.body)["response"]["allowed"]
        finally:
            await caller.close()
    except (ConnectionError, asyncio.IncompleteReadError):
        return False


async def crowd(server, count: int, port: int = 0) -> list[shell.Caller]:
    """Connect from 20 addresses, because the connections of one address are limited."""
    callers = []
    for number in range(count):
        own = (f"127.0.0.{number % 20 + 2}", 0)
        callers.append(shell.Caller(*await asyncio.open_connection("127.0.0.1", port or server.port, local_addr=own)))
    return callers


async def test_58_the_webhook_survives_exhausted_file_descriptors_and_a_full_disk(tmp_path, started):
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # of this process, which opens the other ends
    place = ("--plain-http", *processes.without_cluster(tmp_path))
    server = await started("webhook", *place, before=limit_resources(NOFILE=1024, FSIZE=0))
    first = await server.open()
    assert (await first.ask(admitting.review(admitting.pod()), path=REVIEWS)).status == 200
    callers = await crowd(server, 1100)
    await shell.until(lambda: count_refused(callers) >= 300)
    assert (await server.ops("/readyz")).status == 200, "probes have descriptors left"
    assert (await first.ask(admitting.review(admitting.pod()), path=REVIEWS)).status == 200
    callers += await crowd(server, 400, server.ops_port)  # now there are none left to accept with
    await asyncio.sleep(0.5)  # for which the accept loop has nothing
    opened = len(os.listdir(f"/proc/{server.pid}/fd"))  # noqa: PTH208 - counted only
    assert opened > 1000
    for caller in callers:
        caller.writer.transport.abort()
    await shell.until(lambda: is_admitting(server))
    assert (await server.ops("/readyz")).status == 200
    await first.close()
    assert await server.end() == 0
    assert "Traceback" not in server.log
    silent = await without_stderr(started, place)
    assert await is_admitting(silent)
    assert await silent.end() == 0


def count_refused(callers: list[shell.Caller]) -> int:
    return sum(caller.reader.at_eof() for caller in callers)


async def without_stderr(started, place):
    """Return a server whose log is on a full disk, with ports chosen in advance."""
    with reserved_ports.reserve() as service, reserved_ports.reserve() as ops:
        full = os.open("/dev/full", os.O_WRONLY)
        ports = ("--listen", f"127.0.0.1:{service}", "--ops-listen", f"127.0.0.1:{ops}")
        server = await started("webhook", *place, *ports, stderr=full, is_ready=False)
        os.close(full)
        server.port, server.ops_port = service, ops
        await server.ready()
    return server
