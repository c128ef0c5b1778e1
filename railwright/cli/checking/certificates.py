"""Rows about certificates: Secret, key, host names and validity for each server, and the webhook entries' caBundle.

Without permission to read Secrets, only the caBundle is checked.
"""

import base64
import datetime as dt
import itertools
import urllib.parse
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cryptography import x509

from certs import inventory, pki
from railwright.cli.checking import installation, snapshots
from railwright.cli.checking.rows import Assessment, fail, ok, row, warn
from railwright.cli.checking.snapshots import EXTENDER, WEBHOOK, Snapshot, find_named, get_path, read_options, require
from railwright.fabric import text

GROUP = "certificates"

_CA_NOTICE = dt.timedelta(days=30)  # enough time to replace the CA
_WEBHOOK_SECRET = f"{WEBHOOK}-secret"
_WAIT = "just after an installation, wait for the certificates first: railwright check --wait; otherwise: "
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
    options = read_options(installation.get_deployment(snapshot, EXTENDER))
    require("--plain-http" not in options, "the extender serves plain HTTP (--plain-http)")
    return _check_certificate(snapshot, EXTENDER, [f"{EXTENDER}.{snapshot.namespace}.svc"])


def _check_certificate(snapshot: Snapshot, server: str, hosts: Iterable[str]) -> Assessment:
    secret, name = snapshot.find(f"{server}-secret"), snapshots.SECRETS[server]
    if secret is None:
        return fail(f"Secret {name} does not exist in namespace {snapshot.namespace}", _WAIT + _ROTATE)
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
    f"{_WAIT}railwright certs rotate (it fills caBundle and replaces a CA in two steps; with cert-manager, cainjector "
    "fills caBundle)",
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
    hooks, secret = snapshot.hooks, find_named(snapshot.peek(_WEBHOOK_SECRET))
    require(hooks, "there is no webhook configuration of railwright")
    chain = _parse(secret, "data", "tls.crt") if secret else ()
    problems, ends = [], []
    for hook in hooks:
        try:
            signer = _find_signer(chain, _parse(hook, "clientConfig", "caBundle"))
        except ValueError as error:
            problems.append(f"{hook.get('name')}: {error}")
            continue
        if signer is not None:
            ends.append(signer.not_valid_after_utc)
        elif chain:
            problems.append(f"{hook.get('name')}: its caBundle does not verify the webhook's certificate")
    writers = [f"{event.involved_object.kind}: {event.message}" for event in snapshot.list_recent("overwritten")[:1]]
    if problems:
        return fail("; ".join([text.join_first(problems, 3), *writers]))
    snapshot.require(_WEBHOOK_SECRET)
    if writers:
        return warn(writers[0])
    end = min(ends)
    if snapshot.now >= end:
        return fail(f"the CA expired {end:%Y-%m-%d %H:%M} UTC")
    if end - snapshot.now < _CA_NOTICE:
        return warn(f"the CA expires in {_format_duration(end - snapshot.now)}")
    return ok(f"{text.format_count(len(hooks), 'entry')}, by a CA that is valid until {end:%Y-%m-%d}")


def _find_signer(chain: _Chain, ca_bundle: _Chain) -> x509.Certificate | None:
    """Return the CA certificate in a caBundle that verifies a chain; None if there is none."""
    if not chain or not all(pki.is_signed_by(certificate, issuer) for certificate, issuer in itertools.pairwise(chain)):
        return None
    last = chain[-1]
    return next((issuer for issuer in ca_bundle if last == issuer or pki.is_signed_by(last, issuer)), None)


def _covers(certificate: x509.Certificate, host: str) -> bool:
    try:
        subject_names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return False
    covered = {str(name.value) for name in subject_names}
    return host in covered or f"*.{host.partition('.')[2]}" in covered


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
