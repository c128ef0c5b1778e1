"""Checks of certificates: each server's Secret, key, host names and validity, and the caBundle of the webhook entries.

Without permission to read Secrets, only the caBundle is checked.
"""

import base64
import binascii
import datetime as dt
import ipaddress
import itertools
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from certs import bundle, trust
from railwright.cli.checking import check_rows, installation, snapshots
from railwright.cli.checking.check_rows import fail, ok, skip, warn
from railwright.cluster import installed_names
from railwright.fabric import text

_CA_NOTICE = dt.timedelta(days=30)  # enough time to replace the CA
_CERT_MANAGER = "cert-manager.io/certificate-name"  # annotation cert-manager writes on its Secrets


class Chain(tuple[x509.Certificate, ...]):
    """Certificates of a Secret: the serving certificate first, then its issuers."""

    __slots__ = ()


def parse_chain(secret: Any) -> Chain:
    """Return the chain in a Secret. Raise ValueError with the problem as its text."""
    return Chain(_parse_certificates(_get_data(secret, "tls.crt")))


def find_signer(chain: Chain, ca_bundle: Iterable[x509.Certificate]) -> x509.Certificate | None:
    """Return the certificate of a caBundle that verifies a chain, None if there is none."""
    for certificate, issuer in itertools.pairwise(chain):
        if not trust.is_signed_by(certificate, issuer):
            return None
    last = chain[-1]
    return next(
        (certificate for certificate in ca_bundle if last == certificate or trust.is_signed_by(last, certificate)), None
    )


def parse_bundle(hook: Mapping[str, Any]) -> tuple[x509.Certificate, ...]:
    """Return the certificates in an entry's caBundle. Raise ValueError with the problem as its text."""
    encoded = snapshots.get_path(hook, "clientConfig", "caBundle")
    if not encoded:
        raise ValueError("has no caBundle")
    return _parse_certificates(_decode(encoded))


def _check_secret(server: str) -> check_rows.Assess:
    def assess(snapshot: snapshots.ClusterSnapshot) -> check_rows.Assessment:
        reason = _find_exemption(snapshot, server)
        if reason:
            return skip(reason)
        secret = snapshot.get_one(f"{server}-secret")
        if secret is None:
            return fail(f"Secret {snapshots.SECRETS[server]} does not exist in namespace {snapshot.namespace}")
        try:
            chain = parse_chain(secret)
            serialization.load_pem_private_key(_get_data(secret, "tls.key"), password=None)
        except (ValueError, TypeError) as error:
            return fail(f"Secret {snapshots.SECRETS[server]}: {error}")
        return ok(f"{snapshots.SECRETS[server]}, {text.format_count(len(chain), 'certificate')}")

    return assess


def _require_chain(
    server: str, assess: Callable[[snapshots.ClusterSnapshot, Chain, Any], check_rows.Assessment]
) -> check_rows.Assess:
    """Return a check of a readable certificate. The row NAME-secret, which runs before, fails for unreadable ones."""

    def assess_secret(snapshot: snapshots.ClusterSnapshot) -> check_rows.Assessment:
        reason = _find_exemption(snapshot, server)
        if reason:
            return skip(reason)
        secret = snapshot.get_one(f"{server}-secret")
        return assess(snapshot, parse_chain(secret), secret)

    return assess_secret


def _check_key(_snapshot: snapshots.ClusterSnapshot, chain: Chain, secret: Any) -> check_rows.Assessment:
    if not trust.is_key_of(chain[0], _get_data(secret, "tls.key")):
        return fail("tls.key is not the key of tls.crt: the server cannot load it")
    return ok()


def _check_names(
    hosts: Callable[[snapshots.ClusterSnapshot], Iterable[str]],
) -> Callable[[snapshots.ClusterSnapshot, Chain, Any], check_rows.Assessment]:
    def assess(snapshot: snapshots.ClusterSnapshot, chain: Chain, _secret: Any) -> check_rows.Assessment:
        host_names = list(dict.fromkeys(hosts(snapshot)))
        missing = [host for host in host_names if not _covers(chain[0], host)]
        if missing:
            return fail(f"the certificate does not cover {', '.join(missing)}, the host that callers use")
        return ok(", ".join(host_names))

    return assess


def _check_validity(snapshot: snapshots.ClusterSnapshot, chain: Chain, _secret: Any) -> check_rows.Assessment:
    begin, end = chain[0].not_valid_before_utc, chain[0].not_valid_after_utc
    if snapshot.now >= end:
        return fail(f"expired {end:%Y-%m-%d %H:%M} UTC, {_format_duration(snapshot.now - end)} ago")
    if snapshot.now < begin:
        return fail(f"valid only from {begin:%Y-%m-%d %H:%M} UTC", "compare the clocks of the hosts: date -u")
    left = end - snapshot.now
    if bundle.is_due(chain[0], snapshot.now):
        return warn(
            f"{_format_duration(left)} left of {_format_duration(end - begin)}: less than a third, and not renewed yet"
        )
    return ok(f"{_format_duration(left)} left, until {end:%Y-%m-%d}")


def _check_bundles(snapshot: snapshots.ClusterSnapshot) -> check_rows.Assessment:
    if not snapshot.hooks:
        return skip("there is no webhook configuration of railwright")
    chain = _get_webhook_chain(snapshot)
    problems = [
        f"{hook.get('name')}: {problem}" for hook in snapshot.hooks if (problem := _find_bundle_problem(hook, chain))
    ]
    if problems:
        return fail(snapshots.join_limited(problems, 3))
    if chain is None:
        return skip(_format_unread_secret(snapshot), unread=True)
    return ok(text.format_count(len(snapshot.hooks), "entry"))


def _check_ca(snapshot: snapshots.ClusterSnapshot) -> check_rows.Assessment:
    chain = _get_webhook_chain(snapshot)
    ends: list[dt.datetime] = []
    for hook in snapshot.hooks:
        ca_bundle = parse_bundle(hook)
        signer = find_signer(chain, ca_bundle) if chain else None
        # without the webhook's chain, any certificate of the bundle may be the one that counts
        ends += [certificate.not_valid_after_utc for certificate in ([signer] if signer else ca_bundle)]
    if not ends:
        return skip("there is no webhook configuration of railwright")
    end = min(ends)
    left = end - snapshot.now
    if chain is None and left < _CA_NOTICE:
        return skip(_format_unread_secret(snapshot), unread=True)
    if left <= dt.timedelta():
        return fail(f"the CA expired {end:%Y-%m-%d %H:%M} UTC")
    if left < _CA_NOTICE:
        return warn(f"the CA expires in {_format_duration(left)}")
    return ok(f"{_format_duration(left)} left, until {end:%Y-%m-%d}")


def _check_rotation(snapshot: snapshots.ClusterSnapshot) -> check_rows.Assessment:
    annotations = snapshots.get_map(snapshot.get_one(f"{snapshots.WEBHOOK}-secret"), "metadata", "annotations")
    if _CERT_MANAGER in annotations:
        return ok(f"by cert-manager, Certificate {annotations[_CERT_MANAGER]}")
    deployment = snapshot.find("deployments", snapshots.CERTS)
    if deployment is None and f"{snapshots.WEBHOOK}-secret" in snapshot.unread:
        return skip(
            f"Deployment {snapshots.CERTS} does not exist; {_format_unread_secret(snapshot)}, which would show "
            "cert-manager",
            unread=True,
        )
    if deployment is None:
        return warn(
            f"certificates are not renewed: Deployment {snapshots.CERTS} does not exist, and cert-manager "
            "does not manage "
            "the Secret"
        )
    readiness = installation.check_replicas(snapshot, deployment)
    if readiness.state is not check_rows.State.OK:
        return readiness
    lease = snapshot.find("leases", snapshots.CERTS)
    problem = snapshots.find_lease_problem(lease, snapshot.now) if lease else "does not exist"
    if problem and "leases" not in snapshot.unread:
        return warn(
            f"Lease {snapshots.CERTS} {problem}: no replica renews certificates",
            f"kubectl -n {installed_names.NAMESPACE} logs deployment/{snapshots.CERTS}",
        )
    return ok(f"by {snapshots.get_lease_holder(lease) or snapshots.CERTS}")


def _find_bundle_problem(hook: Mapping[str, Any], chain: Chain | None) -> str:
    try:
        ca_bundle = parse_bundle(hook)
    except ValueError as error:
        return str(error)
    if chain is not None and find_signer(chain, ca_bundle) is None:
        return "its caBundle does not verify the webhook's certificate"
    return ""


def _format_unread_secret(snapshot: snapshots.ClusterSnapshot) -> str:
    source = f"{snapshots.WEBHOOK}-secret"
    return snapshot.unread.get(source, f"Secret {snapshots.SECRETS[snapshots.WEBHOOK]} does not exist")


def _get_webhook_chain(snapshot: snapshots.ClusterSnapshot) -> Chain | None:
    secret = snapshot.get_one(f"{snapshots.WEBHOOK}-secret")
    return None if secret is None else parse_chain(secret)


def _find_exemption(snapshot: snapshots.ClusterSnapshot, server: str) -> str:
    """Return why this server needs no certificate, "" if it needs one."""
    deployment = snapshot.find("deployments", server)
    if server != snapshots.EXTENDER:
        return ""
    if deployment is None and "deployments" not in snapshot.unread:
        return f"Deployment {server} does not exist"
    return (
        "the extender serves plain HTTP (--plain-http)"
        if "--plain-http" in snapshots.list_arguments(deployment)
        else ""
    )


def _list_webhook_hosts(snapshot: snapshots.ClusterSnapshot) -> Iterator[str]:
    for hook in snapshot.hooks:
        url = snapshots.get_path(hook, "clientConfig", "url")
        # the API server sends the Service's DNS name by SNI; the row entries-target reports other Services
        yield urllib.parse.urlsplit(url).hostname or url if url else f"{snapshots.WEBHOOK}.{snapshot.namespace}.svc"
    if not snapshot.hooks:
        yield f"{snapshots.WEBHOOK}.{snapshot.namespace}.svc"


def _list_extender_hosts(snapshot: snapshots.ClusterSnapshot) -> Iterator[str]:
    yield f"{snapshots.EXTENDER}.{snapshot.namespace}.svc"


def _covers(certificate: x509.Certificate, host: str) -> bool:
    extensions = (extension.value for extension in certificate.extensions)
    subject_names = next((value for value in extensions if isinstance(value, x509.SubjectAlternativeName)), None)
    if subject_names is None:
        return False
    try:
        return ipaddress.ip_address(host) in subject_names.get_values_for_type(x509.IPAddress)
    except ValueError:
        dns_names = subject_names.get_values_for_type(x509.DNSName)
        return host in dns_names or f"*.{host.partition('.')[2]}" in dns_names


def _parse_certificates(pem: bytes) -> tuple[x509.Certificate, ...]:
    try:
        return tuple(x509.load_pem_x509_certificates(pem))
    except ValueError:
        raise ValueError("is not a certificate in PEM format") from None


def _get_data(secret: Any, key: str) -> bytes:
    encoded = snapshots.get_path(secret, "data", key)
    if not encoded:
        raise ValueError(f"has no {key}")
    return _decode(encoded)


def _decode(encoded: str) -> bytes:
    try:
        return base64.b64decode(encoded)
    except (binascii.Error, ValueError):
        raise ValueError("is not base64") from None


def _format_duration(time: dt.timedelta) -> str:
    if time >= dt.timedelta(days=2):
        return text.format_count(time.days, "day")
    hours, minutes = divmod(int(time.total_seconds()) // 60, 60)
    return f"{hours} h {minutes} min"


CHECKS: check_rows.Checks = {
    "webhook-secret": _check_secret(snapshots.WEBHOOK),
    "webhook-pair": _require_chain(snapshots.WEBHOOK, _check_key),
    "webhook-names": _require_chain(snapshots.WEBHOOK, _check_names(_list_webhook_hosts)),
    "webhook-validity": _require_chain(snapshots.WEBHOOK, _check_validity),
    "extender-secret": _check_secret(snapshots.EXTENDER),
    "extender-pair": _require_chain(snapshots.EXTENDER, _check_key),
    "extender-names": _require_chain(snapshots.EXTENDER, _check_names(_list_extender_hosts)),
    "extender-validity": _require_chain(snapshots.EXTENDER, _check_validity),
    "ca-bundle": _check_bundles,
    "ca-validity": _check_ca,
    "certs-rotation": _check_rotation,
}
