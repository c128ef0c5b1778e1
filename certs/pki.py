"""Issues certificates, and reads certificates and CA bundles of any origin. All are PEM, in memory.

The current time is a parameter, so that validity can be tested. The caller decides where keys are stored.

Keys are ECDSA P-256, which every Go, OpenSSL and Python client accepts. Every certificate has the key identifiers and
key usages that strict verification requires (RFC 5280 section 4.2.1; Python 3.13 sets VERIFY_X509_STRICT by default).
"""

import dataclasses
import datetime as dt
import enum
import ipaddress
import re
from collections.abc import Collection, Iterable, Sequence
from typing import TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

Extension = TypeVar("Extension", bound=x509.ExtensionType)
_LABEL = re.compile("[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")  # of a DNS name, RFC 1123
BACKDATED = dt.timedelta(hours=1)  # tolerates clocks of two machines that differ by up to an hour


class Usage(enum.StrEnum):
    """The side of a TLS handshake that may present a certificate."""

    SERVER = "server"
    CLIENT = "client"


USAGE_OIDS = {Usage.SERVER: ExtendedKeyUsageOID.SERVER_AUTH, Usage.CLIENT: ExtendedKeyUsageOID.CLIENT_AUTH}


@dataclasses.dataclass(frozen=True)
class KeyPair:
    """A certificate and its private key (PKCS#8, unencrypted), both PEM."""

    certificate_pem: bytes
    key_pem: bytes = dataclasses.field(repr=False)  # keeps the key out of logs and failed assertions


def issue_ca(common_name: str, *, now: dt.datetime, lifetime: dt.timedelta) -> KeyPair:
    """Return a self-signed CA that cannot issue other CAs (path length 0), valid until now + lifetime."""
    return _issue_pair(_build_name(common_name, ()), None, now, now + lifetime)


def issue_certificate(  # noqa: PLR0913 - a certificate has this many independent parts, all but one by name
    ca: KeyPair,
    *,
    common_name: str,
    organizations: Sequence[str] = (),
    hosts: Sequence[str] = (),
    usages: Collection[Usage | str],
    now: dt.datetime,
    lifetime: dt.timedelta,
) -> KeyPair:
    """Return a certificate issued by `ca`, valid until now + lifetime but no longer than the CA.

    `hosts` are DNS names (a leading `*.` is allowed) or IP addresses; a serving certificate needs at least one,
    because clients ignore the common name (RFC 9525). Kubernetes reads `organizations` as groups. Raises ValueError
    with the value that is not allowed in a certificate.
    """
    until = min(now + lifetime, x509.load_pem_x509_certificate(ca.certificate_pem).not_valid_after_utc)
    usage = x509.ExtendedKeyUsage([USAGE_OIDS[Usage(use)] for use in sorted(usages)])
    names = [build_general_name(host) for host in dict.fromkeys(hosts)]
    extensions = [usage, x509.SubjectAlternativeName(names)] if names else [usage]
    return _issue_pair(_build_name(common_name, organizations), ca, now, until, *extensions)


def _issue_pair(
    subject: x509.Name, ca: KeyPair | None, now: dt.datetime, until: dt.datetime, *extensions: x509.ExtensionType
) -> KeyPair:
    """Return a new key and its certificate, issued by `ca`; without `ca`, a self-signed CA."""
    key, issuer, is_ca = ec.generate_private_key(ec.SECP256R1()), subject, ca is None
    signer: object = key
    if ca is not None:
        issuer = x509.load_pem_x509_certificate(ca.certificate_pem).subject
        signer = serialization.load_pem_private_key(ca.key_pem, password=None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)  # noqa: S101 - see is_signing_ca
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=is_ca,
        crl_sign=is_ca,
        content_commitment=False,
        key_encipherment=False,  # RSA key transport; an ECDSA key only signs
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    builder = (
        x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(until)
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=0 if is_ca else None), critical=True)
        .add_extension(usage, critical=True)
    )
    for extension in (
        x509.SubjectKeyIdentifier.from_public_key(key.public_key()),
        x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()),
        *extensions,
    ):
        builder = builder.add_extension(extension, critical=False)
    pkcs8, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return KeyPair(
        builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, pkcs8, plain),
    )


def build_general_name(host: str) -> x509.GeneralName:
    """Return `host` as an entry of subjectAltName: an IP address ([::1] too) or a DNS name."""
    bare = host.strip().removeprefix("[").removesuffix("]")
    try:
        return x509.IPAddress(ipaddress.ip_address(bare))
    except ValueError:
        pass  # not an address, so it must be a DNS name
    labels = bare.removeprefix("*.").split(".")
    if len(bare) > 253 or not all(map(_LABEL.fullmatch, labels)):
        raise ValueError(f"host {host!r} is neither an IP address nor a DNS name (no port, no scheme, no underscore)")
    return x509.DNSName(bare.lower())


def _build_name(common_name: str, organizations: Sequence[str]) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization) for organization in organizations]
    return x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def is_valid_at(certificate: x509.Certificate, now: dt.datetime) -> bool:
    """True if `now` is within the certificate's validity period."""
    return certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc


def get_issue_time(pair: KeyPair) -> dt.datetime:
    """Return when one of railwright's certificates was issued. Raises ValueError for invalid PEM."""
    return x509.load_pem_x509_certificate(pair.certificate_pem).not_valid_before_utc + BACKDATED


def load_certificate(pair: KeyPair) -> x509.Certificate | None:
    """Return the certificate of `pair`, or None if it cannot be read or the key does not match."""
    try:
        certificate = x509.load_pem_x509_certificate(pair.certificate_pem)
        key = serialization.load_pem_private_key(pair.key_pem, password=None)
        return certificate if certificate.public_key() == key.public_key() else None
    except (ValueError, TypeError):
        return None


def is_presentable(pair: KeyPair, now: dt.datetime) -> bool:
    """True if a server or client can present `pair` now: the certificate is valid, and the key matches."""
    certificate = load_certificate(pair)
    return certificate is not None and is_valid_at(certificate, now)


def split_bundle(pem: bytes) -> tuple[bytes, ...]:
    """Return the certificates of a bundle, deduplicated and normalized; () if it cannot be read."""
    try:
        parsed = x509.load_pem_x509_certificates(pem)
    except ValueError:
        return ()
    return tuple(dict.fromkeys(certificate.public_bytes(serialization.Encoding.PEM) for certificate in parsed))


def find_issuer(chain: bytes, certificates: Iterable[bytes]) -> bytes | None:
    """Return the first of `certificates` that issued a certificate in `chain`; None if none did."""
    candidates = tuple(certificates)
    return next((issuer for link in split_bundle(chain) for issuer in candidates if _is_signed_by(link, issuer)), None)


def is_signing_ca(certificate: x509.Certificate) -> bool:
    """True for a CA that `issue_certificate` can sign with: an elliptic-curve key, and its standard key identifier."""
    key, constraints = certificate.public_key(), find_extension(certificate, x509.BasicConstraints)
    if constraints is None or not constraints.ca or not isinstance(key, ec.EllipticCurvePublicKey):
        return False
    return find_extension(certificate, x509.SubjectKeyIdentifier) == x509.SubjectKeyIdentifier.from_public_key(key)


def find_extension(certificate: x509.Certificate, kind: type[Extension]) -> Extension | None:
    """Return the certificate's extension of a type; None without one."""
    try:
        return certificate.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None


def _is_signed_by(certificate: bytes, issuer: bytes) -> bool:
    """True if name and signature show that `issuer` issued the certificate. Ignores validity."""
    try:
        x509.load_pem_x509_certificate(certificate).verify_directly_issued_by(x509.load_pem_x509_certificate(issuer))
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True
