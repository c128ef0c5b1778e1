"""The set of certificates one installation needs, and which of those it already has may stay.

Owns that decision, as a function from what exists to what shall be. Refuses to know where they are stored.
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
RENEW_BEFORE = 1 / 3  # a leaf is renewed in the last third of its life, as kubelet and cert-manager do
_SHORTEST = dt.timedelta(seconds=1)  # of a life: what somebody else has issued may be shorter than our back-dating


@dataclasses.dataclass(frozen=True)
class Wanted:
    """One leaf: the name it is stored under and what it is for."""

    name: str
    common_name: str
    usage: issue.Usage
    hosts: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Held:
    """A pair of the bundle; `reused` is True where it was there before and stays byte for byte."""

    pair: issue.Pair
    reused: bool

    @property
    def not_after(self) -> dt.datetime:
        """When it ends."""
        return x509.load_pem_x509_certificate(self.pair.certificate_pem).not_valid_after_utc


def assemble(
    existing: Mapping[str, issue.Pair],
    wanted: Sequence[Wanted],
    *,
    now: dt.datetime,
    authority_lifetime: dt.timedelta,
    leaf_lifetime: dt.timedelta,
) -> dict[str, Held]:
    """Return the authority (key `ca`) and every wanted leaf.

    An authority that is still valid stays, because callers trust it already; a leaf stays while it is of that
    authority, serves the same use, covers the wanted hosts and is not in the last third of its life.
    """
    authority = existing.get(AUTHORITY)
    kept = authority if authority is not None and is_authority(authority, now=now) else None
    root = kept or issue.issue_authority("railwright", now=now, lifetime=authority_lifetime)
    held = {AUTHORITY: Held(root, reused=kept is not None)}
    for leaf in wanted:
        old = existing.get(leaf.name)
        if old is not None and serves(old, leaf, authority=root, now=now):
            held[leaf.name] = Held(old, reused=True)
            continue
        new = issue.issue_leaf(
            root,
            common_name=leaf.common_name,
            hosts=leaf.hosts,
            usages={leaf.usage},
            now=now,
            lifetime=leaf_lifetime,
        )
        held[leaf.name] = Held(new, reused=False)
    return held


def is_authority(pair: issue.Pair, *, now: dt.datetime) -> bool:
    """True when `pair` can sign now: a CA within its dates, both halves of one key, of a kind we sign with."""
    certificate = certificate_of(pair)
    if certificate is None or not _within(certificate, now):
        return False
    if not isinstance(certificate.public_key(), issue.PublicSigner):
        return False
    try:
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    except x509.ExtensionNotFound:
        return False
    return constraints.ca


def serves(pair: issue.Pair, wanted: Wanted, *, authority: issue.Pair, now: dt.datetime) -> bool:
    """True when an existing leaf may stay for what is wanted."""
    certificate = certificate_of(pair)
    root = certificate_of(authority)
    if certificate is None or root is None or not _within(certificate, now):
        return False
    try:
        certificate.verify_directly_issued_by(root)
        usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except (InvalidSignature, ValueError, TypeError, x509.ExtensionNotFound):
        return False
    fresh = left(certificate, now) > RENEW_BEFORE
    covered = {issue.general_name(host) for host in wanted.hosts} <= _names(certificate)
    return fresh and covered and issue.USAGE_OIDS[wanted.usage] in usages


def left(certificate: x509.Certificate, now: dt.datetime) -> float:
    """The share of its life that a certificate of ours still has: 1 when it is issued, 0 and less when it has ended."""
    life = certificate.not_valid_after_utc - certificate.not_valid_before_utc - issue.BACKDATED
    return (certificate.not_valid_after_utc - now) / max(life, _SHORTEST)


@functools.lru_cache(maxsize=32)  # a look judges the same few pairs again and again
def certificate_of(pair: issue.Pair) -> x509.Certificate | None:
    """The certificate of a pair whose halves belong together; None where they do not, or cannot be read."""
    try:
        certificate = x509.load_pem_x509_certificate(pair.certificate_pem)
        key = serialization.load_pem_private_key(pair.key_pem, password=None)
    except (ValueError, TypeError):
        return None
    form = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    same = certificate.public_key().public_bytes(*form) == key.public_key().public_bytes(*form)
    return certificate if same else None


def _within(certificate: x509.Certificate, now: dt.datetime) -> bool:
    return certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc


def _names(certificate: x509.Certificate) -> set[x509.GeneralName]:
    try:
        return set(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        return set()
