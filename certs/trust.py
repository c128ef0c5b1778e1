"""Splits and joins CA bundles, and finds the issuer of a certificate. Bundles may be written by others."""

import datetime as dt
import functools
from collections.abc import Iterable

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization

from certs import bundle, issue


@functools.lru_cache(maxsize=64)
def split(pem: bytes) -> tuple[bytes, ...]:
    """Return the certificates of a bundle, deduplicated and normalised; () if it cannot be read."""
    try:
        parsed = x509.load_pem_x509_certificates(pem)
    except ValueError:
        return ()
    return tuple(dict.fromkeys(certificate.public_bytes(serialization.Encoding.PEM) for certificate in parsed))


def joined(certificates: Iterable[bytes]) -> bytes:
    """Return the bundle of these certificates."""
    return b"".join(certificates)


def authorities(certificates: Iterable[bytes]) -> tuple[bytes, ...]:
    """Return the CA certificates, deduplicated. Expired ones are kept: another host's clock may be behind."""
    return tuple(
        dict.fromkeys(
            certificate for certificate in certificates if _is_ca(x509.load_pem_x509_certificate(certificate))
        )
    )


def anchor(leaf: bytes, certificates: Iterable[bytes]) -> bytes | None:
    """Return the certificate that issued `leaf`, or that issued an intermediate CA in the same PEM; None if there is
    none.
    """
    candidates = tuple(certificates)
    return next(
        (certificate for link in split(leaf) for certificate in candidates if _is_signed_by(link, certificate)), None
    )


def presentable(pair: issue.Pair, now: dt.datetime) -> bool:
    """True if a server could present this pair now."""
    certificate = bundle.certificate_of(pair)
    return certificate is not None and certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc


@functools.lru_cache(maxsize=256)
def _is_signed_by(leaf: bytes, authority: bytes) -> bool:
    try:
        x509.load_pem_x509_certificate(leaf).verify_directly_issued_by(x509.load_pem_x509_certificate(authority))
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def _is_ca(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False
