"""Rows about certificates: each server's Secret, its pair, its names, its time; the caBundle that callers trust.

Owns the reading of PEM. Where Secrets may not be read, the caBundle is judged alone.
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
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization

from railwright.cli.checking import installation, leases, model
from railwright.cli.checking import seen as sight
from railwright.cli.checking.model import Row, fail, ok, skip, warn
from railwright.fabric import names

_RENEW = 1 / 3  # of its life is left when a leaf is renewed (certs/bundle.py)
_AUTHORITY_NOTICE = dt.timedelta(days=30)  # time to change what callers trust
_ROTATE = "railwright certs rotate"
_CERT_MANAGER = "cert-manager.io/certificate-name"  # annotation cert-manager writes on its Secrets


class Chain(tuple[x509.Certificate, ...]):
    """The certificates of a Secret: the leaf first, then what signed it."""

    __slots__ = ()


def chain_of(secret: Any) -> Chain:
    """Raises ValueError, which says what is wrong."""
    return Chain(_certificates(_data(secret, "tls.crt")))


def signer_of(chain: Chain, bundle: Iterable[x509.Certificate]) -> x509.Certificate | None:
    """The certificate of a caBundle under which a chain stands, None where there is none."""
    for lower, upper in itertools.pairwise(chain):
        if not _signed(lower, upper):
            return None
    last = chain[-1]
    return next((each for each in bundle if last == each or _signed(last, each)), None)


def bundle_of(hook: Mapping[str, Any]) -> tuple[x509.Certificate, ...]:
    """The certificates of an entry's caBundle. Raises ValueError."""
    written = sight.dig(hook, "clientConfig", "caBundle")
    if not written:
        raise ValueError("has no caBundle")
    return _certificates(_decoded(written))


def _exists(server: str) -> model.Judge:
    def judge(seen: sight.Seen) -> model.Verdict:
        reason = _unneeded(seen, server)
        if reason:
            return skip(reason)
        secret = seen.one(f"{server}-secret")
        if secret is None:
            return fail(f"Secret {sight.SECRETS[server]} does not exist in namespace {seen.namespace}")
        try:
            chain = chain_of(secret)
            serialization.load_pem_private_key(_data(secret, "tls.key"), password=None)
        except (ValueError, TypeError) as error:
            return fail(f"Secret {sight.SECRETS[server]}: {error}")
        return ok(f"{sight.SECRETS[server]}, {sight.counted(len(chain), 'certificate')}")

    return judge


def _on_chain(server: str, judge: Callable[[sight.Seen, Chain, Any], model.Verdict]) -> model.Judge:
    """A judgement of a certificate that can be read; the row before says where it cannot."""

    def judged(seen: sight.Seen) -> model.Verdict:
        reason = _unneeded(seen, server)
        if reason:
            return skip(reason)
        secret = seen.one(f"{server}-secret")
        return judge(seen, chain_of(secret), secret)

    return judged


def _pair(_seen: sight.Seen, chain: Chain, secret: Any) -> model.Verdict:
    key = serialization.load_pem_private_key(_data(secret, "tls.key"), password=None)
    form = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    if chain[0].public_key().public_bytes(*form) != key.public_key().public_bytes(*form):
        return fail("tls.key is not the key of tls.crt: no server can load it")
    return ok()


def _named(hosts: Callable[[sight.Seen], Iterable[str]]) -> Callable[[sight.Seen, Chain, Any], model.Verdict]:
    def judge(seen: sight.Seen, chain: Chain, _secret: Any) -> model.Verdict:
        wanted = list(dict.fromkeys(hosts(seen)))
        lacking = [host for host in wanted if not _covers(chain[0], host)]
        if lacking:
            return fail(f"the certificate is not for {', '.join(lacking)}, by which it is called")
        return ok(", ".join(wanted))

    return judge


def _validity(seen: sight.Seen, chain: Chain, _secret: Any) -> model.Verdict:
    leaf = chain[0]
    begin, end = leaf.not_valid_before_utc, leaf.not_valid_after_utc
    if seen.now >= end:
        return fail(f"expired {end:%Y-%m-%d %H:%M} UTC, {_span(seen.now - end)} ago")
    if seen.now < begin:
        return fail(f"valid only from {begin:%Y-%m-%d %H:%M} UTC on", "compare the clocks of the machines: date -u")
    left = end - seen.now
    if left < (end - begin) * _RENEW:
        return warn(f"{_span(left)} left of {_span(end - begin)}: less than a third, and not renewed yet")
    return ok(f"{_span(left)} left, until {end:%Y-%m-%d}")


def _bundles(seen: sight.Seen) -> model.Verdict:
    if not seen.hooks:
        return skip("there is no webhook configuration of ours to look at")
    chain = _webhook_chain(seen)
    problems = [f"{hook.get('name')}: {problem}" for hook in seen.hooks if (problem := _mistrust(hook, chain))]
    if problems:
        return fail(sight.listed(problems, 3))
    told = sight.counted(len(seen.hooks), "entry")
    return ok(told if chain else f"{told}; the webhook's own was not readable")


def _authority(seen: sight.Seen) -> model.Verdict:
    chain = _webhook_chain(seen)
    ends: list[dt.datetime] = []
    for hook in seen.hooks:
        bundle = bundle_of(hook)
        signer = signer_of(chain, bundle) if chain else None
        ends.append(signer.not_valid_after_utc if signer else max(each.not_valid_after_utc for each in bundle))
    if not ends:
        return skip("there is no webhook configuration of ours to look at")
    end = min(ends)
    left = end - seen.now
    if left <= dt.timedelta():
        return fail(f"the authority expired {end:%Y-%m-%d %H:%M} UTC")
    if left < _AUTHORITY_NOTICE:
        return warn(f"the authority ends in {_span(left)}")
    return ok(f"{_span(left)} left, until {end:%Y-%m-%d}")


def _rotation(seen: sight.Seen) -> model.Verdict:
    annotations = sight.dig(seen.one(f"{sight.WEBHOOK}-secret"), "metadata", "annotations") or {}
    if _CERT_MANAGER in annotations:
        return ok(f"by cert-manager, Certificate {annotations[_CERT_MANAGER]}")
    deployment = seen.named("deployments", sight.CERTS)
    if deployment is None and f"{sight.WEBHOOK}-secret" in seen.unread:
        return skip(f"there is no Deployment {sight.CERTS}; whether cert-manager does it, the Secret would tell")
    if deployment is None:
        return warn(
            f"nobody renews certificates: there is no Deployment {sight.CERTS}, and the Secret is not cert-manager's"
        )
    found = installation.replicas(seen, deployment)
    if found.state is not model.State.OK:
        return found
    lease = seen.named("leases", sight.CERTS)
    problem = leases.problem(lease, seen.now) if lease else "does not exist"
    if problem and "leases" not in seen.unread:
        return warn(
            f"Lease {sight.CERTS} {problem}: no replica renews certificates",
            f"kubectl -n {names.NAMESPACE} logs deployment/{sight.CERTS}",
        )
    return ok(f"by {leases.holder(lease) or sight.CERTS}")


def _mistrust(hook: Mapping[str, Any], chain: Chain | None) -> str:
    try:
        bundle = bundle_of(hook)
    except ValueError as error:
        return str(error)
    if chain is not None and signer_of(chain, bundle) is None:
        return "its caBundle does not verify the webhook's certificate"
    return ""


def _webhook_chain(seen: sight.Seen) -> Chain | None:
    secret = seen.one(f"{sight.WEBHOOK}-secret")
    return None if secret is None else chain_of(secret)


def _unneeded(seen: sight.Seen, server: str) -> str:
    """Why this server has no certificate, "" where it should have one."""
    deployment = seen.named("deployments", server)
    if server != sight.EXTENDER:
        return ""
    if deployment is None and "deployments" not in seen.unread:
        return f"there is no Deployment {server}"
    return "the extender serves plain HTTP (--plain-http)" if "--plain-http" in sight.arguments(deployment) else ""


def _webhook_hosts(seen: sight.Seen) -> Iterator[str]:
    for hook in seen.hooks:
        url = sight.dig(hook, "clientConfig", "url")
        # a Service's name is what the API server asks for by SNI; another's than ours is another row's finding
        yield urllib.parse.urlsplit(url).hostname or url if url else f"{sight.WEBHOOK}.{seen.namespace}.svc"
    if not seen.hooks:
        yield f"{sight.WEBHOOK}.{seen.namespace}.svc"


def _extender_hosts(seen: sight.Seen) -> Iterator[str]:
    yield f"{sight.EXTENDER}.{seen.namespace}.svc"


def _covers(leaf: x509.Certificate, host: str) -> bool:
    try:
        there = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return False
    try:
        return ipaddress.ip_address(host) in there.get_values_for_type(x509.IPAddress)
    except ValueError:
        known = there.get_values_for_type(x509.DNSName)
        return host in known or f"*.{host.partition('.')[2]}" in known


def _signed(lower: x509.Certificate, upper: x509.Certificate) -> bool:
    try:
        lower.verify_directly_issued_by(upper)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def _certificates(pem: bytes) -> tuple[x509.Certificate, ...]:
    try:
        return tuple(x509.load_pem_x509_certificates(pem))
    except ValueError as error:
        raise ValueError(f"is no certificate: {error}") from None


def _data(secret: Any, key: str) -> bytes:
    written = sight.dig(secret, "data", key)
    if not written:
        raise ValueError(f"has no {key}")
    return _decoded(written)


def _decoded(written: str) -> bytes:
    try:
        return base64.b64decode(written)
    except (binascii.Error, ValueError):
        raise ValueError("is no base64") from None


def _span(time: dt.timedelta) -> str:
    if time >= dt.timedelta(days=2):
        return f"{time.days} days"
    hours, minutes = divmod(int(time.total_seconds()) // 60, 60)
    return f"{hours} h {minutes} min"


def rows() -> Iterator[Row]:
    """The group `certificates`."""
    for word, server, hosts in (
        ("webhook", sight.WEBHOOK, _webhook_hosts),
        ("extender", sight.EXTENDER, _extender_hosts),
    ):
        reads, basis = (f"{server}-secret",), (f"{word}-secret",)
        yield Row(f"{word}-secret", f"the {word}'s certificate exists", _exists(server),
                  f"{_ROTATE} (cert-manager: kubectl -n railwright-system describe certificates)",
                  reads, ("namespace",))  # fmt: skip
        yield Row(f"{word}-pair", f"the {word}'s key belongs to its certificate", _on_chain(server, _pair),
                  f"kubectl -n railwright-system delete secret {sight.SECRETS[server]}, then: {_ROTATE}",
                  reads, basis)  # fmt: skip
        yield Row(f"{word}-names", f"the {word}'s certificate is for its Service", _on_chain(server, _named(hosts)),
                  f"{_ROTATE} with --namespace and --host as the {word} is called",
                  (*reads, "mutating") if word == "webhook" else reads, basis)  # fmt: skip
        yield Row(f"{word}-validity", f"the {word}'s certificate has time left", _on_chain(server, _validity),
                  f"{_ROTATE}, and see why it was not done: kubectl -n railwright-system logs deployment/{sight.CERTS}",
                  reads, basis)  # fmt: skip
    yield Row("ca-bundle", "every webhook entry trusts the webhook's certificate", _bundles,
              f"{_ROTATE} (it fills caBundle; with cert-manager its cainjector does)",
              ("mutating", "validating"), ("webhook-secret", "webhook-pair"))  # fmt: skip
    yield Row("ca-validity", "the authority has time left", _authority,
              f"{_ROTATE} (it brings a new authority in two steps)",
              ("mutating", "validating"), ("ca-bundle",))  # fmt: skip
    yield Row("certs-rotation", "certificates are renewed by somebody", _rotation,
              "kubectl apply -k manifests/base (it has the Deployment), or use cert-manager",
              ("deployments",), ("webhook-secret",))  # fmt: skip
