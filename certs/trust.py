"""Bundles of trusted authorities: taken apart, put together, and asked what hangs on which.

Owns the reading of PEM bundles that others may have written. Refuses to know where they are stored.
"""

import datetime as dt
import functools
from collections.abc import Iterable

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization

from certs import bundle, issue


@functools.lru_cache(maxsize=64)
def split(pem: bytes) -> tuple[bytes, ...]:
    """The certificates of a bundle, each once and in one spelling; none where it cannot be read."""
    try:
        found = x509.load_pem_x509_certificates(pem)
    except ValueError:
        return ()
    return tuple(dict.fromkeys(each.public_bytes(serialization.Encoding.PEM) for each in found))


def joined(certificates: Iterable[bytes]) -> bytes:
    """The bundle of these certificates."""
    return b"".join(certificates)


def authorities(certificates: Iterable[bytes]) -> tuple[bytes, ...]:
    """Those that are authorities, each once; ended ones too: by other clocks than ours they may not have."""
    return tuple(dict.fromkeys(each for each in certificates if _is_authority(x509.load_pem_x509_certificate(each))))


def anchor(leaf: bytes, certificates: Iterable[bytes]) -> bytes | None:
    """The one that has signed `leaf`, or an authority in between that comes along with it in the same PEM."""
    known = tuple(certificates)
    return next((each for link in split(leaf) for each in known if _signed_by(link, each)), None)


def presentable(pair: issue.Pair, now: dt.datetime) -> bool:
    """True where a server could present this pair now."""
    certificate = bundle.certificate_of(pair)
    return certificate is not None and certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc


@functools.lru_cache(maxsize=256)
def _signed_by(leaf: bytes, authority: bytes) -> bool:
    try:
        x509.load_pem_x509_certificate(leaf).verify_directly_issued_by(x509.load_pem_x509_certificate(authority))
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False
