"""Checks of certificates: Secret, key, host and validity for each server, and the webhook entries' caBundle.

Without permission to read Secrets, only the caBundle is checked.
"""

import base64
import datetime as dt
import urllib.parse

from cryptography import x509

from certs import inventory, pki
from railwright.cli.checking import installation, snapshots
from railwright.cli.checking.rows import Result, fail, ok, row, warn
from railwright.cli.checking.snapshots import Snapshot, find_named, get_value, read_options, require_value
from railwright.cluster.installed_names import CERTS, EXTENDER, NAMESPACE, WEBHOOK
from railwright.fabric import text

GROUP = "certificates"

_CA_NOTICE = dt.timedelta(days=30)  # enough time to replace the CA
_WEBHOOK_SECRET = f"{WEBHOOK}-secret"
_WAIT = "just after an installation, wait for the certificates first: railwright check --wait; otherwise: "
_ROTATE = f"railwright certs rotate (cert-manager: kubectl -n {NAMESPACE} describe certificates)"
_READ_LOG = f"railwright certs rotate; the log says why rotation failed: kubectl -n {NAMESPACE} logs deployment/{CERTS}"


@row(_ROTATE, each=lambda _: {WEBHOOK: WEBHOOK, EXTENDER: EXTENDER}, heals=True)
def check_certificates(snapshot: Snapshot, server: str) -> Result:
    """Certificates of webhook and extender are valid.

    The Secrets `railwright-webhook-tls` and `railwright-extender-tls` exist and contain a certificate and its private
    key. A key of another certificate comes from manual edits or from two writers; servers keep the last valid pair
    until they restart. Skipped for an extender that serves plain HTTP for Volcano.

    A certificate covers the host that callers use: `railwright-webhook.NAMESPACE.svc`, or the host of the URL that the
    API server calls, and `railwright-extender.NAMESPACE.svc`. Otherwise every call fails with `x509: certificate is
    valid for ...`.

    A certificate is valid now. Warns if less than a third of its validity is left: rotation should have renewed it by
    then.
    """
    if server == EXTENDER:
        options = read_options(installation.get_deployment(snapshot, EXTENDER))
        require_value("--plain-http" not in options, "the extender serves plain HTTP (--plain-http)")
    secret, name = snapshot.find_object(f"{server}-secret"), snapshots.SECRETS[server]
    pair = secret.read_pair() if secret else None
    if pair is None:
        missing = f"Secret {name} does not exist in namespace {NAMESPACE}, or lacks tls.crt or tls.key"
        return fail(missing, _WAIT + _ROTATE, lasting=installation.lacks_image(snapshot, CERTS))
    certificate = pki.load_certificate(pair)
    if certificate is None:
        return fail(
            f"Secret {name}: tls.crt is no certificate, or tls.key is not its key: the server cannot load them",
            f"kubectl -n {NAMESPACE} delete secret {name}, then: railwright certs rotate",
            lasting=True,
        )
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if snapshot.now >= end:
        return fail(f"expired {_format_time(end)}", _READ_LOG)
    if snapshot.now < begin:
        return fail(f"valid only from {_format_time(begin)}", "compare the clocks of the hosts: date -u")
    urls = [""]
    if server == WEBHOOK:
        snapshot.require_sources("mutating")  # its entries name the host
        urls = [get_value(hook, "clientConfig", "url") for hook in snapshot.webhook_entries] or urls
    # the API server sends the Service's DNS name by SNI; the row webhook-entries reports other Services
    hosts = [urllib.parse.urlsplit(url).hostname or url if url else f"{server}.{NAMESPACE}.svc" for url in urls]
    covered = {str(name.value) for name in pki.find_extension(certificate, x509.SubjectAlternativeName) or ()}
    if uncovered := [host for host in dict.fromkeys(hosts) if not {host, f"*.{host.partition('.')[2]}"} & covered]:
        return fail(
            f"the certificate does not cover {', '.join(uncovered)}, the host that callers use",
            f"railwright certs rotate --namespace NAMESPACE --host HOST, by which callers reach {server}",
            lasting=True,
        )
    if snapshot.now >= inventory.get_renewal_time(certificate):
        left = "less than a third of its validity is left, and it has not been renewed"
        return warn(f"valid until {_format_time(end)}: {left}", _READ_LOG)
    return ok(f"valid until {_format_time(end)}")


@row(
    f"{_WAIT}railwright certs rotate (it fills caBundle and replaces a CA in two steps; with cert-manager, cainjector "
    "fills caBundle)",
    after=f"certificates/{WEBHOOK}",
    heals=True,
)
def check_ca_bundle(snapshot: Snapshot) -> Result:
    """Every caBundle verifies the webhook certificate.

    Verification fails after manifests are applied over a filled `caBundle`, or after certificate and CA are replaced
    together.

    Warns if `railwright-certs` has reported in the last hour that another writer overwrites a caBundle again and again
    (Event `CABundleOverwritten`, which names the writer).

    Warns if the CA of the webhook's certificate is valid for less than 30 more days, and fails if it has expired.
    """
    snapshot.require_sources("mutating", "validating")
    hooks, secret = snapshot.webhook_entries, find_named(snapshot.get_readable_objects(_WEBHOOK_SECRET))
    require_value(hooks, "there is no webhook configuration of railwright")
    pair = secret and secret.read_pair()
    problems, ends = [], []
    for hook in hooks:
        trusted = pki.split_bundle(base64.b64decode(get_value(hook, "clientConfig", "caBundle") or ""))
        if not trusted:
            problems.append(f"{hook.get('name')}: its caBundle is empty, or no certificate in PEM format")
        elif pair and (issuer := pki.find_issuer(pair.certificate_pem, trusted)):
            ends.append(x509.load_pem_x509_certificate(issuer).not_valid_after_utc)
        elif pair:
            problems.append(f"{hook.get('name')}: its caBundle does not verify the webhook's certificate")
    writers = [
        f"{event.involved_object.kind}: {event.message}" for event in snapshot.list_recent_events("overwritten")[:1]
    ]
    if problems:
        return fail("; ".join([text.join_first(problems, 3), *writers]))
    snapshot.require_sources(_WEBHOOK_SECRET)
    if writers:
        return warn(writers[0])
    end = min(ends)
    if snapshot.now >= end:
        return fail(f"the CA expired {_format_time(end)}")
    if end - snapshot.now < _CA_NOTICE:
        return warn(f"the CA expires {_format_time(end)}")
    return ok(f"{text.format_count(len(hooks), 'entry')}, with a CA that is valid until {_format_time(end)}")


def _format_time(time: dt.datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M} UTC"
