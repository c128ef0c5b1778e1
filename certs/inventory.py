"""The certificates of one installation: which leaves there are, for whom, and in which Secret each is kept.

Owns names. Refuses to know what is in force and when anything is renewed.
"""

from collections.abc import Mapping, Sequence

from certs import bundle, issue

AUTHORITY = bundle.AUTHORITY
SERVERS = ("webhook", "extender")
CALLERS: Mapping[str, str] = {  # who calls us -> the common name it presents
    "apiserver": "kube-apiserver",  # as Gatekeeper expects it, so one certificate could do for both
    "scheduler": "kube-scheduler",
}
SECRETS: Mapping[str, str] = {
    AUTHORITY: "railwright-ca",
    **{name: f"railwright-{name}-tls" for name in SERVERS},
    **{name: f"railwright-{name}-client" for name in CALLERS},
}
LOOPBACK = ("localhost", "127.0.0.1", "::1")  # port-forward, and callers on the same host


def hosts(server: str, namespace: str, more: Sequence[str] = ()) -> tuple[str, ...]:
    """Every name the Service of `server` answers to in a cluster, loopback, and what the operator adds."""
    service = f"railwright-{server}"
    qualified = f"{service}.{namespace}"
    return (service, qualified, f"{qualified}.svc", f"{qualified}.svc.cluster.local", *LOOPBACK, *more)


def wanted(namespace: str, *, more: Sequence[str] = (), callers: bool = False) -> list[bundle.Wanted]:
    """The leaves of both servers, and with `callers` those that the API server and kube-scheduler present to them."""
    leaves = [
        bundle.Wanted(name, f"railwright-{name}", issue.Usage.SERVER, hosts(name, namespace, more)) for name in SERVERS
    ]
    if callers:
        leaves += [bundle.Wanted(name, common, issue.Usage.CLIENT) for name, common in CALLERS.items()]
    return leaves
