"""Checks of certificates: each server's Secret, key, host names and validity, and the caBundle of the webhook entries.

Without permission to read Secrets, only the caBundle is checked.
"""

import base64
import datetime as dt
import functools
import ipaddress
import itertools
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from certs import inventory, pki
from railwright.cli.checking import check_rows, installation, snapshots
from railwright.cli.checking.check_rows import Assessment, Checks, assess_problems, fail, ok, require, skip, warn
from railwright.cli.checking.snapshots import Snapshot, get_map, get_path
from railwright.cluster import installed_names
from railwright.fabric import text

_CA_NOTICE = dt.timedelta(days=30)  # enough time to replace the CA
_CERT_MANAGER = "cert-manager.io/certificate-name"  # annotation cert-manager writes on its Secrets
_WEBHOOK_SECRET = f"{snapshots.WEBHOOK}-secret"
_NO_CONFIGURATION = "there is no webhook configuration of railwright"

Chain = Sequence[x509.Certificate]
"""Certificates of a Secret: the serving certificate first, then its issuers."""


def _parse_chain(secret: Any) -> Chain:
    """Return the chain in a Secret. Raise ValueError with the problem as its text."""
    return _parse_certificates(_decode(secret, "data", "tls.crt"))


def _find_signer(chain: Chain, ca_bundle: Iterable[x509.Certificate]) -> x509.Certificate | None:
    """Return the certificate of a caBundle that verifies a chain, None if there is none."""
    if not all(pki.is_signed_by(certificate, issuer) for certificate, issuer in itertools.pairwise(chain)):
        return None
    last = chain[-1]
    return next((issuer for issuer in ca_bundle if last == issuer or pki.is_signed_by(last, issuer)), None)


def _parse_bundle(hook: Mapping[str, Any]) -> Chain:
    """Return the certificates in an entry's caBundle. Raise ValueError with the problem as its text."""
    return _parse_certificates(_decode(hook, "clientConfig", "caBundle"))


def _require_certificate(server: str, assess: Callable[[Snapshot, Any], Assessment]) -> check_rows.Assess:
    """Return a check of a server's Secret, None if it does not exist; skipped if the server needs no certificate."""

    def assess_secret(snapshot: Snapshot) -> Assessment:
        if server == snapshots.EXTENDER:
            deployment = installation.get_deployment(snapshot, server)
            is_plain = "--plain-http" in snapshots.read_options(deployment)
            require(not is_plain, "the extender serves plain HTTP (--plain-http)")
        return assess(snapshot, snapshot.get_one(f"{server}-secret"))

    return assess_secret


def _check_secret(server: str, snapshot: Snapshot, secret: Any) -> Assessment:
    name = snapshots.SECRETS[server]
    if secret is None:
        return fail(f"Secret {name} does not exist in namespace {snapshot.namespace}")
    try:
        chain = _parse_chain(secret)
        serialization.load_pem_private_key(_decode(secret, "data", "tls.key"), password=None)
    except (ValueError, TypeError) as error:
        return fail(f"Secret {name}: {error}")
    return ok(f"{name}, {text.format_count(len(chain), 'certificate')}")


# The next rows run after the one above, which fails for a Secret that cannot be read.


def _check_key(_snapshot: Snapshot, secret: Any) -> Assessment:
    if not pki.is_key_of(_parse_chain(secret)[0], _decode(secret, "data", "tls.key")):
        return fail("tls.key is not the key of tls.crt: the server cannot load it")
    return ok()


def _check_names(list_hosts: Callable[[Snapshot], Iterable[str]], snapshot: Snapshot, secret: Any) -> Assessment:
    hosts, certificate = list(dict.fromkeys(list_hosts(snapshot))), _parse_chain(secret)[0]
    if missing := [host for host in hosts if not _covers(certificate, host)]:
        return fail(f"the certificate does not cover {', '.join(missing)}, the host that callers use")
    return ok(", ".join(hosts))


def _check_validity(snapshot: Snapshot, secret: Any) -> Assessment:
    certificate = _parse_chain(secret)[0]
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if snapshot.now >= end:
        return fail(f"expired {end:%Y-%m-%d %H:%M} UTC, {_format_duration(snapshot.now - end)} ago")
    if snapshot.now < begin:
        return fail(f"valid only from {begin:%Y-%m-%d %H:%M} UTC", "compare the clocks of the hosts: date -u")
    left = _format_duration(end - snapshot.now)
    if inventory.is_due(certificate, snapshot.now):
        return warn(f"{left} left of {_format_duration(end - begin)}: less than a third, and not renewed yet")
    return ok(f"{left} left, until {end:%Y-%m-%d}")


def _check_bundles(snapshot: Snapshot) -> Assessment:
    hooks = require(snapshot.hooks, _NO_CONFIGURATION)
    chain = _get_webhook_chain(snapshot)
    problems = {str(hook.get("name")): _find_bundle_problem(hook, chain) for hook in hooks}
    if chain is None and not any(problems.values()):
        return skip(_format_unread_secret(snapshot), unread=True)
    return assess_problems(problems, text.format_count(len(hooks), "entry"))


def _check_ca(snapshot: Snapshot) -> Assessment:
    chain = _get_webhook_chain(snapshot)
    ends: list[dt.datetime] = []
    for hook in snapshot.hooks:
        ca_bundle = _parse_bundle(hook)
        signer = _find_signer(chain, ca_bundle) if chain else None
        # without the webhook's chain, any certificate of the bundle may be the one that counts
        ends += [certificate.not_valid_after_utc for certificate in ([signer] if signer else ca_bundle)]
    end = min(require(ends, _NO_CONFIGURATION))
    left = end - snapshot.now
    if chain is None and left < _CA_NOTICE:
        return skip(_format_unread_secret(snapshot), unread=True)
    if left <= dt.timedelta():
        return fail(f"the CA expired {end:%Y-%m-%d %H:%M} UTC")
    if left < _CA_NOTICE:
        return warn(f"the CA expires in {_format_duration(left)}")
    return ok(f"{_format_duration(left)} left, until {end:%Y-%m-%d}")


def _check_rotation(snapshot: Snapshot) -> Assessment:
    annotations = get_map(snapshot.get_one(_WEBHOOK_SECRET), "metadata", "annotations")
    if _CERT_MANAGER in annotations:
        return ok(f"by cert-manager, Certificate {annotations[_CERT_MANAGER]}")
    deployment = snapshot.find("deployments", snapshots.CERTS)
    if deployment is None:
        missing = f"Deployment {snapshots.CERTS} does not exist"
        if _WEBHOOK_SECRET in snapshot.unread:
            return skip(f"{missing}; {_format_unread_secret(snapshot)}, which would show cert-manager", unread=True)
        return warn(f"certificates are not renewed: {missing}, and cert-manager does not manage the Secret")
    readiness = installation.check_replicas(snapshot, deployment)
    if readiness.state is not check_rows.State.OK:
        return readiness
    lease = snapshot.find("leases", snapshots.CERTS)
    problem = snapshots.find_lease_problem(lease, snapshot.now)
    if problem and "leases" not in snapshot.unread:
        return warn(
            f"Lease {snapshots.CERTS} {problem}: no replica renews certificates",
            f"kubectl -n {installed_names.NAMESPACE} logs deployment/{snapshots.CERTS}",
        )
    return ok(f"by {snapshots.get_lease_holder(lease) or snapshots.CERTS}")


def _find_bundle_problem(hook: Mapping[str, Any], chain: Chain | None) -> str:
    try:
        ca_bundle = _parse_bundle(hook)
    except ValueError as error:
        return str(error)
    if chain is not None and _find_signer(chain, ca_bundle) is None:
        return "its caBundle does not verify the webhook's certificate"
    return ""


def _format_unread_secret(snapshot: Snapshot) -> str:
    return snapshot.unread.get(_WEBHOOK_SECRET, f"Secret {snapshots.SECRETS[snapshots.WEBHOOK]} does not exist")


def _get_webhook_chain(snapshot: Snapshot) -> Chain | None:
    secret = snapshot.get_one(_WEBHOOK_SECRET)
    return None if secret is None else _parse_chain(secret)


def _list_webhook_hosts(snapshot: Snapshot) -> Iterator[str]:
    for hook in snapshot.hooks or ({},):
        url = get_path(hook, "clientConfig", "url")
        # the API server sends the Service's DNS name by SNI; the row entries-target reports other Services
        yield urllib.parse.urlsplit(url).hostname or url if url else f"{snapshots.WEBHOOK}.{snapshot.namespace}.svc"


def _list_extender_hosts(snapshot: Snapshot) -> Iterable[str]:
    return (f"{snapshots.EXTENDER}.{snapshot.namespace}.svc",)


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


def _parse_certificates(pem: bytes) -> Chain:
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


def _build_rows(server: str, list_hosts: Callable[[Snapshot], Iterable[str]]) -> Checks:
    """Return the checks of one server's certificate."""
    checks: Mapping[str, Callable[[Snapshot, Any], Assessment]] = {
        "secret": functools.partial(_check_secret, server),
        "pair": _check_key,
        "names": functools.partial(_check_names, list_hosts),
        "validity": _check_validity,
    }
    part = server.rpartition("-")[2]
    return {f"{part}-{name}": _require_certificate(server, check) for name, check in checks.items()}


CHECKS: Checks = {
    **_build_rows(snapshots.WEBHOOK, _list_webhook_hosts),
    **_build_rows(snapshots.EXTENDER, _list_extender_hosts),
    "ca-bundle": _check_bundles,
    "ca-validity": _check_ca,
    "certs-rotation": _check_rotation,
}
