"""Finds options that contradict each other or lack another."""

import itertools

from railwright.serving import addresses
from railwright.serving.settings import Settings


def find_conflict(settings: Settings) -> str | None:
    """Return the first conflict as a message with its fix, or None."""
    checks = (
        _find_transport_problem,
        _find_port_problem,
        _find_dashboard_problem,
        _find_volcano_problem,
        _find_source_problem,
        _find_leader_problem,
    )
    return next((problem for check in checks if (problem := check(settings))), None)


def _find_transport_problem(settings: Settings) -> str | None:
    if bool(settings.tls_cert) != bool(settings.tls_key):
        return "--tls-cert and --tls-key must be given together: add the missing one"
    if settings.plain_http and (settings.tls_cert or settings.client_ca):
        return "--plain-http excludes --tls-cert, --tls-key and --client-ca: remove one or the others"
    if settings.client_names and not settings.client_ca:
        return "--client-names requires --client-ca: names are only checked in certificates issued by that CA"
    if not settings.plain_http and not settings.tls_cert:
        return "no serving certificate: give --tls-cert and --tls-key (see railwright certs issue), or --plain-http"
    if settings.allow_plain_http and settings.server != "extender":
        return "--allow-plain-http is for the extender only: the API server calls webhooks over TLS"
    for address in filter(None, (settings.listen, settings.volcano_listen)):
        if settings.plain_http and not address.is_loopback and not settings.allow_plain_http:
            extra = ", or add --allow-plain-http and a NetworkPolicy" if settings.server == "extender" else ""
            return f"--plain-http on {address}: listen on loopback, such as 127.0.0.1:{address.port}{extra}"
    return None


def _find_port_problem(settings: Settings) -> str | None:
    listeners = (
        ("--listen", settings.listen),
        ("--ops-listen", settings.ops_listen),
        ("--dashboard-listen", settings.dashboard_listen),
        ("--volcano-listen", settings.volcano_listen),
    )
    open_listeners = [(flag, address) for flag, address in listeners if address is not None]
    for (flag, first), (other_flag, second) in itertools.combinations(open_listeners, 2):
        if first.port == second.port != 0 and _do_overlap(first, second):
            return f"{flag} {first} and {other_flag} {second} use the same port: change one"
    return None


def _find_volcano_problem(settings: Settings) -> str | None:
    if settings.volcano_listen is not None and settings.server != "extender":
        return "--volcano-listen is for the extender only: Volcano does not call the webhook"
    return None


def _find_dashboard_problem(settings: Settings) -> str | None:
    listen = settings.dashboard_listen
    if listen is None:
        return None
    if settings.server != "extender":
        return "--dashboard-listen is for the extender only: the webhook does not track gangs"
    if settings.snapshot and not listen.is_loopback:
        return f"--dashboard-listen {listen} with --snapshot: no API server can authorize viewers; use 127.0.0.1"
    return None


def _do_overlap(first: addresses.Address, second: addresses.Address) -> bool:
    wildcards = {"", "0.0.0.0", "::"}  # noqa: S104 - compared, not bound
    return first.host == second.host or bool(wildcards & {first.host, second.host})


def _find_source_problem(settings: Settings) -> str | None:
    if settings.snapshot and not settings.policy and not settings.kubeconfig:
        return "--snapshot replaces the cluster, so the policy must come from a file as well: add --policy FILE"
    return None


def _find_leader_problem(settings: Settings) -> str | None:
    if settings.leader_elect and settings.server != "extender":
        return "--leader-elect is for the extender only: every replica of the webhook answers"
    if settings.leader_elect and settings.snapshot:
        return "--leader-elect requires an API server, which --snapshot replaces: remove one of them"
    if settings.lease_seconds < 1:
        return f"--lease-seconds {settings.lease_seconds:g}: a Lease lasts whole seconds; give 1 or more"
    return None
