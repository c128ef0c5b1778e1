"""The certificates of an installation: their names, their clients or servers, and their Secrets."""

from collections.abc import Mapping, Sequence

from certs import bundle, issue
from railwright.cluster import installed_names

CA = bundle.CA
SERVERS = ("webhook", "extender")
CLIENTS: Mapping[str, str] = {  # client -> common name of its certificate
    "apiserver": "kube-apiserver",  # the name that Gatekeeper expects, so one certificate can serve both
    "scheduler": "kube-scheduler",
}
SECRETS: Mapping[str, str] = {
    CA: f"{installed_names.INSTALLATION}-ca",
    **{name: f"{installed_names.INSTALLATION}-{name}-tls" for name in SERVERS},
    **{name: f"{installed_names.INSTALLATION}-{name}-client" for name in CLIENTS},
}
LOOPBACK = ("localhost", "127.0.0.1", "::1")  # for port-forward, and clients on the same host


def list_hosts(server: str, namespace: str, more: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the DNS names of `server`'s Service in the cluster, loopback, and the operator's additional names."""
    service = f"{installed_names.INSTALLATION}-{server}"
    qualified = f"{service}.{namespace}"
    return (service, qualified, f"{qualified}.svc", f"{qualified}.svc.cluster.local", *LOOPBACK, *more)


def list_specs(namespace: str, *, more: Sequence[str] = (), clients: bool = False) -> list[bundle.CertificateSpec]:
    """Return the certificates of both servers, and with `clients` the certificates of API server and kube-scheduler.

    `more` are additional hosts of the servers.
    """
    specs = [
        bundle.CertificateSpec(
            name, f"{installed_names.INSTALLATION}-{name}", issue.Usage.SERVER, list_hosts(name, namespace, more)
        )
        for name in SERVERS
    ]
    if clients:
        specs += [bundle.CertificateSpec(name, common, issue.Usage.CLIENT) for name, common in CLIENTS.items()]
    return specs
