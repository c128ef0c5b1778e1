"""The certificates of an installation: their names, their clients or servers, and their Secrets."""

from collections.abc import Mapping, Sequence

from certs import bundle, issue

AUTHORITY = bundle.AUTHORITY
SERVERS = ("webhook", "extender")
CALLERS: Mapping[str, str] = {  # client -> common name of its client certificate
    "apiserver": "kube-apiserver",  # the name that Gatekeeper expects, so one certificate can serve both
    "scheduler": "kube-scheduler",
}
SECRETS: Mapping[str, str] = {
    AUTHORITY: "railwright-ca",
    **{name: f"railwright-{name}-tls" for name in SERVERS},
    **{name: f"railwright-{name}-client" for name in CALLERS},
}
LOOPBACK = ("localhost", "127.0.0.1", "::1")  # for port-forward, and clients on the same host


def hosts(server: str, namespace: str, more: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the DNS names of `server`'s Service in the cluster, loopback, and the operator's additional names."""
    service = f"railwright-{server}"
    qualified = f"{service}.{namespace}"
    return (service, qualified, f"{qualified}.svc", f"{qualified}.svc.cluster.local", *LOOPBACK, *more)


def wanted(namespace: str, *, more: Sequence[str] = (), callers: bool = False) -> list[bundle.Wanted]:
    """Return the certificates of both servers, and with `callers` the client certificates of API server and
    kube-scheduler.
    """
    leaves = [
        bundle.Wanted(name, f"railwright-{name}", issue.Usage.SERVER, hosts(name, namespace, more)) for name in SERVERS
    ]
    if callers:
        leaves += [bundle.Wanted(name, common, issue.Usage.CLIENT) for name, common in CALLERS.items()]
    return leaves
