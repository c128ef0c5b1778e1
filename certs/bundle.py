"""Decides which certificates an installation needs, and which existing ones it can keep.

A function from the existing certificates to the required ones; storage is the caller's.
"""

import dataclasses
import datetime as dt
import functools
from collections.abc import Mapping, Sequence

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization

from certs import issue

AUTHORITY = "ca"
# a certificate is renewed in the last third of its validity period, as kubelet and cert-manager do
RENEW_BEFORE = 1 / 3
# minimum validity period: another issuer's certificate may be shorter than our back-dating
_MIN_VALIDITY = dt.timedelta(seconds=1)


@dataclasses.dataclass(frozen=True)
class Wanted:
    """A serving or client certificate to issue: the name it is stored under, and its contents."""

    name: str
    common_name: str
    usage: issue.Usage
    hosts: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Held:
    """A certificate and key of the installation. `reused` is True if they existed and stay unchanged."""

    pair: issue.Pair
    reused: bool

    @property
    def not_after(self) -> dt.datetime:
        """Time at which the certificate expires."""
        return x509.load_pem_x509_certificate(self.pair.certificate_pem).not_valid_after_utc


def assemble(
    existing: Mapping[str, issue.Pair],
    wanted: Sequence[Wanted],
    *,
    now: dt.datetime,
    authority_lifetime: dt.timedelta,
    leaf_lifetime: dt.timedelta,
) -> dict[str, Held]:
    """Return the CA (key `ca`) and every certificate in `wanted`.

    A valid CA is kept, because clients trust it. A certificate is kept if that CA issued it, its usage and hosts fit,
    and it is not in the last third of its validity period.
    """
    authority = existing.get(AUTHORITY)
    reused_ca = authority if authority is not None and is_authority(authority, now=now) else None
    ca = reused_ca or issue.issue_authority("railwright", now=now, lifetime=authority_lifetime)
    result = {AUTHORITY: Held(ca, reused=reused_ca is not None)}
    for spec in wanted:
        existing_pair = existing.get(spec.name)
        if existing_pair is not None and serves(existing_pair, spec, authority=ca, now=now):
            result[spec.name] = Held(existing_pair, reused=True)
            continue
        new_pair = issue.issue_leaf(
            ca,
            common_name=spec.common_name,
            hosts=spec.hosts,
            usages={spec.usage},
            now=now,
            lifetime=leaf_lifetime,
        )
        result[spec.name] = Held(new_pair, reused=False)
    return result


def is_authority(pair: issue.Pair, *, now: dt.datetime) -> bool:
    """True if `pair` can sign now: a valid CA certificate, a matching private key, and a supported key type."""
    certificate = certificate_of(pair)
    if certificate is None or not _is_valid_at(certificate, now):
        return False
    if not isinstance(certificate.public_key(), issue.PublicSigner):
        return False
    try:
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    except x509.ExtensionNotFound:
        return False
    return constraints.ca


def serves(pair: issue.Pair, wanted: Wanted, *, authority: issue.Pair, now: dt.datetime) -> bool:
    """True if the existing certificate `pair` still satisfies `wanted`."""
    certificate = certificate_of(pair)
    ca = certificate_of(authority)
    if certificate is None or ca is None or not _is_valid_at(certificate, now):
        return False
    try:
        certificate.verify_directly_issued_by(ca)
        usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except (InvalidSignature, ValueError, TypeError, x509.ExtensionNotFound):
        return False
    is_fresh = left(certificate, now) > RENEW_BEFORE
    covers_hosts = {issue.general_name(host) for host in wanted.hosts} <= _find_names(certificate)
    return is_fresh and covers_hosts and issue.USAGE_OIDS[wanted.usage] in usages


def left(certificate: x509.Certificate, now: dt.datetime) -> float:
    """Return the remaining fraction of the validity period: 1 at issue, 0 or less after expiry."""
    validity = certificate.not_valid_after_utc - certificate.not_valid_before_utc - issue.BACKDATED
    return (certificate.not_valid_after_utc - now) / max(validity, _MIN_VALIDITY)


@functools.lru_cache(maxsize=32)  # each poll checks the same few pairs
def certificate_of(pair: issue.Pair) -> x509.Certificate | None:
    """Return the certificate of `pair`, or None if it cannot be read or the key does not match."""
    try:
        certificate = x509.load_pem_x509_certificate(pair.certificate_pem)
        key = serialization.load_pem_private_key(pair.key_pem, password=None)
    except (ValueError, TypeError):
        return None
    encoding = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    matches = certificate.public_key().public_bytes(*encoding) == key.public_key().public_bytes(*encoding)
    return certificate if matches else None


def _is_valid_at(certificate: x509.Certificate, now: dt.datetime) -> bool:
    return certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc


def _find_names(certificate: x509.Certificate) -> set[x509.GeneralName]:
    try:
        return set(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        return set()
