"""Lists the certificates of an installation, and decides which existing ones are valid."""

import dataclasses
import datetime as dt
from collections.abc import Mapping, Sequence

from cryptography import x509

from certs import pki, schedules
from railwright.cluster import installed_names

CA = "ca"  # name of the CA among the certificates


@dataclasses.dataclass(frozen=True)
class CertificateSpec:
    """A serving or client certificate to issue: its name in the inventory, and its content."""

    name: str
    common_name: str
    usage: pki.Usage
    hosts: tuple[str, ...] = ()

    def issue(self, ca: pki.KeyPair, *, now: dt.datetime) -> pki.KeyPair:
        """Return a new certificate. Raises ValueError for hosts that a certificate cannot have."""
        lifetime = schedules.CLIENT_VALIDITY if self.usage is pki.Usage.CLIENT else schedules.SERVING_VALIDITY
        return pki.issue_certificate(
            ca, common_name=self.common_name, hosts=self.hosts, usages={self.usage}, now=now, lifetime=lifetime
        )


def is_usable_ca(pair: pki.KeyPair, *, now: dt.datetime) -> bool:
    """True if `pair` can issue certificates now: a valid CA with its private key, of a type that pki signs with."""
    certificate = pki.load_certificate(pair)
    return certificate is not None and pki.is_valid_at(certificate, now) and pki.is_signing_ca(certificate)


def matches_spec(pair: pki.KeyPair, spec: CertificateSpec, *, ca: pki.KeyPair, now: dt.datetime) -> bool:
    """True if `pair` was issued by `ca`, is valid and not due for renewal, and has the hosts and usage of `spec`."""
    certificate = pki.load_certificate(pair)
    if certificate is None or not pki.is_valid_at(certificate, now):
        return False
    names = pki.find_extension(certificate, x509.SubjectAlternativeName) or ()
    return (
        pki.find_issuer(pair.certificate_pem, [ca.certificate_pem]) is not None
        and now < get_renewal_time(certificate)
        and {pki.build_general_name(host) for host in spec.hosts} <= set(names)
        and pki.USAGE_OIDS[spec.usage] in (pki.find_extension(certificate, x509.ExtendedKeyUsage) or ())
    )


def get_renewal_time(certificate: x509.Certificate) -> dt.datetime:
    """Return the time at which a third of the validity period is left: cert-manager renews then too."""
    validity = certificate.not_valid_after_utc - certificate.not_valid_before_utc - pki.BACKDATED  # from its issue on
    return certificate.not_valid_after_utc - max(validity, dt.timedelta()) / 3  # others' may be valid for minutes


SERVERS = ("webhook", "extender")
CALLER = "kube-scheduler"  # common name of its client certificate
SECRETS: Mapping[str, str] = {
    CA: f"{installed_names.INSTALLATION}-ca",
    **{name: f"{installed_names.INSTALLATION}-{name}-tls" for name in SERVERS},
    CALLER: f"{installed_names.INSTALLATION}-scheduler-client",
}
LOOPBACK = ("localhost", "127.0.0.1", "::1")  # for port-forward, and clients on the same host


def list_hosts(server: str, namespace: str, more: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the host names of a server: those of its Service in the cluster, of loopback, and the operator's own."""
    service = f"{installed_names.INSTALLATION}-{server}"
    qualified = f"{service}.{namespace}"
    return (service, qualified, f"{qualified}.svc", f"{qualified}.svc.cluster.local", *LOOPBACK, *more)


def list_specs(namespace: str, *, more: Sequence[str] = (), has_extender: bool = True) -> list[CertificateSpec]:
    """Return which certificates to issue: one for each server, and a client certificate for kube-scheduler.

    `more` are additional host names of the servers. Without an extender, only the webhook gets a certificate.
    """
    webhook, extender = (
        CertificateSpec(
            name, f"{installed_names.INSTALLATION}-{name}", pki.Usage.SERVER, list_hosts(name, namespace, more)
        )
        for name in SERVERS
    )
    return [webhook, extender, CertificateSpec(CALLER, CALLER, pki.Usage.CLIENT)] if has_extender else [webhook]
