"""Selection of the certificates to keep and to issue again."""

import base64
import datetime as dt

import msgspec
import pytest

from certs import installation, inventory, pki, rotation

NOW = dt.datetime(2030, 5, 1, 12, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)
WEBHOOK = inventory.CertificateSpec("webhook", "railwright-webhook", pki.Usage.SERVER, ("a.svc", "127.0.0.1"))
CALLER = inventory.CertificateSpec("client", "railwright-client", pki.Usage.CLIENT)


CA = pki.issue_ca("ours", now=NOW, lifetime=3650 * DAY)
SERVING, CALLING = (spec.issue(CA, now=NOW) for spec in (WEBHOOK, CALLER))
OTHER = pki.issue_ca("other", now=NOW, lifetime=DAY)


def test_a_certificate_is_kept_until_the_last_third_of_its_life():
    assert inventory.matches_spec(CALLING, CALLER, ca=CA, now=NOW)
    assert inventory.matches_spec(SERVING, WEBHOOK, ca=CA, now=NOW + 19 * DAY)
    assert not inventory.matches_spec(SERVING, WEBHOOK, ca=CA, now=NOW + 21 * DAY)


def test_a_certificate_that_lacks_a_host_is_issued_again():
    more = inventory.CertificateSpec("webhook", "railwright-webhook", pki.Usage.SERVER, (*WEBHOOK.hosts, "b.svc"))
    assert not inventory.matches_spec(SERVING, more, ca=CA, now=NOW)


@pytest.mark.parametrize(
    "pair",
    [
        pytest.param(WEBHOOK.issue(OTHER, now=NOW), id="of another CA"),
        pytest.param(CALLING, id="of another use"),
        pytest.param(pki.KeyPair(SERVING.certificate_pem, CA.key_pem), id="with another key"),
        pytest.param(pki.KeyPair(b"junk", b"junk"), id="no PEM"),
    ],
)
def test_an_unusable_certificate_is_issued_again(pair):
    assert not inventory.matches_spec(pair, WEBHOOK, ca=CA, now=NOW)


@pytest.mark.parametrize(
    ("pair", "is_usable"),
    [
        pytest.param(CA, True, id="a CA"),
        pytest.param(SERVING, False, id="a certificate of a server"),
        pytest.param(pki.KeyPair(CA.certificate_pem, SERVING.key_pem), False, id="without its key"),
        pytest.param(pki.issue_ca("future", now=NOW + DAY, lifetime=DAY), False, id="from the future"),
    ],
)
def test_only_a_valid_ca_with_its_own_key_can_sign(pair, is_usable):
    assert inventory.is_usable_ca(pair, now=NOW) is is_usable
    assert not inventory.is_usable_ca(pair, now=NOW + 3651 * DAY)


# --- reading the objects of the cluster -----------------------------------------------------------------------


OLD, NEW = (pki.issue_ca("railwright", now=NOW, lifetime=90 * DAY) for _ in range(2))
TRUSTED = (*pki.split_bundle(NEW.certificate_pem), *pki.split_bundle(OLD.certificate_pem))


def secret(data, version="1"):
    encoded = {key: base64.b64encode(value).decode() for key, value in data.items() if value is not None}
    return {"metadata": {"resourceVersion": version}, "data": encoded}


def hook(name, pem=b"", namespace="ours"):
    given = {"caBundle": base64.b64encode(pem).decode()} if pem else {}
    return {"name": name, "clientConfig": {"service": {"namespace": namespace}, **given}}


def look(trees, *hooks):
    secrets = {name: tree and msgspec.convert(tree, installation.Secret) for name, tree in trees.items()}
    document = {"metadata": {"resourceVersion": "7"}, "webhooks": list(hooks)}
    configurations = {
        "MutatingWebhookConfiguration": msgspec.convert(document, installation.WebhookConfiguration),
        "ValidatingWebhookConfiguration": None,
    }
    return installation.InstalledCertificates("ours", secrets, configurations)


@pytest.mark.parametrize(
    "keyring",
    [
        rotation.Keyring(),
        rotation.Keyring(next_ca=NEW, trusted=TRUSTED),
        rotation.Keyring(OLD, NEW, TRUSTED),
        rotation.Keyring(NEW, None, TRUSTED),
    ],
)
def test_a_written_keyring_is_read_back_unchanged(keyring):
    stored = secret(installation._format_keyring(keyring))
    assert look({"ca": stored}).keyring == keyring


def test_webhooks_with_another_ca_bundle_than_the_given_one_are_outdated():
    looked = look({}, hook("pods", OLD.certificate_pem), hook("workloads"))
    assert [name.rpartition("/")[2] for name in looked.bundles] == ["pods", "workloads"]
    assert looked.list_outdated_webhooks("MutatingWebhookConfiguration", OLD.certificate_pem) == [(1, "workloads")]
    assert looked.list_outdated_webhooks("ValidatingWebhookConfiguration", OLD.certificate_pem) == []


def test_the_ca_bundle_of_an_installation_in_another_namespace_is_kept():
    looked = look({}, hook("pods", OLD.certificate_pem, namespace="theirs"))
    assert not looked.bundles
    assert looked.list_outdated_webhooks("MutatingWebhookConfiguration", NEW.certificate_pem) == []
