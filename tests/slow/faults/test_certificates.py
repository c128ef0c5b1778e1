"""Faults of certificates and clocks, on the server's own TLS."""

import datetime as dt
import json

import pytest
import shell
from cryptography import x509

from railwright.serving import metrics, tls

HOUR = dt.timedelta(hours=1)


@pytest.mark.parametrize(("left", "ready"), [(30, False), (59, False), (300, True)])
async def test_25_an_expiring_certificate_makes_the_server_not_ready(tmp_path, left, ready):
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


async def test_29_certificates_stay_valid_with_a_wrong_clock(tmp_path):
    authority = shell.Authority(tmp_path)
    pair = authority.leaf("fresh")
    place = shell.write_pair(tmp_path, pair)
    begins = x509.load_pem_x509_certificate(pair.certificate_pem).not_valid_before_utc
    assert authority.now - begins >= HOUR
    for skew in (-10, 0, 10):
        clock = [authority.now + dt.timedelta(minutes=skew)]
        certificate = tls.Certificate(*place, now=lambda clock=clock: clock[0])
        assert certificate.find_expiry_problem() is None, skew
        clock[0] += 5 * HOUR  # a jump, or a night asleep
        assert certificate.find_expiry_problem() is None
        assert not certificate.reload()
        clock[0] = certificate.not_after - dt.timedelta(seconds=30)  # asleep until just before the end: noticed at once
        assert "renew it" in certificate.find_expiry_problem()
