"""Faults of certificates and clocks, on the server's own TLS."""

import ast
import datetime as dt
import json
import pathlib

import pytest
import shell
from cryptography import x509

from railwright.serving import metrics, tls

ROOT = pathlib.Path(__file__).parents[3]
HOUR = dt.timedelta(hours=1)
# Where the wall clock is right: dates of certificates and Events, the Date header. Intervals take the monotonic clock.
WALL_CLOCK = {
    "railwright/serving/tls.py": "a certificate's dates",
    "railwright/cluster/events.py": "time stamps of Events",
}


@pytest.mark.parametrize(("left", "ready"), [(30, False), (59, False), (300, True)])
async def test_25_an_ending_certificate_makes_the_server_not_ready(fault, tmp_path, left, ready):
    authority = shell.Authority(tmp_path)
    pair = authority.leaf("short", lifetime=dt.timedelta(seconds=left))
    certificate, key = shell.write_pair(tmp_path, pair)
    place = (f"--tls-cert={certificate}", f"--tls-key={key}")
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


async def test_29_a_wrong_clock_costs_no_handshake(fault, tmp_path):
    authority = shell.Authority(tmp_path)
    pair = authority.leaf("fresh")
    place = shell.write_pair(tmp_path, pair)
    begins = x509.load_pem_x509_certificate(pair.certificate_pem).not_valid_before_utc
    assert authority.now - begins >= HOUR
    for skew in (-10, 0, 10):
        clock = [authority.now + dt.timedelta(minutes=skew)]
        certificate = tls.Certificate(*place, now=lambda clock=clock: clock[0])
        assert certificate.check() is None, skew
        clock[0] += 5 * HOUR  # a jump, or a night asleep
        assert certificate.check() is None
        assert not certificate.reload()
        clock[0] = certificate.not_after - dt.timedelta(seconds=30)  # asleep until just before the end: noticed at once
        assert "renew it" in certificate.check()
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
