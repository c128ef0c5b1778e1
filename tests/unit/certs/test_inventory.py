"""Selection of the certificates that are kept and of those that are issued again."""

import datetime as dt
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from certs import inventory, pki

NOW = dt.datetime(2030, 5, 1, 12, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)
WEBHOOK = inventory.CertificateSpec("webhook", "railwright-webhook", pki.Usage.SERVER, ("a.svc", "127.0.0.1"))
CALLER = inventory.CertificateSpec("client", "railwright-client", pki.Usage.CLIENT)


def assemble(existing, *, specs=(WEBHOOK, CALLER), now=NOW):
    return inventory.assemble(existing, specs, now=now, ca_lifetime=3650 * DAY, certificate_lifetime=300 * DAY)


def pairs(held):
    return {name: certificate.pair for name, certificate in held.items()}


@pytest.fixture(scope="module")
def first():
    return pairs(assemble({}))


def test_an_empty_store_gets_everything():
    held = assemble({})
    assert {name: certificate.reused for name, certificate in held.items()} == {
        "ca": False,
        "webhook": False,
        "client": False,
    }


def test_a_second_run_changes_nothing(first):
    assert pairs(assemble(first)) == first


@settings(max_examples=20, deadline=None)
@given(days=st.integers(0, 3640))
def test_issuing_at_any_time_gives_valid_certificates_and_keeps_the_ca(first, days):
    now = NOW + days * DAY
    held = assemble(first, now=now)
    assert held["ca"].pair == first["ca"]
    assert all(certificate.not_after > now for certificate in held.values())


def test_a_certificate_is_renewed_by_the_same_ca_in_the_last_third_of_its_life(first):
    assert assemble(first, now=NOW + 199 * DAY)["webhook"].reused
    later = assemble(first, now=NOW + 201 * DAY)
    assert (later["ca"].reused, later["webhook"].reused) == (True, False)


def test_a_new_host_renews_only_that_certificate(first):
    more = inventory.CertificateSpec("webhook", "railwright-webhook", pki.Usage.SERVER, (*WEBHOOK.hosts, "b.svc"))
    held = assemble(first, specs=(more, CALLER))
    assert {name: certificate.reused for name, certificate in held.items()} == {
        "ca": True,
        "webhook": False,
        "client": True,
    }


def test_an_expired_ca_renews_everything(first):
    held = assemble(first, now=NOW + 3651 * DAY)
    assert not any(certificate.reused for certificate in held.values())


def list_spoiled(first):
    other = pki.issue_ca("other", now=NOW, lifetime=DAY)
    foreign = pki.issue_certificate(
        other, common_name="x", hosts=WEBHOOK.hosts, usages={"server"}, now=NOW, lifetime=DAY
    )
    ca, webhook = first["ca"], first["webhook"]
    yield "a leaf of another authority", {"webhook": foreign}, {"webhook"}
    yield "a leaf of another use", {"webhook": first["client"]}, {"webhook"}
    yield "a leaf with another's key", {"webhook": pki.Pair(webhook.certificate_pem, ca.key_pem)}, {"webhook"}
    yield "a leaf that is no PEM", {"webhook": pki.Pair(b"junk", b"junk")}, {"webhook"}
    yield "a leaf in the authority's place", {"ca": webhook}, {"ca", "webhook", "client"}
    yield "an authority without its key", {"ca": pki.Pair(ca.certificate_pem, webhook.key_pem)}, set(first)
    yield "an authority from the future", {"ca": pki.issue_ca("f", now=NOW + DAY, lifetime=DAY)}, set(first)


def test_an_unusable_certificate_is_replaced_with_those_that_depend_on_it(first):
    for claim, damage, renewed in list_spoiled(first):
        held = assemble({**first, **damage})
        assert {name for name, certificate in held.items() if not certificate.reused} == renewed, claim
        for name, certificate in itertools.islice(held.items(), 1, None):
            spec = {"webhook": WEBHOOK, "client": CALLER}[name]
            assert inventory.satisfies(certificate.pair, spec, ca=held["ca"].pair, now=NOW), claim
