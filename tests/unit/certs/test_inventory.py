"""Selection of the certificates that are kept and of those that are issued again."""

import base64
import datetime as dt
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from certs import installation, inventory, pki, rotation

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


# --- reading the objects of the cluster -----------------------------------------------------------------------


OLD, NEW = (pki.issue_ca("railwright", now=NOW, lifetime=90 * DAY) for _ in range(2))
TRUSTED = (*pki.split_bundle(NEW.certificate_pem), *pki.split_bundle(OLD.certificate_pem))


def secret(data, annotations=None, version="1"):
    encoded = {key: base64.b64encode(value).decode() for key, value in data.items() if value is not None}
    return {"metadata": {"resourceVersion": version, "annotations": annotations or {}}, "data": encoded}


def hook(name, *, pem=b"", **client_config):
    given = {"caBundle": base64.b64encode(pem).decode()} if pem else {}
    return {"name": name, "clientConfig": {**client_config, **given}}


def look(secrets, *hooks, generation=1):
    document = {"metadata": {"resourceVersion": "7", "generation": generation}, "webhooks": list(hooks)}
    configurations = {"MutatingWebhookConfiguration": document, "ValidatingWebhookConfiguration": None}
    return installation.ClusterState("ours", secrets, configurations, {"127.0.0.1"})


@pytest.mark.parametrize(
    "keyring",
    [
        rotation.Keyring(),
        rotation.Keyring(next_ca=NEW, trusted=TRUSTED),
        rotation.Keyring(OLD, NEW, TRUSTED, published=NOW),
        rotation.Keyring(NEW, None, TRUSTED, activated=NOW),
    ],
)
def test_a_keyring_is_read_as_it_was_written(keyring):
    stamps = {key: value for key, value in installation._format_timestamps(keyring).items() if value is not None}
    stored = secret(installation._format_keyring(keyring), stamps)
    assert look({"ca": stored}).observed.keyring == keyring


@pytest.mark.parametrize("stamp", ["yesterday", "2030-05-01T12:00:00", ""])  # the second has no zone
def test_an_unreadable_timestamp_counts_as_none(stamp):
    stored = secret({}, {installation.PUBLISHED: stamp})
    assert look({"ca": stored}).observed.keyring.published is None


def test_an_empty_or_missing_secret_holds_no_pair():
    observed = look({"ca": None, "webhook": secret({}), "extender": secret({"tls.crt": b"", "tls.key": b""})}).observed
    assert observed.keyring == rotation.Keyring()
    assert {name: held.pair for name, held in observed.certificates.items()} == {"webhook": None, "extender": None}


def test_only_webhooks_that_call_the_installation_belong_to_it():
    ours = {"namespace": "ours", "name": "railwright-webhook"}
    looked = look(
        {},
        hook("service", service=ours, pem=OLD.certificate_pem),
        hook("url", url="https://127.0.0.1:9443/mutate/pods"),
        hook("foreign", service={"namespace": "theirs", "name": "x"}),
        hook("elsewhere", url="https://example.org/"),
    )
    assert [name.rpartition("/")[2] for name in looked.observed.bundles] == ["service", "url"]
    mutating, validating = looked.list_updates(OLD.certificate_pem)
    assert (mutating.filled, mutating.foreign) == (("url",), ("foreign", "elsewhere"))
    assert not validating.exists


def test_a_change_between_two_reads_is_noticed_even_if_it_was_reverted():
    leaf = secret({"tls.crt": b"a", "tls.key": b"b"})
    ours = hook("service", service={"namespace": "ours", "name": "x"}, pem=OLD.certificate_pem)
    first = look({"webhook": leaf}, ours)
    assert first.fingerprint == look({"webhook": leaf}, ours).fingerprint
    assert first.fingerprint != look({"webhook": leaf}, ours, generation=3).fingerprint
    assert first.fingerprint != look({"webhook": {**leaf, "metadata": {"resourceVersion": "2"}}}, ours).fingerprint
    assert first.fingerprint == look({"ca": secret({}, version="9"), "webhook": leaf}, ours).fingerprint, (
        "the keyring's notes are no news"
    )


def test_a_backdated_certificate_of_a_short_lifetime_is_not_due_for_renewal():
    pair = pki.issue_certificate(
        OLD, common_name="x", hosts=("a.svc",), usages={"server"}, now=NOW, lifetime=dt.timedelta(minutes=9)
    )
    spec = inventory.CertificateSpec("webhook", "x", pki.Usage.SERVER, ("a.svc",))
    later = NOW + dt.timedelta(minutes=5)
    assert inventory.satisfies(pair, spec, ca=OLD, now=later)
    assert not inventory.satisfies(pair, spec, ca=OLD, now=later + dt.timedelta(minutes=2))
