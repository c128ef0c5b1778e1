"""Fields of a certificate; tests/service has strict TLS peers, Python's default from 3.13 on."""

import datetime as dt
import ipaddress

import pytest
from cryptography import x509

from certs import pki

NOW = dt.datetime(2030, 5, 1, 12, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)


@pytest.fixture
def authority():
    return pki.issue_ca("test root", now=NOW, lifetime=3650 * DAY)


def leaf(authority, **changes):
    defaults = {"common_name": "x", "hosts": ["127.0.0.1"], "usages": {"server"}, "now": NOW, "lifetime": DAY}
    return pki.issue_certificate(authority, **{**defaults, **changes})


def read(pair):
    return x509.load_pem_x509_certificate(pair.certificate_pem)


def extension(pair, kind):
    return read(pair).extensions.get_extension_for_class(kind)


def test_a_ca_may_not_sign_another_ca(authority):
    constraints = extension(authority, x509.BasicConstraints)
    assert constraints.critical
    assert (constraints.value.ca, constraints.value.path_length) == (True, 0)
    usage = extension(authority, x509.KeyUsage)
    assert usage.critical
    assert usage.value.key_cert_sign


def test_a_serving_certificate_may_not_sign(authority):
    pair = leaf(authority)
    constraints = extension(pair, x509.BasicConstraints)
    assert (constraints.critical, constraints.value.ca) == (True, False)
    usage = extension(pair, x509.KeyUsage)
    assert (usage.critical, usage.value.key_cert_sign, usage.value.digital_signature) == (True, False, True)


def test_a_certificate_never_outlives_its_ca():
    short = pki.issue_ca("short", now=NOW, lifetime=2 * DAY)
    assert read(leaf(short, lifetime=365 * DAY)).not_valid_after_utc == NOW + 2 * DAY


def test_hosts_are_dns_names_or_addresses_in_the_certificate(authority):
    hosts = ["Railwright-Webhook.railwright-system.svc", "*.example.org", "127.0.0.1", "[::1]", "127.0.0.1"]
    names = extension(leaf(authority, hosts=hosts), x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["railwright-webhook.railwright-system.svc", "*.example.org"]
    addresses = [ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("::1")]
    assert names.get_values_for_type(x509.IPAddress) == addresses


def test_an_invalid_host_name_raises_an_error(authority):
    for host in ("https://x", "x:443", "a_b", "", "-a", "a..b", "x" * 64, "a b", "a\nb", "ä.de", "*", "a.*.b"):
        with pytest.raises(ValueError, match="neither an IP address nor a DNS name"):
            leaf(authority, hosts=[host])


def test_a_private_key_is_never_in_repr(authority):
    assert b"PRIVATE" not in repr(authority).encode()
    assert "key_pem" not in repr(authority)
