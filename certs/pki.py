"""Issues certificates, and reads certificates and CA bundles of any origin. All are PEM, in memory.

The current time is a parameter, so that validity can be tested. The caller decides where keys are stored.

Keys are ECDSA P-256, which every Go, OpenSSL and Python client accepts. Every certificate has the key identifiers and
key usages that strict verification requires (RFC 5280 section 4.2.1; Python 3.13 sets VERIFY_X509_STRICT by default).
"""

import dataclasses
import datetime as dt
import enum
import functools
import ipaddress
import re
from collections.abc import Collection, Iterable, Sequence
from typing import TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

Extension = TypeVar("Extension", bound=x509.ExtensionType)
_LABEL = re.compile("[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")  # of a DNS name, RFC 1123
BACKDATED = dt.timedelta(hours=1)  # tolerates clocks of two machines that differ by up to an hour


class Usage(enum.StrEnum):
    """The side of a TLS handshake that may present a certificate."""

    SERVER = "server"
    CLIENT = "client"


# supported types of a CA's key, with SHA-256: railwright issues ECDSA keys, but an operator may supply an RSA key
PublicSigner = ec.EllipticCurvePublicKey | rsa.RSAPublicKey
PrivateSigner = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
USAGE_OIDS = {Usage.SERVER: ExtendedKeyUsageOID.SERVER_AUTH, Usage.CLIENT: ExtendedKeyUsageOID.CLIENT_AUTH}


@dataclasses.dataclass(frozen=True)
class Pair:
    """A certificate and its private key (PKCS#8, unencrypted), both PEM."""

    certificate_pem: bytes
    key_pem: bytes = dataclasses.field(repr=False)  # keeps the key out of logs and failed assertions


def issue_ca(common_name: str, *, now: dt.datetime, lifetime: dt.timedelta) -> Pair:
    """Return a self-signed CA that cannot issue other CAs (path length 0), valid until now + lifetime."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _build_name(common_name, ())
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    builder = (
        _start_certificate(subject, key.public_key(), now, now + lifetime)
        .issuer_name(subject)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_build_key_usage(is_ca=True), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
    )
    return _build_pair(builder.sign(key, hashes.SHA256()), key)


def issue_certificate(  # noqa: PLR0913 - a certificate has this many independent parts, all but one by name
    ca: Pair,
    *,
    common_name: str,
    organizations: Sequence[str] = (),
    hosts: Sequence[str] = (),
    usages: Collection[Usage | str],
    now: dt.datetime,
    lifetime: dt.timedelta,
) -> Pair:
    """Return a certificate issued by `ca`, valid until now + lifetime but no longer than the CA.

    `hosts` are DNS names (a leading `*.` is allowed) or IP addresses; a serving certificate needs at least one,
    because clients ignore the common name (RFC 9525). Kubernetes reads `organizations` as groups. Raises ValueError
    with the value that is not allowed in a certificate.
    """
    issuer = x509.load_pem_x509_certificate(ca.certificate_pem)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _build_name(common_name, organizations)
    until = min(now + lifetime, issuer.not_valid_after_utc)
    builder = (
        _start_certificate(subject, key.public_key(), now, until)
        .issuer_name(issuer.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_build_key_usage(is_ca=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([USAGE_OIDS[Usage(use)] for use in sorted(usages)]), critical=False)
        .add_extension(_build_key_identifier(issuer), critical=False)
    )
    if hosts:
        names = [build_general_name(host) for host in dict.fromkeys(hosts)]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return _build_pair(builder.sign(_load_private_key(ca), hashes.SHA256()), key)


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


def _start_certificate(
    subject: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    now: dt.datetime,
    until: dt.datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )


def _build_key_usage(*, is_ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
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


def _build_key_identifier(issuer: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    identifier = find_extension(issuer, x509.SubjectKeyIdentifier)
    if identifier is None:  # issued by another tool
        identifier = x509.SubjectKeyIdentifier.from_public_key(issuer.public_key())
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)


def _load_private_key(pair: Pair) -> PrivateSigner:
    key = serialization.load_pem_private_key(pair.key_pem, password=None)
    if not isinstance(key, PrivateSigner):
        raise TypeError(f"the CA's key is {type(key).__name__}; railwright signs with ECDSA and RSA keys")
    return key


def _build_pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    return Pair(
        certificate_pem=certificate.public_bytes(serialization.Encoding.PEM),
        key_pem=key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
    )


def is_key_of(certificate: x509.Certificate, key_pem: bytes) -> bool:
    """True if a private key belongs to a certificate. Raises ValueError or TypeError for an unreadable key."""
    return certificate.public_key() == serialization.load_pem_private_key(key_pem, password=None).public_key()


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


def get_issue_time(pair: Pair) -> dt.datetime:
    """Return when one of railwright's certificates was issued. Raises ValueError for an invalid one."""
    return x509.load_pem_x509_certificate(pair.certificate_pem).not_valid_before_utc + BACKDATED


@functools.lru_cache(maxsize=32)  # each poll checks the same few pairs
def load_certificate(pair: Pair) -> x509.Certificate | None:
    """Return the certificate of `pair`, or None if it cannot be read or the key does not match."""
    try:
        certificate = x509.load_pem_x509_certificate(pair.certificate_pem)
        return certificate if is_key_of(certificate, pair.key_pem) else None
    except (ValueError, TypeError):
        return None


def is_presentable(pair: Pair, now: dt.datetime) -> bool:
    """True if this pair is valid now and its key matches, so that a server can present it."""
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


def find_issuer(chain: bytes, certificates: Iterable[bytes]) -> bytes | None:
    """Return the one of `certificates` that issued a chain's first certificate or an intermediate CA in it, if any."""
    candidates = tuple(certificates)
    return next(
        (issuer for link in split_bundle(chain) for issuer in candidates if _is_signed_by_pem(link, issuer)), None
    )


def is_ca(certificate: x509.Certificate) -> bool:
    """True if the certificate may issue others, by its basic constraints."""
    constraints = find_extension(certificate, x509.BasicConstraints)
    return constraints is not None and constraints.ca


def find_extension(certificate: x509.Certificate, kind: type[Extension]) -> Extension | None:
    """Return the extension of a kind, None if the certificate has none."""
    try:
        return certificate.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None


@functools.lru_cache(maxsize=256)
def _is_signed_by_pem(certificate: bytes, issuer: bytes) -> bool:
    return is_signed_by(x509.load_pem_x509_certificate(certificate), x509.load_pem_x509_certificate(issuer))
