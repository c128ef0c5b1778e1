"""Faults of certificates and clocks, on the server's own TLS."""

import ast
import asyncio
import datetime as dt
import json
import pathlib
import time

import admitting
import processes
import pytest
import shell
from cryptography import x509

from railwright.serving import metrics, tls

ROOT = pathlib.Path(__file__).parents[3]
HOUR = dt.timedelta(hours=1)
MOST_RUNNING = 50  # requests
# Where the wall clock is right: dates of certificates and Events, the Date header. Intervals take the monotonic clock.
WALL_CLOCK = {
    "railwright/serving/tls.py": "a certificate's dates",
    "railwright/cluster/events.py": "time stamps of Events",
}


def files(certificate, key) -> tuple[str, ...]:
    return ("--tls-cert", str(certificate), "--tls-key", str(key))


@pytest.mark.parametrize(("left", "ready"), [(30, False), (59, False), (300, True)])
async def test_25_an_ending_certificate_makes_the_server_not_ready(fault, tmp_path, left, ready):
    authority = shell.Authority(tmp_path)
    pair = authority.leaf("short", lifetime=dt.timedelta(seconds=left))
    place = files(*shell.write_pair(tmp_path, pair))
    async with shell.running(shell.ECHO, *place, counters=metrics.Metrics("webhook")) as running:
        answer = await running.ops("/readyz")
        assert answer.status == (200 if ready else 503)
        assert ("renew it" in json.loads(answer.body)["checks"]["certificate"]) is not ready
        assert (await running.ops("/livez")).status == 200
        exposition = (await running.ops("/metrics")).body.decode()
        expiry = next(line for line in exposition.splitlines() if line.startswith("railwright_certificate_expiry"))
        assert abs(float(expiry.split()[1]) - (authority.now.timestamp() + left)) < 2
        # whoever calls still is answered
        assert await running.read_serial(authority.context()) == shell.serial_of(pair)
    fault.saw(f"{left} s left: {'ready' if ready else 'not ready, alive, still answering'}, as the metric shows")


async def test_26_a_certificate_is_rotated_under_200_requests_a_second(fault, tmp_path, started):
    authority = shell.Authority(tmp_path)
    first, second = authority.leaf("first"), authority.leaf("second")
    place = files(*shell.write_pair(tmp_path, first))
    server = await started("webhook", *place, *processes.without_cluster(tmp_path))
    context = authority.context()
    body = admitting.review(admitting.pod())
    callers = [await server.open(context) for _ in range(4)]
    idle = asyncio.Queue()
    for caller in callers:
        idle.put_nowait(caller)
    failed, seen = [], {}

    async def send_one(number: int) -> None:
        fresh = number % 4 == 0  # 50 connections a second are new
        caller = await server.open(context) if fresh else await idle.get()
        try:
            answer = await caller.ask(body, path="/mutate/pods?timeout=5s")
            assert answer.status == 200
            seen.setdefault(caller.serial, [0, 0])[fresh] += 1
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a failed request
            failed.append(error)
        finally:
            if fresh:
                await caller.close()
            else:
                idle.put_nowait(caller)

    began, sent, running, last = time.monotonic(), 0, set(), 4000
    while sent < last:
        if sent == 200:
            shell.write_pair(tmp_path, second)
        if last == 4000 and shell.serial_of(second) in seen:
            last = sent + 200  # a second more with the new one
        task = asyncio.ensure_future(send_one(sent))
        running.add(task)
        task.add_done_callback(running.discard)
        sent += 1
        if len(running) >= MOST_RUNNING:  # this machine has no more to give at the moment
            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.sleep(max(0.0, began + sent / 200 - time.monotonic()))  # the rate of the load
    seconds = time.monotonic() - began
    await asyncio.gather(*running)
    for caller in callers:
        await caller.close()
    assert failed == []
    new, old = seen[shell.serial_of(second)], seen[shell.serial_of(first)]
    assert new[1] > 0
    assert new[0] == 0, "open connections live on with the certificate they began with"
    assert sent >= 400, "many before and many after it"
    fault.saw(
        f"{sent:,} requests at {sent / seconds:.0f} a second, 0 failed; {old[1] + new[1]} on new connections, "
        f"{new[1]} of them with the new certificate; 4 open connections stayed open"
    )


async def test_29_a_wrong_clock_costs_no_handshake(fault, tmp_path):
    authority = shell.Authority(tmp_path)
    pair = authority.leaf("fresh")
    place = shell.write_pair(tmp_path, pair)
    begins = x509.load_pem_x509_certificate(pair.certificate_pem).not_valid_before_utc
    assert authority.now - begins >= HOUR
    for skew in (-10, 0, 10):
        clock = [authority.now + dt.timedelta(minutes=skew)]
        source = tls.Certificate(*place, now=lambda clock=clock: clock[0])
        assert source.check() is None, skew
        clock[0] += 5 * HOUR  # a jump, or a night asleep
        assert source.check() is None
        assert not source.reload()
        clock[0] = source.not_after - dt.timedelta(seconds=30)  # asleep until just before the end: noticed at once
        assert "renew it" in source.check()
    clocks = wall_clocks()
    assert clocks <= WALL_CLOCK.keys(), "intervals take time.monotonic(); dates of certificates the wall clock"
    fault.saw(
        f"a new certificate is valid {(authority.now - begins) // dt.timedelta(minutes=1)} min back; clocks 10 "
        "min off and "
        f"5 h ahead: ready; the wall clock is read in {len(clocks)} files of the servers, none for an interval"
    )


def wall_clocks() -> set[str]:
    """Return the server files that read the wall clock."""
    reading = set()
    for package in ("railwright/serving", "railwright/cluster", "webhook", "extender", "railwright/fabric"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Attribute) and ast.unparse(node) in (
                    "time.time",
                    "time.time_ns",
                    "dt.datetime.now",
                    "datetime.datetime.now",
                    "dt.datetime.utcnow",
                ):
                    reading.add(str(path.relative_to(ROOT)))
    return reading
