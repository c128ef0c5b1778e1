"""The end of a server: drained, at once, and by a failed task."""

import asyncio
import json
import pathlib
import signal

import processes
import pytest
import shell
from aiohttp import web

from railwright.serving import application, ports

LARGE = 1 << 20  # bytes of an answer that is not sent at once
PROGRAM = pathlib.Path(__file__).with_name("echo_server.py")


class Gate:
    """A handler that answers at an event."""

    def __init__(self) -> None:
        self.entered, self.opened = asyncio.Event(), asyncio.Event()

    async def answer(self, _request: web.Request) -> web.Response:
        self.entered.set()
        await self.opened.wait()
        return application.build_response(b'"late"')

    @property
    def table(self):
        return (*shell.ECHO, web.post("/slow", self.answer))


async def test_a_draining_server_is_not_ready_but_answers_requests():
    gate = Gate()
    async with shell.running(gate.table, "--drain-seconds", "30") as server:
        slow = await server.open()
        late = asyncio.ensure_future(slow.ask(path="/slow"))
        await gate.entered.wait()
        waiting = await server.open()
        assert (await waiting.ask(b"1")).headers.get("connection") is None
        server.shell.stop()
        await shell.until(lambda: server.rules.closing)
        answer = await server.ops("/readyz")
        assert answer.status == 503
        assert "draining" in json.loads(answer.body)["checks"]
        assert (await server.ops("/livez")).status == 200
        old = await waiting.ask(b"2" * LARGE)  # a pooled connection is answered and let go
        assert (old.status, old.headers["connection"]) == (200, "close")
        new = await server.open()  # as is one whose caller has not heard yet
        assert (await new.ask(b"3")).headers["connection"] == "close"
        assert not server.ended.done()
        assert not late.done()
        gate.opened.set()
        assert (await late).body == b'"late"'
        server.shell.stop()  # the rest of the drain is not worth waiting for
        assert await server.ended == 0
        for caller in (slow, waiting, new):
            await caller.close()


async def test_requests_in_flight_are_answered_after_the_drain_and_new_connections_refused():
    gate = Gate()
    async with shell.running(gate.table) as server:
        slow, idle = await server.open(), await server.open()
        late = asyncio.ensure_future(slow.ask(path="/slow"))
        await gate.entered.wait()
        await idle.ask(b"1")
        server.shell.stop()
        await shell.until(lambda: server.rules.closing)
        await asyncio.sleep(0.1)  # so that the port is closed
        with pytest.raises(ConnectionRefusedError):
            await server.open()
        assert (await server.ops("/livez")).status == 200  # probes and metrics until the very end
        gate.opened.set()
        assert (await late).body == b'"late"'
        assert await idle.is_disconnected()
        assert await server.ended == 0


async def test_a_request_in_flight_is_aborted_at_the_end_of_the_grace_period(monkeypatch):
    monkeypatch.setattr(ports, "FINISH_SECONDS", 0.2)
    gate = Gate()
    async with shell.running(gate.table) as server:
        slow = await server.open()
        late = asyncio.ensure_future(slow.ask(path="/slow"))
        await gate.entered.wait()
        server.shell.stop()
        with pytest.raises(asyncio.IncompleteReadError):
            await late
        async with asyncio.timeout(shell.PATIENCE):
            assert await server.ended == 0


async def test_a_background_task_that_fails_ends_the_server_with_its_reason_in_the_log(caplog):
    failing = asyncio.Event()

    async def task() -> None:
        await failing.wait()
        raise LookupError("the watch of nodes is lost")

    async with shell.running(tasks=[task]) as server:
        caller = await server.open()
        assert (await caller.ask(b"1")).status == 200
        failing.set()
        assert await server.ended == 1
        await caller.close()
    record = next(record for record in caplog.records if record.levelname == "CRITICAL")
    assert "the watch of nodes is lost" in repr(record.exc_info[1])


# --- as a user starts it ------------------------------------------------------------------------------


@pytest.fixture
async def start():
    started: list[processes.Process] = []

    async def begin(*arguments: str, waits: bool = True) -> processes.Process:
        environment = {"PYTHONWARNINGS": "error"}
        server = await processes.begin(PROGRAM, "--plain-http", *arguments, environment=environment, waits=waits)
        started.append(server)
        return server

    yield begin
    for server in started:
        await server.end()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_the_process_with_exit_code_0_and_json_logs(start, number):
    server = await start()
    assert (await (await server.open()).ask(b"[1]")).body == b"[1]"
    await server.close_callers()
    server.process.send_signal(number)
    await server.process.wait()
    assert await server.end() == 0
    others = [line for line in server.log.splitlines() if "listening on" not in line]
    settings = json.loads(others[0])["fields"]
    assert settings["plain_http"] is True
    assert settings["server"] == "webhook"
    assert all(json.loads(line)["level"] == "info" for line in others)


async def test_a_port_in_use_ends_the_start_with_one_sentence(start):
    first = await start()
    second = await start("--listen", f"127.0.0.1:{first.port}", waits=False)
    await second.process.wait()
    assert await second.end() == 1
    assert "Traceback" not in second.log
    assert f"cannot listen on 127.0.0.1:{first.port}: Address already in use" in second.log
