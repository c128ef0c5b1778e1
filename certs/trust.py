"""Reads certificates and CA bundles, which others may have written: parses, compares keys and finds issuers."""

import datetime as dt
import functools
from collections.abc import Iterable

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization

from certs import issue


def is_key_of(certificate: x509.Certificate, key_pem: bytes) -> bool:
    """True if a private key belongs to a certificate. Raises ValueError or TypeError for an unreadable key."""
    key = serialization.load_pem_private_key(key_pem, password=None)
    encoding = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return certificate.public_key().public_bytes(*encoding) == key.public_key().public_bytes(*encoding)


def is_signed_by(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    """True if `issuer` issued `certificate`: name and signature. Ignores validity."""
    try:
        certificate.verify_directly_issued_by(issuer)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def is_valid_at(certificate: x509.Certificate, now: dt.datetime) -> bool:
    """True within the validity period."""
    return certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc


@functools.lru_cache(maxsize=32)  # each poll checks the same few pairs
def load_certificate(pair: issue.Pair) -> x509.Certificate | None:
    """Return the certificate of `pair`, or None if it cannot be read or the key does not match."""
    try:
        certificate = x509.load_pem_x509_certificate(pair.certificate_pem)
        return certificate if is_key_of(certificate, pair.key_pem) else None
    except (ValueError, TypeError):
        return None


def is_presentable(pair: issue.Pair, now: dt.datetime) -> bool:
    """True if a server could present this pair now."""
    certificate = load_certificate(pair)
    return certificate is not None and is_valid_at(certificate, now)


@functools.lru_cache(maxsize=64)
def split_bundle(pem: bytes) -> tuple[bytes, ...]:
    """Return the certificates of a bundle, deduplicated and normalized; () if it cannot be read."""
    try:
        parsed = x509.load_pem_x509_certificates(pem)
    except ValueError:
        return ()
    return tuple(dict.fromkeys(certificate.public_bytes(serialization.Encoding.PEM) for certificate in parsed))


def join_bundle(certificates: Iterable[bytes]) -> bytes:
    """Return the bundle of these certificates."""
    return b"".join(certificates)


def filter_cas(certificates: Iterable[bytes]) -> tuple[bytes, ...]:
    """Return the CA certificates, deduplicated. Expired ones are kept: another host's clock may be behind."""
    return tuple(
        dict.fromkeys(certificate for certificate in certificates if is_ca(x509.load_pem_x509_certificate(certificate)))
    )


def find_issuer(chain: bytes, certificates: Iterable[bytes]) -> bytes | None:
    """Return which of `certificates` issued the first certificate of a chain, or an intermediate CA in it, if any."""
    candidates = tuple(certificates)
    return next(
        (issuer for link in split_bundle(chain) for issuer in candidates if _is_signed_by_pem(link, issuer)), None
    )


def is_ca(certificate: x509.Certificate) -> bool:
    """True if the certificate may issue others, by its basic constraints."""
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


@functools.lru_cache(maxsize=256)
def _is_signed_by_pem(certificate: bytes, issuer: bytes) -> bool:
    try:
        return is_signed_by(x509.load_pem_x509_certificate(certificate), x509.load_pem_x509_certificate(issuer))
    except ValueError:
        return False
