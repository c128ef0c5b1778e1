"""Rows about certificates: each server's Secret, key, host names and validity, and the caBundle of the webhook entries.

Without permission to read Secrets, only the caBundle is checked.
"""

import base64
import datetime as dt
import ipaddress
import itertools
import urllib.parse
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cryptography import x509

from certs import inventory, pki
from railwright.cli.checking import installation, snapshots
from railwright.cli.checking.rows import Assessment, State, fail, ok, row, warn
from railwright.cli.checking.snapshots import (
    CERTS,
    EXTENDER,
    WEBHOOK,
    SkipError,
    Snapshot,
    find_named,
    get_map,
    get_path,
    require,
)
from railwright.fabric import text

GROUP = "certificates"

_CA_NOTICE = dt.timedelta(days=30)  # enough time to replace the CA
_CERT_MANAGER = "cert-manager.io/certificate-name"  # annotation cert-manager writes on its Secrets
_WEBHOOK_SECRET = f"{WEBHOOK}-secret"
_ROTATE = "railwright certs rotate (cert-manager: kubectl -n {namespace} describe certificates)"
_READ_LOG = "railwright certs rotate; the log says why rotation failed: kubectl -n {namespace} logs deployment/{certs}"
_Chain = Sequence[x509.Certificate]  # of a Secret: the serving certificate first, then its issuers


@row(_ROTATE)
def check_webhook_certificate(snapshot: Snapshot) -> Assessment:
    """Webhook certificate is valid.

    The Secret `railwright-webhook-tls` exists and contains a certificate and its private key. A key of another
    certificate comes from manual edits or from two writers; servers keep the last valid pair until they restart.

    The certificate covers the host that the API server calls: `railwright-webhook.NAMESPACE.svc`, or the host of the
    URL. Otherwise every call fails with `x509: certificate is valid for ...`.

    The certificate is valid now. Warns if less than a third of its validity is left: rotation should have renewed it by
    then.
    """
    urls = [get_path(hook, "clientConfig", "url") for hook in snapshot.hooks or ({},)]
    # the API server sends the Service's DNS name by SNI; the row entries-match reports other Services
    service = f"{WEBHOOK}.{snapshot.namespace}.svc"
    return _check_certificate(
        snapshot, WEBHOOK, [urllib.parse.urlsplit(url).hostname or url if url else service for url in urls]
    )


@row(_ROTATE)
def check_extender_certificate(snapshot: Snapshot) -> Assessment:
    """Extender certificate is valid.

    As webhook-certificate, for `railwright-extender-tls` and the host `railwright-extender.NAMESPACE.svc`. Skipped if
    the extender serves plain HTTP for Volcano.
    """
    options = snapshots.read_options(installation.get_deployment(snapshot, EXTENDER))
    require("--plain-http" not in options, "the extender serves plain HTTP (--plain-http)")
    return _check_certificate(snapshot, EXTENDER, [f"{EXTENDER}.{snapshot.namespace}.svc"])


def _check_certificate(snapshot: Snapshot, server: str, hosts: Iterable[str]) -> Assessment:
    secret, name = snapshot.find(f"{server}-secret"), snapshots.SECRETS[server]
    if secret is None:
        return fail(f"Secret {name} does not exist in namespace {snapshot.namespace}")
    try:
        certificate = _parse(secret, "data", "tls.crt")[0]
        is_pair = pki.is_key_of(certificate, _decode(secret, "data", "tls.key"))
    except (ValueError, TypeError) as error:
        return fail(f"Secret {name}: {error}")
    if not is_pair:
        return fail(
            "tls.key is not the key of tls.crt: the server cannot load it",
            f"kubectl -n {snapshot.namespace} delete secret {name}, then: railwright certs rotate",
        )
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if snapshot.now >= end:
        return fail(f"expired {end:%Y-%m-%d %H:%M} UTC, {_format_duration(snapshot.now - end)} ago", _READ_LOG)
    if snapshot.now < begin:
        return fail(f"valid only from {begin:%Y-%m-%d %H:%M} UTC", "compare the clocks of the hosts: date -u")
    if server == WEBHOOK:
        snapshot.require("mutating")  # its entries name the host
    if missing := [host for host in dict.fromkeys(hosts) if not _covers(certificate, host)]:
        return fail(
            f"the certificate does not cover {', '.join(missing)}, the host that callers use",
            "railwright certs rotate with the --namespace and --host by which callers reach the "
            + server.rpartition("-")[2],
        )
    left = _format_duration(end - snapshot.now)
    if inventory.is_due(certificate, snapshot.now):
        return warn(
            f"{left} left of {_format_duration(end - begin)}: less than a third, and not renewed yet", _READ_LOG
        )
    return ok(f"{left} left, until {end:%Y-%m-%d}")


@row(
    "railwright certs rotate (it fills caBundle and replaces a CA in two steps; with cert-manager, cainjector fills "
    "caBundle)",
    after="webhook-certificate",
)
def check_ca_bundle(snapshot: Snapshot) -> Assessment:
    """Every caBundle verifies the webhook certificate.

    This breaks when manifests are applied again over a filled `caBundle`, or when certificate and CA are replaced
    together.

    Warns if `railwright-certs` has reported in the last hour that another writer overwrites a caBundle again and again
    (Event `CABundleOverwritten`, which names the writer).

    Warns if the CA of the webhook's certificate is valid for less than 30 more days, and fails if it has expired.
    """
    snapshot.require("mutating", "validating")
    hooks = require(snapshot.hooks, "there is no webhook configuration of railwright")
    secret = find_named(snapshot.peek(_WEBHOOK_SECRET))
    chain = None if secret is None else _parse(secret, "data", "tls.crt")
    problems, signers = [], []
    for hook in hooks:
        try:
            signer = _find_signer(chain or (), _parse(hook, "clientConfig", "caBundle"))
            problem = "its caBundle does not verify the webhook's certificate" if chain and signer is None else ""
        except ValueError as error:
            signer, problem = None, str(error)
        signers += [signer] if signer else []
        problems += [f"{hook.get('name')}: {problem}"] if problem else []
    if chain is None and not problems:
        raise SkipError(_describe_unread_secret(snapshot), unread=True)
    writers = [f"{event.involved_object.kind}: {event.message}" for event in snapshot.list_recent("overwritten")[:1]]
    if problems:
        return fail("; ".join([text.join_first(problems, 3), *writers]))
    if writers:
        return warn(writers[0])
    end = min(signer.not_valid_after_utc for signer in signers)
    if snapshot.now >= end:
        return fail(f"the CA expired {end:%Y-%m-%d %H:%M} UTC")
    if end - snapshot.now < _CA_NOTICE:
        return warn(f"the CA expires in {_format_duration(end - snapshot.now)}")
    return ok(f"{text.format_count(len(hooks), 'entry')}, by a CA that is valid until {end:%Y-%m-%d}")


@row("install the Deployment again: {apply}, or use cert-manager", after="webhook-certificate")
def check_certs_rotation(snapshot: Snapshot) -> Assessment:
    """Certificate rotation is active.

    It is that of the Deployment `railwright-certs`, or of cert-manager, which is known by its annotation on the Secret.
    """
    annotations = get_map(find_named(snapshot.peek(_WEBHOOK_SECRET)), "metadata", "annotations")
    if _CERT_MANAGER in annotations:
        return ok(f"by cert-manager, Certificate {annotations[_CERT_MANAGER]}")
    deployment = snapshot.find("deployments", CERTS)
    if deployment is None:
        missing = f"Deployment {CERTS} does not exist"
        if _WEBHOOK_SECRET in snapshot.unread:
            why = f"{missing}; {_describe_unread_secret(snapshot)}, which would show cert-manager"
            raise SkipError(why, unread=True)
        return warn(f"certificates are not renewed: {missing}, and cert-manager does not manage the Secret")
    readiness = installation.check_replicas(snapshot, deployment)
    return ok(f"by {CERTS}") if readiness.state is State.OK else readiness


def _find_signer(chain: _Chain, ca_bundle: _Chain) -> x509.Certificate | None:
    """Return the certificate of a caBundle that verifies a chain, None if there is none."""
    if not chain or not all(pki.is_signed_by(certificate, issuer) for certificate, issuer in itertools.pairwise(chain)):
        return None
    last = chain[-1]
    return next((issuer for issuer in ca_bundle if last == issuer or pki.is_signed_by(last, issuer)), None)


def _describe_unread_secret(snapshot: Snapshot) -> str:
    return snapshot.unread.get(_WEBHOOK_SECRET, f"Secret {snapshots.SECRETS[WEBHOOK]} does not exist")


def _covers(certificate: x509.Certificate, host: str) -> bool:
    try:
        subject_names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return False
    try:
        return ipaddress.ip_address(host) in subject_names.get_values_for_type(x509.IPAddress)
    except ValueError:
        dns_names = subject_names.get_values_for_type(x509.DNSName)
        return host in dns_names or f"*.{host.partition('.')[2]}" in dns_names


def _parse(tree: Mapping[str, Any], *path: str) -> _Chain:
    """Return the certificates in a field. Raise ValueError with the problem as its text."""
    pem = _decode(tree, *path)
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError:
        raise ValueError("is not a certificate in PEM format") from None


def _decode(tree: Any, *path: str) -> bytes:
    encoded = get_path(tree, *path)
    if not encoded:
        raise ValueError(f"has no {path[-1]}")
    try:
        return base64.b64decode(encoded)
    except ValueError:
        raise ValueError("is not base64") from None


def _format_duration(time: dt.timedelta) -> str:
    if time >= dt.timedelta(days=2):
        return text.format_count(time.days, "day")
    hours, minutes = divmod(int(time.total_seconds()) // 60, 60)
    return f"{hours} h {minutes} min"
