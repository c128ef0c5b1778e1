"""Reading the objects of the cluster."""

import base64
import datetime as dt

import pytest

from certs import installation, inventory, pki, rotation

NOW = dt.datetime(2030, 5, 1, 12, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)
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
